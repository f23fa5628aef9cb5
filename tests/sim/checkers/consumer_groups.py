"""double-owner, stale-commit, epoch-regress, offset-regress, unread-commit, group-mismatch: groups of the consumer
protocol (KIP-848).

A member owns a partition from the answer that assigns it until it gives it back, is fenced, or its session ends by its
own clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import msgspec

from sim.checkers.anomaly import Anomaly, few
from sim.checkers.history_index import HistoryIndex
from sim.checkers.order import visible_offsets
from sim.events import NO_TXN, Assigned, Beaten, Place, Revoked


class OwnershipPeriod(msgspec.Struct):
    """A period in which a member owns a partition by its own view."""

    client: str
    epoch: int
    from_ms: float
    to_ms: float

    def __str__(self) -> str:
        return f"{self.client} from {self.from_ms:.0f} to {self.to_ms:.0f} ms at epoch {self.epoch}"


class MemberOwnership:
    """The partitions that one member owns by its own view, derived from its events.

    `until_ms`: the end of its session by its own clock.
    """

    def __init__(self, client: str) -> None:
        self.client = client
        self.until_ms = -inf
        self.epoch = -1
        self._owned: dict[Place, float] = {}

    def note(self, event: Beaten | Assigned | Revoked) -> Iterator[tuple[Place, OwnershipPeriod]]:
        """The ownership periods that end with this event."""
        match event:
            case Beaten(error=""):
                if event.at_ms > self.until_ms:  # it was out of the group for a while by its own clock
                    yield from self._ended(list(self._owned), self.until_ms, keeps_from_ms=event.at_ms)
                self.until_ms, self.epoch = event.until_ms, event.epoch
            case Assigned():
                self._owned.update(dict.fromkeys(event.places, event.at_ms))
            case Revoked():
                yield from self._ended([*event.places], event.at_ms)

    def end(self) -> Iterator[tuple[Place, OwnershipPeriod]]:
        """The ownership periods at the end of the history."""
        yield from self._ended(list(self._owned), inf)

    def _ended(
        self, places: list[Place], at_ms: float, keeps_from_ms: float | None = None
    ) -> Iterator[tuple[Place, OwnershipPeriod]]:
        for place in places:
            from_ms = self._owned.pop(place, inf)
            to_ms = min(at_ms, self.until_ms)
            if from_ms < to_ms:
                yield place, OwnershipPeriod(self.client, self.epoch, from_ms, to_ms)
            if keeps_from_ms is not None:
                self._owned[place] = keeps_from_ms


def _groups(facts: HistoryIndex) -> dict[str, list[Beaten | Assigned | Revoked]]:
    """The events of the members of each group of the consumer protocol."""
    names = {event.client: event.group for event in facts.epochs if isinstance(event, Beaten)}
    found: dict[str, list[Beaten | Assigned | Revoked]] = {group: [] for group in names.values()}
    for event in facts.epochs:
        if event.client in names:
            found[names[event.client]].append(event)
    return found


def _tenures(events: list[Beaten | Assigned | Revoked]) -> dict[Place, list[OwnershipPeriod]]:
    """The ownership periods of each partition, by their beginnings."""
    believers: dict[str, MemberOwnership] = {}
    found: dict[Place, list[OwnershipPeriod]] = {}
    for event in events:
        believer = believers.setdefault(event.client, MemberOwnership(event.client))
        for place, tenure in believer.note(event):
            found.setdefault(place, []).append(tenure)
    for believer in believers.values():
        for place, tenure in believer.end():
            found.setdefault(place, []).append(tenure)
    return {place: sorted(tenures, key=lambda tenure: tenure.from_ms) for place, tenures in found.items()}


def double_owner(facts: HistoryIndex) -> Iterator[Anomaly]:
    """Two members of a group owned a partition at the same time, each by its own view."""
    found = []
    for group, events in _groups(facts).items():
        for place, tenures in _tenures(events).items():
            longest = tenures[0]
            for tenure in tenures[1:]:
                if tenure.from_ms < longest.to_ms and tenure.client != longest.client:
                    found.append(f"{place[0]}-{place[1]} of group {group} had {longest} and {tenure}")
                longest = max(longest, tenure, key=lambda each: each.to_ms)
    if found:
        yield Anomaly("double-owner", few(found))


def stale_commit(facts: HistoryIndex) -> Iterator[Anomaly]:
    """A commit was accepted with an epoch below the member's last answered epoch, or from a member that the group
    had fenced and that had not joined again.
    """
    beats: dict[tuple[str, str], list[Beaten]] = {}
    for event in facts.epochs:
        if isinstance(event, Beaten):
            beats.setdefault((event.group, event.member_id), []).append(event)
    found = []
    for commit in facts.offset_commits.values():
        asked = commit.asked
        if asked.txn != NO_TXN or asked.epoch < 0 or commit.ended_ms == inf:
            continue
        for beat in beats.get((asked.group, asked.member_id), ()):
            if beat.at_ms >= asked.at_ms:
                break
            is_newer = not beat.error and beat.epoch > asked.epoch
            if is_newer or (beat.error in FENCED and beat.sent_epoch == asked.epoch):
                what = f"was fenced ({beat.error})" if beat.error else f"was at epoch {beat.epoch}"
                found.append(
                    f"{asked.client} committed for {asked.group} as {asked.member_id} at epoch {asked.epoch} at "
                    f"{asked.at_ms:.0f} ms, which {what} since {beat.at_ms:.0f} ms"
                )
                break
    if found:
        yield Anomaly("stale-commit", few(found))


FENCED = ("UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "FENCED_INSTANCE_ID")


def epoch_regress(facts: HistoryIndex) -> Iterator[Anomaly]:
    """The epoch of a member went back; or a member joined at an epoch below one that the group had given before; or the
    epochs of a group went back on a coordinator, or from one coordinator to the next."""
    found = list(facts.final.regressed)
    for group, events in _groups(facts).items():
        mine: dict[str, Beaten] = {}
        told: list[Beaten] = []
        for event in events:
            if not isinstance(event, Beaten) or event.error:
                continue
            before = mine.get(event.member_id)
            if event.sent_epoch == 0:
                before = max((each for each in told if each.at_ms < event.since_ms), key=_epoch, default=None)
            if before is not None and event.epoch < before.epoch:
                found.append(
                    f"{event.client} of {group} got epoch {event.epoch} at {event.at_ms:.0f} ms; {before.client} had "
                    f"got {before.epoch} at {before.at_ms:.0f} ms"
                )
            mine[event.member_id] = event
            told.append(event)
    if found:
        yield Anomaly("epoch-regress", few(found))


def _epoch(event: Beaten) -> int:
    return event.epoch


def offset_regress(facts: HistoryIndex) -> Iterator[Anomaly]:
    """In the order of the log, the committed offset of a partition went back in a group of the consumer protocol.

    Its members begin at the committed offset and continue from there.
    """
    groups = _groups(facts)
    latest: dict[tuple[str, Place], int] = {}
    found = []
    for row in facts.final.commits:
        key = row.group, row.place
        if row.group in groups and row.offset < latest.get(key, -1):
            found.append(
                f"{row.group} had {latest[key]} for {row.place[0]}-{row.place[1]}, then {row.offset} (record "
                f"@{row.position})"
            )
        latest[key] = row.offset
    if found:
        yield Anomaly("offset-regress", few(found))


def unread_commit(facts: HistoryIndex) -> Iterator[Anomaly]:
    """At the end, no member of a group of the consumer protocol had read visible records below a committed offset."""
    visible = visible_offsets(facts)
    found = []
    for group in _groups(facts):
        read: dict[Place, set[int]] = {}
        for poll in facts.polls:
            consumer = facts.consumers.get(poll.client)
            if consumer is not None and consumer.group == group:
                read.setdefault((poll.topic, poll.partition), set()).update(poll.offsets)
        for place, committed in facts.final.groups.get(group, {}).items():
            there = visible.get((place, True), [])
            missing = [offset for offset in there if offset < committed and offset not in read.get(place, ())]
            if missing:
                found.append(f"{group} has committed {committed} for {place[0]}-{place[1]} without {few(missing)}")
    if found:
        yield Anomaly("unread-commit", few(found))


def group_mismatch(facts: HistoryIndex) -> Iterator[Anomaly]:
    """A coordinator has a group in another state than its records say."""
    if facts.final.unfaithful:
        yield Anomaly("group-mismatch", few(facts.final.unfaithful))
