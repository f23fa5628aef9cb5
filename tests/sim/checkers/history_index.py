"""An index of a history and its final state, built once for all checkers: writes, transactions, readers and commits.

A transaction counts as committed if its commit was acknowledged. It also does if its outcome is unknown and a reader of
committed data saw one of its records. Without a call of commit it must abort.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from functools import cached_property
from math import inf
from typing import Any

import msgspec

from sim.events import (
    NO_TXN,
    Aborted,
    Asking,
    Assigned,
    Beaten,
    Beginning,
    Changed,
    Committed,
    CommittedById,
    Committing,
    CommittingOffsets,
    Consuming,
    Decided,
    Deciding,
    Given,
    Initialized,
    NotStored,
    OffsetsCommitted,
    OffsetsRefused,
    OffsetsSeen,
    Place,
    Planned,
    Polled,
    ReadThrough,
    Refused,
    Renewed,
    Revoked,
    RightChanged,
    Sending,
    StepBegun,
    Stored,
)
from sim.final import Final, PartitionEnd
from sim.history import History

Rank = tuple[int, int]
"""Era of a group (see `sim.group_records`), and generation or epoch."""


class TransactionOutcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Send(msgspec.Struct, gc=False):
    """One send. `offset` -1: not acknowledged, or not reported. `is_impossible`: the record never left the client.
    `lasts`: an acknowledgement would promise that the record survives a crash. `ended_ms`: when the client learned the
    outcome; `error`: of a send that has failed."""

    sent: Sending
    partition: int = -1
    offset: int = -1
    is_acknowledged: bool = False
    has_failed: bool = False
    is_impossible: bool = False
    lasts: bool = True
    ended_ms: float = inf
    error: str = ""

    @property
    def place(self) -> Place:
        """Topic and partition; -1 while the partition is unknown."""
        return self.sent.topic, self.partition

    @property
    def is_promised(self) -> bool:
        """Whether the record is acknowledged and must survive a crash."""
        return self.is_acknowledged and self.lasts

    def __str__(self) -> str:
        at = f"@{self.offset}" if self.offset >= 0 else ""
        return f"{self.sent.value!r} of {self.sent.client} to {self.sent.topic}-{self.partition}{at}"


class ClientTransaction(msgspec.Struct):
    """One transaction, with times in ms. `was_seen`: a reader of committed data saw a record of it."""

    began: Beginning
    outcome: TransactionOutcome = TransactionOutcome.ABORTED
    committing_ms: float = inf
    ended_ms: float = inf
    writes: list[Send] = []
    polls: list[Polled] = []
    offsets: list[CommittingOffsets] = []
    was_seen: bool = False

    def __str__(self) -> str:
        return f"transaction {self.began.op} of {self.began.transactional_id} ({self.began.client})"


class OffsetCommit(msgspec.Struct):
    """A commit of a group's offsets. If it took effect, then between `asked.at_ms` and `ended_ms`."""

    asked: CommittingOffsets
    ended_ms: float = inf
    is_refused: bool = False


class ReadSession(msgspec.Struct):
    """The reads of one consumer from one partition, from its assignment to its end.

    `start`: the first position; -1: unknown. `since_ms` inf: the partition was never assigned.
    """

    client: str
    place: Place
    read_committed: bool
    start: int = -1
    since_ms: float = inf
    polls: list[Polled] = []


class Change(msgspec.Struct):
    """An administrative change. Its outcome is unknown if it has no `ended_ms` and is not refused."""

    asked: Asking
    ended_ms: float = inf
    is_refused: bool = False


class StepCommit(msgspec.Struct):
    """The commit of a step of a transaction group. `is_ours` None: the outcome is unknown."""

    asked: Deciding
    ended_ms: float = inf
    is_ours: bool | None = None


class HistoryIndex:
    """The index. All collections are in the order of the history."""

    def __init__(self, history: History, final: Final) -> None:
        self.history, self.final = history, final
        self.writes: dict[int, Send] = {}
        self.by_value: dict[str, Send] = {}
        self.txns: dict[int, ClientTransaction] = {}
        self.initialized: list[Initialized] = []
        self.consumers: dict[str, Consuming] = {}
        self.assigned: list[Assigned | Revoked] = []
        self.polls: list[Polled] = []
        self.sessions: list[ReadSession] = []
        self.unowned: list[Polled] = []
        """Polls of partitions that were not assigned to the member at that time."""
        self.offset_commits: dict[int, OffsetCommit] = {}
        self.offsets_seen: list[OffsetsSeen] = []
        self.changes: dict[int, Change] = {}
        self.planned: list[Planned] = []
        self.steps: list[StepBegun] = []
        self.decisions: dict[int, StepCommit] = {}
        self.rights: list[RightChanged] = []
        self.epochs: list[Beaten | Assigned | Revoked] = []
        """The events of members of the consumer protocol. An event of another consumer may be among them."""
        self.renewed: list[Renewed] = []
        self.given: list[Given] = []
        self.read_through: list[ReadThrough] = []
        self.committed_by_id: list[CommittedById] = []
        self._open: dict[tuple[str, Place], ReadSession] = {}
        for event in history.events:
            NOTE[type(event)](self, event)
        self.reads = list(self._all_reads())
        """All reads: place, offset, value, and whether the reader reads committed data only."""
        self._note_sights()

    # Queries of checkers

    def end_of(self, place: Place) -> PartitionEnd | None:
        return self.final.partitions.get(place)

    def cleanup_of(self, topic: str) -> str:
        declared = self.history.topics.get(topic)
        return "" if declared is None else declared.cleanup

    def partitions_of(self, topic: str) -> range:
        declared = self.history.topics.get(topic)
        return range(0 if declared is None else declared.partitions)

    def may_be_gone(self, place: Place, offset: int) -> bool:
        """Whether a record may be gone: its deletion was requested, or retention of its topic may have deleted it."""
        end = self.end_of(place)
        for change in self.changes.values():
            asked = change.asked
            if change.is_refused or asked.target != place[0]:
                continue
            if asked.change == "delete":
                return True
            if asked.change == "delete-records":
                partition, _, below = asked.detail.partition(":")
                if int(partition) == place[1] and (int(below) < 0 or offset < int(below)):
                    return True
        return self.cleanup_of(place[0]) == "delete" and end is not None and offset < _kept_from(end)

    def txn_of(self, value: str | None) -> ClientTransaction | None:
        """The transaction of a value; None for a value outside transactions."""
        write = self.by_value.get(value) if value is not None else None
        return None if write is None else self.txns.get(write.sent.txn)

    def is_read_committed(self, client: str) -> bool:
        consumer = self.consumers.get(client)
        return consumer is not None and consumer.read_committed

    @cached_property
    def mixed_groups(self) -> set[str]:
        """The groups with members of both protocols."""
        protocols: dict[str, set[str]] = {}
        for consumer in self.consumers.values():
            protocols.setdefault(consumer.group, set()).add(consumer.protocol)
        return {group for group, found in protocols.items() if len(found) > 1}

    def rank(self, event: Assigned) -> Rank | None:
        """The era and the generation in which a group gave partitions: a later one has a higher rank.

        None: not known. A group of one protocol stays in one era.
        """
        consumer = self.consumers.get(event.client)
        if consumer is None or not consumer.group or event.generation < 0:
            return None
        if consumer.group not in self.mixed_groups:
            return 0, event.generation
        era = self.final.eras.get((consumer.group, event.member_id, event.generation), 0)
        return (era, event.generation) if era > 0 else None

    # Building the index

    def _all_reads(self) -> Iterator[tuple[Place, int, str | None, bool]]:
        for poll in self.polls:
            is_committed = self.is_read_committed(poll.client)
            place = (poll.topic, poll.partition)
            for offset, value in zip(poll.offsets, poll.values, strict=True):
                yield place, offset, value, is_committed
        for place, end in self.final.partitions.items():
            for row in end.committed:
                yield place, row.offset, row.value, True
            for row in end.uncommitted:
                yield place, row.offset, row.value, False

    def _note_sights(self) -> None:
        for _, _, value, is_committed in self.reads:
            txn = self.txn_of(value) if is_committed else None
            if txn is not None:
                txn.was_seen = True
        for decision in self.decisions.values():
            together = [self.txns[txn] for txn in decision.asked.txns]
            if any(txn.was_seen and txn.outcome is not TransactionOutcome.ABORTED for txn in together):
                for txn in together:
                    txn.was_seen = True  # one decision commits all of them
        for txn in self.txns.values():
            if txn.outcome is TransactionOutcome.UNKNOWN and txn.was_seen:
                txn.outcome = TransactionOutcome.COMMITTED

    def _sending(self, event: Sending) -> None:
        lasts = event.acks == -1 or (event.acks == 1 and not self.history.has_followers)
        write = self.writes[event.op] = Send(event, partition=event.partition, lasts=lasts)
        if event.value is not None:
            self.by_value[event.value] = write
        if event.txn != NO_TXN:
            self.txns[event.txn].writes.append(write)

    def _stored(self, event: Stored) -> None:
        write = self.writes[event.op]
        write.is_acknowledged, write.ended_ms = True, event.at_ms
        write.partition, write.offset = event.partition, event.offset

    def _not_stored(self, event: NotStored) -> None:
        write = self.writes[event.op]
        write.has_failed, write.is_impossible = True, event.is_certain
        write.error, write.ended_ms = event.error, event.at_ms

    def _beginning(self, event: Beginning) -> None:
        self.txns[event.op] = ClientTransaction(event)

    def _committing(self, event: Committing) -> None:
        txn = self.txns[event.txn]
        txn.outcome, txn.committing_ms = TransactionOutcome.UNKNOWN, min(txn.committing_ms, event.at_ms)

    def _committed(self, event: Committed) -> None:
        txn = self.txns[event.txn]
        txn.outcome, txn.ended_ms = TransactionOutcome.COMMITTED, event.at_ms

    def _aborted(self, event: Aborted) -> None:
        txn = self.txns[event.txn]
        txn.outcome, txn.ended_ms = TransactionOutcome.ABORTED, event.at_ms

    def _initialized(self, event: Initialized) -> None:
        self.initialized.append(event)

    def _consuming(self, event: Consuming) -> None:
        self.consumers[event.client] = event

    def _beaten(self, event: Beaten) -> None:
        self.epochs.append(event)

    def _assigned(self, event: Assigned) -> None:
        self.assigned.append(event)
        self.epochs.append(event)
        positions = event.positions or (-1,) * len(event.places)
        for place, start in zip(event.places, positions, strict=True):
            self._open_session(event.client, place, start, event.at_ms)

    def _revoked(self, event: Revoked) -> None:
        self.assigned.append(event)
        self.epochs.append(event)
        for place in event.places:
            self._open.pop((event.client, place), None)

    def _open_session(self, client: str, place: Place, start: int, since_ms: float = inf) -> ReadSession:
        session = ReadSession(client, place, self.is_read_committed(client), start, since_ms)
        self._open[client, place] = session
        self.sessions.append(session)
        return session

    def _polled(self, event: Polled) -> None:
        self.polls.append(event)
        place = (event.topic, event.partition)
        session = self._open.get((event.client, place))
        if session is None:
            consumer = self.consumers.get(event.client)
            if consumer is not None and consumer.group:
                self.unowned.append(event)
            session = self._open_session(event.client, place, -1)
        session.polls.append(event)
        if event.txn != NO_TXN:
            self.txns[event.txn].polls.append(event)

    def _committing_offsets(self, event: CommittingOffsets) -> None:
        self.offset_commits[event.op] = OffsetCommit(event)
        if event.txn != NO_TXN:
            self.txns[event.txn].offsets.append(event)

    def _offsets_committed(self, event: OffsetsCommitted) -> None:
        self.offset_commits[event.op].ended_ms = event.at_ms

    def _offsets_refused(self, event: OffsetsRefused) -> None:
        self.offset_commits[event.op].is_refused = True

    def _offsets_seen(self, event: OffsetsSeen) -> None:
        self.offsets_seen.append(event)

    def _planned(self, event: Planned) -> None:
        self.planned.append(event)

    def _step_begun(self, event: StepBegun) -> None:
        self.steps.append(event)

    def _deciding(self, event: Deciding) -> None:
        self.decisions[event.op] = StepCommit(event)

    def _decided(self, event: Decided) -> None:
        decision = self.decisions[event.op]
        decision.ended_ms, decision.is_ours = event.at_ms, event.is_ours

    def _renewed(self, event: Renewed) -> None:
        self.renewed.append(event)

    def _given(self, event: Given) -> None:
        self.given.append(event)

    def _read_through(self, event: ReadThrough) -> None:
        self.read_through.append(event)

    def _committed_by_id(self, event: CommittedById) -> None:
        self.committed_by_id.append(event)

    def _asking(self, event: Asking) -> None:
        self.changes[event.op] = Change(event)

    def _changed(self, event: Changed) -> None:
        self.changes[event.op].ended_ms = event.at_ms

    def _refused(self, event: Refused) -> None:
        self.changes[event.op].is_refused = True

    def _right_changed(self, event: RightChanged) -> None:
        self.rights.append(event)


def _kept_from(end: PartitionEnd) -> float:
    """The offset from which both final readers got records: retention may have deleted more between the two reads."""
    return max(end.start_offset, *(rows[0].offset if rows else inf for rows in (end.committed, end.uncommitted)))


NOTE: dict[type, Any] = {
    Initialized: HistoryIndex._initialized,
    Sending: HistoryIndex._sending,
    Stored: HistoryIndex._stored,
    NotStored: HistoryIndex._not_stored,
    Beginning: HistoryIndex._beginning,
    Committing: HistoryIndex._committing,
    Committed: HistoryIndex._committed,
    Aborted: HistoryIndex._aborted,
    Consuming: HistoryIndex._consuming,
    Assigned: HistoryIndex._assigned,
    Revoked: HistoryIndex._revoked,
    Polled: HistoryIndex._polled,
    Beaten: HistoryIndex._beaten,
    CommittingOffsets: HistoryIndex._committing_offsets,
    OffsetsCommitted: HistoryIndex._offsets_committed,
    OffsetsRefused: HistoryIndex._offsets_refused,
    OffsetsSeen: HistoryIndex._offsets_seen,
    Planned: HistoryIndex._planned,
    StepBegun: HistoryIndex._step_begun,
    Deciding: HistoryIndex._deciding,
    Decided: HistoryIndex._decided,
    Renewed: HistoryIndex._renewed,
    Given: HistoryIndex._given,
    ReadThrough: HistoryIndex._read_through,
    CommittedById: HistoryIndex._committed_by_id,
    Asking: HistoryIndex._asking,
    Changed: HistoryIndex._changed,
    Refused: HistoryIndex._refused,
    RightChanged: HistoryIndex._right_changed,
}
