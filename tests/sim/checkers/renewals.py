"""mixed-topics, renewal-skip, foreign-commit: topics that are deleted and created again under the same name (KIP-516).

Only the topic id tells such topics apart. Each value was sent to one topic id, so a record tells which topic it is of.
No checker claims that no record of a former topic comes after one of a later topic: a broker that is cut off from the
others may serve the former one.
"""

from __future__ import annotations

from collections.abc import Iterator

from sim.checkers.anomaly import Anomaly, few
from sim.checkers.history_index import HistoryIndex
from sim.events import Given, Place, identified

FINAL_READER = "the final reader"
Reader = tuple[str, str]
"""A consumer without a group, or all members of a group: ("", client) or (group, "")."""


def mixed_topics(facts: HistoryIndex) -> Iterator[Anomaly]:
    """A record is in another topic or partition than it was sent to, or at another offset than it was acknowledged at
    or found at before. At the end the last topic of a name has no records of another one."""
    found: dict[str, None] = {}
    places: dict[str, tuple[Place, int]] = {}
    values: dict[tuple[Place, int], str] = {}
    last = _last(facts)
    for by, name, partition, offset, value in _sights(facts):
        write = facts.by_value.get(value)
        if write is None:
            found[f"{value!r}, which nothing has sent, is at {name}-{partition}@{offset} for {by}"] = None
            continue
        at = (write.sent.topic, partition), offset
        is_elsewhere = _name_of(write.sent.topic) != name or write.partition != partition
        if by == FINAL_READER:
            is_elsewhere = is_elsewhere or write.sent.topic != last[name]
        if is_elsewhere or (write.offset >= 0 and write.offset != offset) or places.setdefault(value, at) != at:
            found[f"{write} is at {name}-{partition}@{offset} for {by}"] = None
        if values.setdefault(at, value) != value:
            found[f"{write} and {values[at]!r} are both at offset {offset}"] = None
    if found:
        yield Anomaly("mixed-topics", few(found))


def _sights(facts: HistoryIndex) -> Iterator[tuple[str, str, int, int, str]]:
    """All records that consumers and the final reader got: by, name, partition, offset, value."""
    for given in facts.given:
        for offset, value in zip(given.offsets, given.values, strict=True):
            yield given.client, given.name, given.partition, offset, value
    for (name, partition), end in facts.final.partitions.items():
        if name in _last(facts):
            for row in end.uncommitted:
                yield FINAL_READER, name, partition, row.offset, row.value or ""


def _last(facts: HistoryIndex) -> dict[str, str]:
    """By name: the topic that stays."""
    return {_name_of(event.topic): event.topic for event in facts.renewed if event.stays}


def _name_of(topic: str) -> str:
    """The name in the text that `identified` makes."""
    return topic.partition("@")[0]


def renewal_skip(facts: HistoryIndex) -> Iterator[Anomaly]:
    """A consumer or its group skipped records of one topic id; or a consumer without a group got one twice; or a
    consumer read to the end without having got all records.

    Each consumer and each group begins at offset 0 of each topic, and no record is ever deleted.
    """
    found = list(_repeated(facts))
    given = _offsets_given(facts)
    for (reader, (topic, partition)), offsets in given.items():
        missing = [offset for offset in range(max(offsets)) if offset not in offsets]
        if missing:
            found.append(f"{_words(reader)} got {topic}-{partition}@{max(offsets)}, and never {few(missing)}")
    acknowledged: dict[Place, int] = {}
    for write in facts.writes.values():
        if write.is_promised:
            acknowledged[write.place] = max(acknowledged.get(write.place, -1), write.offset)
    for event in facts.read_through:
        reader = (event.group, "" if event.group else event.client)
        for partition, end in enumerate(event.ends):
            offsets = given.get((reader, (event.topic, partition)), {})
            upto = max(end, acknowledged.get((event.topic, partition), -1) + 1)
            missing = [offset for offset in range(upto) if offset not in offsets]
            if missing:
                found.append(f"{_words(reader)} read {event.topic}-{partition} to its end without {few(missing)}")
    if found:
        yield Anomaly("renewal-skip", few(found))


def _repeated(facts: HistoryIndex) -> Iterator[str]:
    """Records that a consumer without a group got twice, or in another order."""
    last: dict[tuple[str, Place], int] = {}
    for given, place, offset in _identified(facts):
        if given.group:
            continue
        key = given.client, place
        if offset <= last.get(key, -1):
            yield (
                f"{given.client} got {place[0]}-{place[1]}@{offset} at {given.at_ms:.0f} ms, after @{last[key]} of the "
                "same topic"
            )
        last[key] = offset


def _identified(facts: HistoryIndex) -> Iterator[tuple[Given, Place, int]]:
    """All records that consumers got, with the topic id and partition that they were sent to."""
    for given in facts.given:
        for offset, value in zip(given.offsets, given.values, strict=True):
            write = facts.by_value.get(value)
            if write is not None:
                yield given, (write.sent.topic, write.partition), offset


def _offsets_given(facts: HistoryIndex) -> dict[tuple[Reader, Place], dict[int, None]]:
    found: dict[tuple[Reader, Place], dict[int, None]] = {}
    for given, place, offset in _identified(facts):
        reader = (given.group, "" if given.group else given.client)
        found.setdefault((reader, place), {})[offset] = None
    return found


def _words(reader: Reader) -> str:
    group, client = reader
    return f"group {group}" if group else client


def foreign_commit(facts: HistoryIndex) -> Iterator[Anomaly]:
    """A group has committed an offset for a topic id that is above the records that its members got of that topic."""
    given = _offsets_given(facts)
    groups = {event.group: None for event in facts.given if event.group}
    groups |= {event.group: None for event in facts.committed_by_id}
    commits = [
        (row.group, (identified(row.place[0], row.topic_id), row.place[1]), row.offset, f"record @{row.position}")
        for row in facts.final.commits
        if row.group in groups and any(row.topic_id)
    ]
    for event in facts.committed_by_id:
        for partition, offset in enumerate(event.offsets):
            if offset is not None:
                commits.append((event.group, (event.topic, partition), offset, "OffsetFetch"))
    found: dict[str, None] = {}
    for group, place, offset, how in commits:
        read_to = max(given.get(((group, ""), place), {}), default=-1) + 1
        if offset > read_to:
            found[f"{group} has committed {offset} for {place[0]}-{place[1]}, and read to {read_to} ({how})"] = None
    if found:
        yield Anomaly("foreign-commit", few(found))
