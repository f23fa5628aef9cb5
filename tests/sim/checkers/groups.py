"""lost-group-offset, double-assignment, zombie-commit: committed offsets stay, each partition has one member, and only
that member commits."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import msgspec

from sim.checkers.anomaly import Anomaly, few
from sim.checkers.history_index import HistoryIndex, Rank, TransactionOutcome
from sim.events import NO_TXN, Assigned, CommittingOffsets, Place, Revoked


class OffsetPeriod(msgspec.Struct, frozen=True):
    """A committed offset that took effect at some time from `since_ms` to `until_ms`, certainly or perhaps. `offset`
    None: deleted."""

    offset: int | None
    since_ms: float
    until_ms: float
    is_certain: bool = True


NOTHING = OffsetPeriod(None, -inf, -inf)
"""Before the first commit: no offset."""


def _possible(settings: list[OffsetPeriod], since_ms: float, until_ms: float) -> list[OffsetPeriod]:
    """The settings that may have been in force at some time between these two."""
    there = [NOTHING, *settings]
    definite = max(each.since_ms for each in there if each.is_certain and each.until_ms < since_ms)
    return [each for each in there if each.since_ms <= until_ms and each.until_ms >= definite]


def lost_group_offset(facts: HistoryIndex) -> Iterator[Anomaly]:
    """A group's committed offset was read that an earlier acknowledged commit had overwritten. Or a member began to
    read below all offsets that may have been committed."""
    settings = _settings(facts)
    found: dict[str, None] = {}
    for group, place, offset, since_ms, until_ms in _sights(facts):
        there = settings.get((group, place), [])
        if not any(each.offset == offset for each in _possible(there, since_ms, until_ms)):
            past = [each for each in (NOTHING, *there) if each.is_certain and each.until_ms < since_ms]
            latest = max(past, key=lambda each: each.since_ms)
            found[
                f"group {group} had {offset} for {place[0]}-{place[1]} at {until_ms:.0f} ms, where {latest.offset} was "
                f"committed at {latest.until_ms:.0f} ms"
            ] = None
    found |= dict.fromkeys(_early_starts(facts, settings))
    if found:
        yield Anomaly("lost-group-offset", few(found))


def _early_starts(facts: HistoryIndex, settings: dict[tuple[str, Place], list[OffsetPeriod]]) -> Iterator[str]:
    """Members that got a partition without a known position, and whose first record is below the committed offset."""
    for session in facts.sessions:
        consumer = facts.consumers.get(session.client)
        if consumer is None or not consumer.group or session.start >= 0 or session.since_ms == inf or not session.polls:
            continue
        first = session.polls[0]
        there = settings.get((consumer.group, session.place), [])
        possible = _possible(there, session.since_ms, first.at_ms)
        if all(each.offset is not None and each.offset > first.offsets[0] for each in possible):
            yield (
                f"{session.client} of group {consumer.group} began {session.place[0]}-{session.place[1]} at "
                f"{first.at_ms:.0f} ms with @{first.offsets[0]}; committed was at least "
                f"{min(each.offset for each in possible if each.offset is not None)}"
            )


def _settings(facts: HistoryIndex) -> dict[tuple[str, Place], list[OffsetPeriod]]:
    """Every commit that took effect, or may have, by group and place."""
    given = _given(facts)
    settings: dict[tuple[str, Place], list[OffsetPeriod]] = {}
    for commit in facts.offset_commits.values():
        asked = commit.asked
        since_ms, until_ms = asked.at_ms, commit.ended_ms
        if asked.txn != NO_TXN:
            txn = facts.txns[asked.txn]
            since_ms, until_ms = txn.committing_ms, txn.ended_ms
            if txn.outcome is TransactionOutcome.ABORTED:
                continue
        if commit.is_refused:
            continue
        is_certain = until_ms < inf
        for topic, partition, offset in asked.offsets:
            key = asked.group, (topic, partition)
            latest_ms = until_ms
            if not is_certain and asked.txn == NO_TXN and asked.client in facts.consumers:
                latest_ms = _next_given_ms(given.get(key, []), asked)
            settings.setdefault(key, []).append(OffsetPeriod(offset, since_ms, latest_ms, is_certain))
    return settings


def _given(facts: HistoryIndex) -> dict[tuple[str, Place], list[Assigned]]:
    """By group and place: its assignments to members."""
    given: dict[tuple[str, Place], list[Assigned]] = {}
    for event in facts.assigned:
        consumer = facts.consumers.get(event.client)
        if isinstance(event, Assigned) and consumer is not None and event.generation >= 0:
            for place in event.places:
                given.setdefault((consumer.group, place), []).append(event)
    return given


def _next_given_ms(given: list[Assigned], asked: CommittingOffsets) -> float:
    """The time at which another member got the partition. A commit that arrives later must not take effect."""
    return min((each.at_ms for each in given if each.at_ms > asked.at_ms and each.client != asked.client), default=inf)


def _sights(facts: HistoryIndex) -> Iterator[tuple[str, Place, int | None, float, float]]:
    """Group, place, the offset that was read, and the times between which it was read."""
    for seen in facts.offsets_seen:
        for topic, partition, offset in seen.offsets:
            yield seen.group, (topic, partition), offset, seen.since_ms, seen.at_ms
    places = {
        (commit.asked.group, (topic, partition)): None
        for commit in facts.offset_commits.values()
        for topic, partition, _ in commit.asked.offsets
    }
    for group, place in places:
        if group in facts.final.groups:
            yield group, place, facts.final.groups[group].get(place), inf, inf


def double_assignment(facts: HistoryIndex) -> Iterator[Anomaly]:
    """Two members of one generation got the same partition. A static member may come back under its own name."""
    found = []
    mine: dict[str, dict[Place, None]] = {}
    owners: dict[tuple[str, Rank, Place], str] = {}
    for event in facts.assigned:
        owned = mine.setdefault(event.client, {})
        if isinstance(event, Revoked):
            for place in event.places:
                owned.pop(place, None)
            continue
        owned.update(dict.fromkeys(event.places))
        found += list(_claims(facts, event, owned, owners))
    if found:
        yield Anomaly("double-assignment", few(found))


def _claims(
    facts: HistoryIndex, event: Assigned, owned: dict[Place, None], owners: dict[tuple[str, Rank, Place], str]
) -> Iterator[str]:
    rank = facts.rank(event)
    if rank is None:
        return
    group = facts.consumers[event.client].group
    for place in owned:
        name = event.client.partition("#")[0]
        other = owners.setdefault((group, rank, place), name)
        if other != name:
            yield f"generation {event.generation} of {group} has {place[0]}-{place[1]} with {other} and {name}"


def zombie_commit(facts: HistoryIndex) -> Iterator[Anomaly]:
    """A member's commit was accepted for a partition that another member had got before the commit was sent, also
    inside a transaction, whatever became of it.

    The other member's generation must not be older than the committer's: an assignment of an old generation that
    arrives late gives no partition. Clients that do not report their generation (librdkafka) are not judged.
    """
    given = _given(facts)
    found = []
    for commit in facts.offset_commits.values():
        asked = commit.asked
        member = asked.consumer if asked.txn != NO_TXN else asked.client
        mine = _rank(facts, member, asked.at_ms)
        if commit.ended_ms == inf or mine is None:
            continue
        for topic, partition, _ in asked.offsets:
            earlier = [
                (rank, each)
                for each in given.get((asked.group, (topic, partition)), ())
                if each.at_ms < asked.at_ms and (rank := facts.rank(each)) is not None
            ]
            if not earlier:
                continue
            rank, owner = max(earlier, key=lambda each: (each[0], each[1].at_ms))
            if rank >= mine and owner.client != member:
                found.append(
                    f"{member} committed {topic}-{partition} for group {asked.group} at {asked.at_ms:.0f} ms; "
                    f"{owner.client} had it since {owner.at_ms:.0f} ms, generation {owner.generation}"
                )
    if found:
        yield Anomaly("zombie-commit", few(found))


def _rank(facts: HistoryIndex, client: str, at_ms: float) -> Rank | None:
    """The rank of the last assignment that this member knew at that time; None: there is none, or it is not known."""
    mine = [
        each
        for each in facts.assigned
        if isinstance(each, Assigned) and each.client == client and each.generation >= 0 and each.at_ms < at_ms
    ]
    return facts.rank(mine[-1]) if mine else None
