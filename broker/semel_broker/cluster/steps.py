"""PURE: steps: changes that are written together; packs steps into transactions, and logs the written ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from semel_broker.cluster.image import Place
from semel_broker.cluster.store import Change, Expect

LOGGED_SINGLY_MAX: Final = 10


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that are written together, if all of `expects` hold. Two steps of one decision never change the same key.
    `places`: the partitions that it changes. `what` and `facts`: the event and the fields for the log."""

    expects: tuple[Expect, ...]
    changes: tuple[Change, ...]
    places: tuple[Place, ...] = ()
    what: str
    facts: dict[str, object] = {}


class StepBatch(msgspec.Struct, frozen=True):
    """The steps of one transaction."""

    expects: list[Expect]
    changes: list[Change]
    steps: list[Step]


def pack(steps: Sequence[Step], size_max: int, common: Sequence[Expect] = ()) -> Iterator[StepBatch]:
    """Pack the steps, in order, into transactions of at most `size_max` changes and as many expectations, including
    `common`. A larger step gets a transaction of its own."""
    at = 0
    while at < len(steps):
        expects = {expect.key: expect for expect in common}
        changes: list[Change] = []
        end = at
        for step in steps[at:]:
            more = {expect.key: expect for expect in step.expects}
            if end > at and max(len(expects | more), len(changes) + len(step.changes)) > size_max:
                break
            expects |= more
            changes += step.changes
            end += 1
        yield StepBatch(list(expects.values()), changes, list(steps[at:end]))
        at = end


def log_steps(note: Callable[..., None], steps: Sequence[Step]) -> None:
    """Log written steps: one line for each, or one line with a count for each event if there are many.

    `note`: the method of the logger for their level.
    """
    if len(steps) <= LOGGED_SINGLY_MAX:
        for step in steps:
            note(step.what, **step.facts)
        return
    for what, count in sorted(Counter(step.what for step in steps).items()):
        first = next(step for step in steps if step.what == what)
        note(what, count=count, **{f"first_{name}": fact for name, fact in first.facts.items()})
