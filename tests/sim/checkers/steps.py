"""eos-step: the rows of each step of a transaction group are committed together, once, and in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from math import inf

from sim.checkers.anomaly import Anomaly, few
from sim.checkers.history_index import HistoryIndex
from sim.events import Planned, StepBegun


def eos_step(facts: HistoryIndex) -> Iterator[Anomaly]:
    """A committed row is not there exactly once; a row that is not committed is there; rows are out of order; or the
    coordinator forgot a step or a token of a group."""
    for group in dict.fromkeys(planned.group for planned in facts.planned):
        found = [*_rows(facts, group), *_order(facts, group), *_memory(facts, group)]
        if found:
            yield Anomaly("eos-step", f"{group}: {few(found)}")


def _rows(facts: HistoryIndex, group: str) -> Iterator[str]:
    count = Counter(row for _, row in _visible(facts))
    committed = _committed(facts, group)
    asked = {decision.asked.token: None for decision in facts.decisions.values() if decision.asked.group == group}
    for planned in _planned(facts, group):
        expected = {1} if planned.token in committed else {0, 1} if planned.token in asked else {0}
        wrong = [f"{row} {count[row]} times" for row in planned.rows if count[row] not in expected]
        if wrong:
            yield f"of {planned.token}, {_fate(planned.token, committed, asked)}, there is {few(wrong)}"
        elif len({count[row] for row in planned.rows}) > 1:
            missing = [row for row in planned.rows if not count[row]]
            yield f"{planned.token} is there without {few(missing)}"


def _fate(token: str, committed: dict[str, float], asked: dict[str, None]) -> str:
    return "committed" if token in committed else "perhaps committed" if token in asked else "never committed"


def _order(facts: HistoryIndex, group: str) -> Iterator[str]:
    """Batches are committed in the planned order, and their rows have this order in each partition."""
    place_of = {row: place for place, planned in enumerate(_planned(facts, group)) for row in planned.rows}
    last: dict[tuple[str, int], str] = {}
    seen: dict[int, None] = {}
    for place, row in _visible(facts):
        if row not in place_of:
            continue
        seen[place_of[row]] = None
        if place in last and place_of[row] < place_of[last[place]]:
            yield f"in {place[0]}-{place[1]} {row} lies behind {last[place]}"
        last[place] = row
    newest = max(seen, default=-1)
    for number, planned in enumerate(_planned(facts, group)[: newest + 1]):
        if planned.rows and number not in seen:
            yield f"{planned.token} is not there, and what was planned after it is"


def _memory(facts: HistoryIndex, group: str) -> Iterator[str]:
    """A driver that begins a step gets an epoch and a last token that are not older than those known before."""
    place_of = {planned.token: place for place, planned in enumerate(_planned(facts, group))}
    steps = sorted((step for step in facts.steps if step.group == group), key=lambda step: step.epoch)
    committed = _committed(facts, group)
    for one, other in pairwise(steps):
        if one.epoch == other.epoch:
            yield f"step {one.epoch} was begun twice, by {one.client} and by {other.client}"
        elif other.at_ms < one.since_ms:
            yield f"step {one.epoch} was begun at {one.since_ms:.0f} ms, step {other.epoch} before that"
        elif _told(one, place_of) > _told(other, place_of):
            yield f"step {one.epoch} was told of {one.decided_token}, step {other.epoch} of {other.decided_token}"
    for step in steps:
        for token, at_ms in committed.items():
            if at_ms < step.since_ms and place_of.get(token, -1) > _told(step, place_of):
                yield f"{token} was committed at {at_ms:.0f} ms, and step {step.epoch} told of {step.decided_token}"


def stale_drivers(facts: HistoryIndex) -> Iterator[str]:
    """A step was committed although a newer step had begun before the commit was first requested."""
    first_asked: dict[tuple[str, int], float] = {}
    for decision in facts.decisions.values():
        asked = decision.asked
        first_ms = first_asked.setdefault((asked.group, asked.epoch), asked.at_ms)
        if not decision.is_ours:
            continue
        for step in facts.steps:
            if step.group == asked.group and step.epoch > asked.epoch and step.at_ms < first_ms:
                yield (
                    f"{asked.client} committed step {asked.epoch} as {asked.token}, asked at {first_ms:.0f} ms; step "
                    f"{step.epoch} had begun at {step.at_ms:.0f} ms"
                )


def _planned(facts: HistoryIndex, group: str) -> list[Planned]:
    return [planned for planned in facts.planned if planned.group == group]


def _committed(facts: HistoryIndex, group: str) -> dict[str, float]:
    """The tokens that are certainly committed, with the time at which a client first knew it."""
    known: dict[str, float] = {}
    for decision in facts.decisions.values():
        if decision.asked.group == group and decision.is_ours is not None:
            known[decision.asked.token] = min(decision.ended_ms, known.get(decision.asked.token, inf))
    for step in facts.steps:
        if step.group == group and step.decided_token is not None:
            known[step.decided_token] = min(step.at_ms, known.get(step.decided_token, inf))
    return known


def _told(step: StepBegun, place_of: dict[str, int]) -> int:
    return -1 if step.decided_token is None else place_of.get(step.decided_token, -1)


def _visible(facts: HistoryIndex) -> Iterator[tuple[tuple[str, int], str]]:
    """The rows that readers of committed data get at the end, in the order of each partition."""
    for place, end in facts.final.partitions.items():
        for record in end.committed:
            write = facts.by_value.get(record.value) if record.value is not None else None
            if write is not None and write.sent.made_from is not None:
                yield place, write.sent.made_from
