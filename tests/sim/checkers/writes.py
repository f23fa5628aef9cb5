"""lost-write, unseen, duplicate, inconsistent-offsets, phantom-read: anomalies of single records."""

from __future__ import annotations

from collections.abc import Iterator

from sim.checkers.anomaly import Anomaly, few
from sim.checkers.history_index import HistoryIndex, Send, TransactionOutcome
from sim.events import Place


def expected(facts: HistoryIndex) -> Iterator[tuple[Place, int, str | None, str]]:
    """The records that must be in the logs at the end: place, offset (-1: anywhere in the place), value, and evidence.

    These are the records promised to their senders, and those that consumers read: consumers see only durable records.
    """
    for write in facts.writes.values():
        if write.is_promised:
            yield write.place, write.offset, write.sent.value, f"acknowledged to {write.sent.client}"
    for poll in facts.polls:
        for offset, value in zip(poll.offsets, poll.values, strict=True):
            yield (poll.topic, poll.partition), offset, value, f"read by {poll.client}"


def missing(facts: HistoryIndex) -> Iterator[tuple[str, str]]:
    """The missing records, as the name of the checker that reports them and a text."""
    there = {
        place: {row.value for row in end.uncommitted if row.value is not None}
        for place, end in facts.final.partitions.items()
    }
    highest: dict[Place, int] = {}
    for place, offset, _, _ in facts.reads:
        highest[place] = max(offset, highest.get(place, -1))
    reported: dict[tuple[Place, str], None] = {}
    for place, offset, value, by in expected(facts):
        if place not in there or value is None or value in there[place] or (place, value) in reported:
            continue
        if facts.cleanup_of(place[0]) == "compact" or facts.may_be_gone(place, offset):
            continue
        reported[place, value] = None
        name = "lost-write" if offset < highest.get(place, -1) else "unseen"
        yield name, f"{value!r} at {place[0]}-{place[1]}@{offset}, {by}, is not there at the end"


def lost_write(facts: HistoryIndex) -> Iterator[Anomaly]:
    """An acknowledged write, or one that was read, is missing, although a later one of its partition was read."""
    found = [text for name, text in missing(facts) if name == "lost-write"]
    if found:
        yield Anomaly("lost-write", few(found))
    yield from _lost_by_compaction(facts)


def unseen(facts: HistoryIndex) -> Iterator[Anomaly]:
    """An acknowledged write at the end of its partition is missing for the final reader, which reads from offset 0."""
    found = [text for name, text in missing(facts) if name == "unseen"]
    if found:
        yield Anomaly("unseen", few(found))


def _lost_by_compaction(facts: HistoryIndex) -> Iterator[Anomaly]:
    """The last acknowledged write of a key is gone, or an older value is back.

    An unacknowledged tombstone may have been stored, and compaction may have removed it since.
    """
    last: dict[tuple[Place, str], Send] = {}
    for write in facts.writes.values():
        if not write.is_promised or write.offset < 0 or write.sent.key is None:
            continue
        if facts.cleanup_of(write.sent.topic) != "compact" or facts.may_be_gone(write.place, write.offset):
            continue
        txn = facts.txns.get(write.sent.txn)
        if txn is not None and txn.outcome is not TransactionOutcome.COMMITTED:
            continue
        key = write.place, write.sent.key
        if key not in last or last[key].offset < write.offset:
            last[key] = write
    kept: dict[tuple[Place, str], int] = {}
    for place, end in facts.final.partitions.items():
        for row in end.committed:
            if row.key is not None:
                kept[place, row.key] = max(row.offset, kept.get((place, row.key), -1))
    may_be_deleted = {
        (write.sent.topic, write.sent.key): None
        for write in facts.writes.values()
        if write.sent.value is None and write.offset < 0 and not write.is_impossible
    }
    found = [
        f"key {key!r}: {write}, but the last record of it is at {kept.get((place, key), 'no offset')}"
        for (place, key), write in last.items()
        if place in facts.final.partitions
        and ((place, key) in kept or (place[0], key) not in may_be_deleted)
        and kept.get((place, key), -1 if write.sent.value is not None else write.offset) < write.offset
    ]
    if found:
        yield Anomaly("lost-write", few(found))


def duplicate(facts: HistoryIndex) -> Iterator[Anomaly]:
    """One value is at two offsets, although an idempotent producer sent it once.

    The acknowledged offset counts, too: compaction may have removed the record there.
    """
    first: dict[str, tuple[Place, int]] = {
        write.sent.value: (write.place, write.offset)
        for write in facts.writes.values()
        if write.is_promised and write.offset >= 0 and write.sent.value is not None
    }
    found: dict[str, str] = {}
    for place, offset, value, _ in facts.reads:
        if value is None or first.setdefault(value, (place, offset)) == (place, offset) or value in found:
            continue
        write = facts.by_value.get(value)
        if write is not None and write.sent.idempotent:
            found[value] = f"{write} is at {_at(*first[value])} and at {_at(place, offset)}"
    if found:
        yield Anomaly("duplicate", few(found.values()))


def inconsistent_offsets(facts: HistoryIndex) -> Iterator[Anomaly]:
    """One offset of a partition shows two values, or another value than the acknowledged one."""
    shown: dict[tuple[Place, int], str | None] = {}
    found = []
    for place, offset, value, _ in facts.reads:
        if shown.setdefault((place, offset), value) != value:
            found.append(f"{_at(place, offset)} shows {shown[place, offset]!r} and {value!r}")
    for write in facts.writes.values():
        at = (write.place, write.offset)
        if write.is_promised and at in shown and shown[at] != write.sent.value:
            found.append(f"{_at(*at)} was acknowledged for {write}, and shows {shown[at]!r}")
    if found:
        yield Anomaly("inconsistent-offsets", few(dict.fromkeys(found)))


def phantom_read(facts: HistoryIndex) -> Iterator[Anomaly]:
    """A reader got a value that no producer sent, that certainly failed, or that was sent to another partition."""
    found: dict[str, None] = {}
    for place, offset, value, _ in facts.reads:
        if value is None or place[0] not in facts.history.topics:
            continue
        write = facts.by_value.get(value)
        if write is None:
            found[f"{value!r} at {_at(place, offset)} was never sent"] = None
        elif write.is_impossible:
            found[f"{write} failed for certain, and is at {_at(place, offset)}"] = None
        elif write.sent.topic != place[0] or (write.partition not in (-1, place[1])):
            found[f"{write} is at {_at(place, offset)}"] = None
    if found:
        yield Anomaly("phantom-read", few(found))


def _at(place: Place, offset: int) -> str:
    return f"{place[0]}-{place[1]}@{offset}"
