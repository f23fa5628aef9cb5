"""poll-skip, nonmonotonic-poll, unowned-poll, nonmonotonic-send: skipped, repeated, foreign and reordered records."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from sim.checkers.anomaly import Anomaly, few
from sim.checkers.history_index import HistoryIndex, ReadSession
from sim.events import Place
from sim.final import ReadRecord


def visible_offsets(facts: HistoryIndex) -> dict[tuple[Place, bool], list[int]]:
    """By place, and by whether only committed records count: the offsets of records that consumers must see, ascending.

    Records whose deletion was requested are left out. They may exist at the end: the file with the log start offsets
    may have been lost, and the broker starts without it. Records that retention had deleted on a replica are left out
    for the same reason. Records that a compacted topic may remove, also aborted ones, are left out if there are
    several replicas: each replica compacts in its own time, so the leader at the end may have records that the leader
    of an earlier read had removed.
    """
    visible: dict[tuple[Place, bool], list[int]] = {}
    for place, end in facts.final.partitions.items():
        is_compacted_apart = facts.cleanup_of(place[0]) == "compact" and len(facts.final.replicas.get(place, [])) > 1
        for committed, rows in ((True, end.committed), (False, end.uncommitted)):
            kept = _last_of_each_key(end.committed) if is_compacted_apart else rows
            since = facts.final.log_starts.get(place, 0)
            visible[place, committed] = [
                row.offset for row in kept if row.offset >= since and not facts.may_be_gone(place, row.offset)
            ]
    return visible


def _last_of_each_key(rows: list[ReadRecord]) -> list[ReadRecord]:
    """The last row of each key, without tombstones."""
    last = {row.key: row.offset for row in rows}
    return [row for row in rows if last[row.key] == row.offset and row.value is not None]


def poll_skip(facts: HistoryIndex) -> Iterator[Anomaly]:
    """A consumer skipped records. Or its group committed an offset above records that no member got."""
    visible = visible_offsets(facts)
    found = []
    for session in facts.sessions:
        found += list(_skips(session, visible.get((session.place, session.read_committed), [])))
    found += list(_committed_over(facts, visible))
    if found:
        yield Anomaly("poll-skip", few(found))


def _skips(session: ReadSession, visible: list[int]) -> Iterator[str]:
    position = session.start
    for poll in session.polls:
        for offset in poll.offsets:
            if 0 <= position < offset:
                at = bisect_left(visible, position)
                if at < len(visible) and visible[at] < offset:
                    yield (
                        f"{session.client} was given {session.place[0]}-{session.place[1]}@{offset} at "
                        f"{poll.at_ms:.0f} ms, and not {few(visible[at : bisect_left(visible, offset)])}"
                    )
            position = offset + 1


def _committed_over(facts: HistoryIndex, visible: dict[tuple[Place, bool], list[int]]) -> Iterator[str]:
    given: dict[tuple[str, Place], dict[int, None]] = {}
    isolation: dict[str, bool] = {}
    for poll in facts.polls:
        consumer = facts.consumers.get(poll.client)
        if consumer is not None and consumer.group:
            isolation[consumer.group] = isolation.get(consumer.group, True) and consumer.read_committed
            offsets = given.setdefault((consumer.group, (poll.topic, poll.partition)), {})
            offsets.update(dict.fromkeys(poll.offsets))
    for group, committed in facts.final.groups.items():
        for place, end in committed.items():
            offsets = given.get((group, place), {})
            skipped = [
                offset for offset in visible.get((place, isolation.get(group, True)), [])
                if offset < end and offset not in offsets
            ]  # fmt: skip
            if skipped:
                yield (
                    f"group {group} has committed {place[0]}-{place[1]}@{end}, and none of its members was given "
                    f"{few(skipped)}"
                )


def nonmonotonic_poll(facts: HistoryIndex) -> Iterator[Anomaly]:
    """A consumer got a record twice, or an earlier record after a later one, within one session."""
    found = []
    for session in facts.sessions:
        last = session.start - 1
        for poll in session.polls:
            for offset in poll.offsets:
                if offset <= last:
                    found.append(
                        f"{session.client} was given {session.place[0]}-{session.place[1]}@{offset} after @{last} at "
                        f"{poll.at_ms:.0f} ms"
                    )
                last = offset
    if found:
        yield Anomaly("nonmonotonic-poll", few(found))


def unowned_poll(facts: HistoryIndex) -> Iterator[Anomaly]:
    """A member of a group got records of a partition that it did not own at that time."""
    found = [
        f"{poll.client} was given {poll.topic}-{poll.partition}@{poll.offsets[0]} at {poll.at_ms:.0f} ms"
        for poll in facts.unowned
    ]
    if found:
        yield Anomaly("unowned-poll", few(found))


def nonmonotonic_send(facts: HistoryIndex) -> Iterator[Anomaly]:
    """Acknowledged sends of one idempotent producer to one partition are stored in another order."""
    last: dict[tuple[str, Place], int] = {}
    found = []
    for write in facts.writes.values():
        if not write.sent.idempotent or write.offset < 0:
            continue
        key = write.sent.client, write.place
        if write.offset <= last.get(key, -1):
            found.append(f"{write} was sent after what is stored @{last[key]}")
        last[key] = max(write.offset, last.get(key, -1))
    if found:
        yield Anomaly("nonmonotonic-send", few(found))
