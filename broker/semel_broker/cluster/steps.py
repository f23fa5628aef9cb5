"""What the controller wants written, in portions that hold together, how they are put into transactions, and told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from semel_broker.cluster.image import Place
from semel_broker.cluster.store import Change, Expect
from semel_broker.world import Logger

TOLD_ONE_BY_ONE_MAX: Final = 10


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that make sense only together, and only if all of `expects` still hold. Two steps of one decision never
    change the same key. `places`: the partitions it is about; `what` and `facts`: for the log."""

    expects: tuple[Expect, ...]
    changes: tuple[Change, ...]
    places: tuple[Place, ...] = ()
    what: str
    facts: dict[str, object] = {}


class Batch(msgspec.Struct, frozen=True):
    """The steps of one transaction."""

    expects: list[Expect]
    changes: list[Change]
    steps: list[Step]


def pack(steps: Sequence[Step], size_max: int, common: Sequence[Expect] = ()) -> Iterator[Batch]:
    """All steps, in order, in transactions of at most `size_max` changes and as many expectations, `common` among them.
    A step that is larger than that goes alone."""
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
        yield Batch(list(expects.values()), changes, list(steps[at:end]))
        at = end


def tell(log: Logger, steps: Sequence[Step]) -> None:
    """Log what was written: step by step, or many of a kind as one."""
    if len(steps) <= TOLD_ONE_BY_ONE_MAX:
        for step in steps:
            log.info(step.what, **step.facts)
        return
    for what, count in sorted(Counter(step.what for step in steps).items()):
        first = next(step for step in steps if step.what == what)
        log.info(what, count=count, **{f"first_{name}": fact for name, fact in first.facts.items()})
