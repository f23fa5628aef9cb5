"""lost-topic, restored-record, undrained: acknowledged administrative changes hold, and all clients finish."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from sim.checkers.anomaly import Anomaly, few
from sim.checkers.history_index import Change, HistoryIndex
from sim.events import Place

ASKED_ONCE_MS = 30
"""A request answered within this time was sent once: a client reconnects after a loss in 40 ms at the earliest."""


def lost_topic(facts: HistoryIndex) -> Iterator[Anomaly]:
    """A topic or a setting differs from the last acknowledged change. Workloads never use a topic name twice."""
    by_target: dict[str, list[Change]] = {}
    for change in facts.changes.values():
        if not change.is_refused and change.asked.change != "delete-records":
            by_target.setdefault(change.asked.target, []).append(change)
    found = []
    for target, changes in by_target.items():
        found += list(_wrong_topic(facts, target, changes))
        if target in facts.final.configs and not _may_be_another(changes):
            found += list(_wrong_configs(facts.final.configs[target], target, changes))
    if found:
        yield Anomaly("lost-topic", few(found))


def _wrong_topic(facts: HistoryIndex, target: str, changes: list[Change]) -> Iterator[str]:
    count = facts.final.topics.get(target)
    deletes = [change for change in changes if change.asked.change == "delete"]
    if count is None:
        sure = [change for change in changes if change.asked.change != "delete" and change.ended_ms < inf]
        if sure and not deletes:
            yield f"{target}, created for {sure[0].asked.client}, is not there"
        return
    is_sure = not _may_be_another(changes)
    for change in deletes:
        if change.ended_ms < inf and is_sure:
            yield f"{target} was deleted at {change.ended_ms:.0f} ms, and is there"
    sized = [change for change in changes if change.asked.change in ("create", "grow")]
    if sized:
        least = max((int(each.asked.detail) for each in sized if each.ended_ms < inf and is_sure), default=0)
        possible = {int(each.asked.detail) for each in sized}
        if count < least or count not in possible:
            yield f"{target} has {count} partitions; acknowledged were {least}, asked for {sorted(possible)}"


def _may_be_another(changes: list[Change]) -> bool:
    """Whether a late copy of a create request may have created the topic again after its deletion, without the changes
    made in between."""
    kinds = {change.asked.change for change in changes}
    return "delete" in kinds and any(each.asked.change == "create" and _was_asked_again(each) for each in changes)


def _wrong_configs(configs: dict[str, str], target: str, changes: list[Change]) -> Iterator[str]:
    """One client makes the changes of a topic one after the other. A request without an answer may arrive at any later
    time, also if it was sent again: the broker cannot tell that it is late."""
    acknowledged: dict[str, str] = {}
    late: dict[str, list[str]] = {}
    for change in changes:
        if change.asked.change == "configure":
            name, _, value = change.asked.detail.partition("=")
            if change.ended_ms < inf:
                acknowledged[name] = value
            if _was_asked_again(change):
                late.setdefault(name, []).append(value)
    for name, value in acknowledged.items():
        values = [value, *late.get(name, [])]
        if configs.get(name) not in values:
            yield f"{target} has {name}={configs.get(name)}; acknowledged or asked for was {values}"


def _was_asked_again(change: Change) -> bool:
    """Whether the client may have sent the request more than once."""
    return change.ended_ms - change.asked.at_ms > ASKED_ONCE_MS


def restored_record(facts: HistoryIndex) -> Iterator[Anomaly]:
    """A record is there at the end, although a deletion of it was acknowledged."""
    if not facts.final.keeps_deletions:
        return
    below: dict[Place, int] = {}
    for change in facts.changes.values():
        if change.asked.change == "delete-records" and change.ended_ms < inf and not change.is_refused:
            partition, _, offset = change.asked.detail.partition(":")
            place = change.asked.target, int(partition)
            below[place] = max(below.get(place, 0), int(offset))
    found = []
    for place, before in below.items():
        end = facts.end_of(place)
        back = [row.offset for row in end.uncommitted if row.offset < before] if end is not None else []
        if back:
            found.append(f"{place[0]}-{place[1]} was deleted below {before}, and has offset {back[0]}")
    if found:
        yield Anomaly("restored-record", few(found))


def undrained(facts: HistoryIndex) -> Iterator[Anomaly]:
    """A client could not finish although all faults were over."""
    if facts.final.undrained:
        yield Anomaly("undrained", few(facts.final.undrained))
