"""The history of a run: the actions and observations of the clients, as they recorded them. Checkers judge it.

Times are milliseconds of one clock for all clients (virtual time, or a monotonic clock for real processes). Values are
unique: each value belongs to one call of `send`.

    history = History(now_ms)
    recorder = history.recorder("shop")           # one client object, from its start to its end
    op = recorder.sending("orders", 0, value="shop-17")
    recorder.stored(op, 0, 42)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from sim.events import (
    NO_TXN,
    Aborted,
    AnyEvent,
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
    HistoryTopic,
    Initialized,
    NotStored,
    OffsetsCommitted,
    OffsetsRefused,
    OffsetsSeen,
    Pipeline,
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


class StoredHistory(msgspec.Struct):
    """A stored history: `decode(History.encode())`."""

    topics: list[HistoryTopic]
    pipelines: list[Pipeline]
    events: list[AnyEvent]


class History:
    """Events in the order in which they happened. `now_ms`: the clock. `has_followers`: partitions may have several
    replicas; an acknowledgement with acks=1 then promises only one of them.
    """

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self.now_ms = now_ms
        self.has_followers = True
        self.events: list[Any] = []
        self.topics: dict[str, HistoryTopic] = {}
        self.pipelines: list[Pipeline] = []
        self._incarnations: dict[str, int] = {}
        self._op = 0

    def recorder(self, name: str) -> Recorder:
        """A recorder for the next client object of this name."""
        number = self._incarnations[name] = self._incarnations.get(name, 0) + 1
        return Recorder(self, f"{name}#{number}")

    def new_op(self) -> int:
        """The next operation number: 1, 2, ..."""
        self._op += 1
        return self._op

    def declare(self, *topics: HistoryTopic, pipelines: Iterable[Pipeline] = ()) -> None:
        """Add the topics and pipelines of the events."""
        self.topics.update((topic.name, topic) for topic in topics)
        self.pipelines.extend(pipelines)

    def encode(self) -> bytes:
        """The history as JSON."""
        return msgspec.json.encode(StoredHistory(list(self.topics.values()), self.pipelines, self.events))

    @classmethod
    def decode(cls, *parts: bytes) -> History:
        """One history from several parts (one per process, with one clock). Raises msgspec's errors.

        Operations are renumbered so that they differ between parts.
        """
        history = cls(lambda: 0.0)
        for part in parts:
            record = msgspec.json.decode(part, type=StoredHistory)
            history.topics.update((topic.name, topic) for topic in record.topics)
            history.pipelines.extend(p for p in record.pipelines if p not in history.pipelines)
            top = history._op
            for event in record.events:
                moved = _renumbered(event, top)
                history.events.append(moved)
                history._op = max(history._op, getattr(moved, "op", 0))
        history.events.sort(key=lambda event: event.at_ms)
        return history


def _renumbered(event: Any, by: int) -> Any:
    changed: dict[str, Any] = {
        name: getattr(event, name) + by for name in ("op", "txn") if getattr(event, name, NO_TXN) != NO_TXN
    }
    if isinstance(event, Deciding):
        changed["txns"] = tuple(txn + by for txn in event.txns)
    return msgspec.structs.replace(event, **changed) if changed else event


class Recorder:
    """Records the actions of one client object. Call each method at the moment of the action."""

    def __init__(self, history: History, client: str) -> None:
        self.history, self.client = history, client
        self._add = history.events.append
        self._now = history.now_ms

    # Producers

    def initialized(
        self, transactional_id: str, *, since_ms: float, producer_id: int = -1, producer_epoch: int = -1
    ) -> None:
        self._add(Initialized(self._now(), self.client, transactional_id, since_ms, producer_id, producer_epoch))

    def sending(
        self,
        topic: str,
        partition: int = -1,
        *,
        value: str | None,
        key: str | None = None,
        txn: int = NO_TXN,
        acks: int = -1,
        idempotent: bool = True,
        made_from: str | None = None,
    ) -> int:
        """Call before `send`. Returns the operation for `stored` and `not_stored`."""
        op = self.history.new_op()
        self._add(Sending(self._now(), self.client, op, topic, partition, key, value, txn, acks, idempotent, made_from))
        return op

    def stored(self, op: int, partition: int, offset: int) -> None:
        self._add(Stored(self._now(), self.client, op, partition, offset))

    def not_stored(self, op: int, error: str, *, is_certain: bool = False) -> None:
        self._add(NotStored(self._now(), self.client, op, error, is_certain))

    # Transactions

    def beginning(self, transactional_id: str) -> int:
        """Call before `begin_transaction`. Returns the number of the transaction."""
        op = self.history.new_op()
        self._add(Beginning(self._now(), self.client, op, transactional_id))
        return op

    def committing(self, txn: int) -> None:
        self._add(Committing(self._now(), self.client, txn))

    def committed(self, txn: int) -> None:
        self._add(Committed(self._now(), self.client, txn))

    def aborted(self, txn: int) -> None:
        self._add(Aborted(self._now(), self.client, txn))

    # Transaction groups

    def planned(self, group: str, token: str, rows: Iterable[str]) -> None:
        self._add(Planned(self._now(), self.client, group, token, tuple(rows)))

    def step_begun(self, group: str, epoch: int, *, since_ms: float, decided_token: str | None) -> None:
        self._add(StepBegun(self._now(), self.client, group, epoch, since_ms, decided_token))

    def deciding(self, group: str, epoch: int, token: str, txns: Iterable[int]) -> int:
        """Call before a step is committed. Returns the operation for `decided`."""
        op = self.history.new_op()
        listed = tuple(txns)
        self._add(Deciding(self._now(), self.client, op, group, epoch, token, listed))
        for txn in listed:
            self.committing(txn)
        return op

    def decided(self, op: int, *, is_ours: bool) -> None:
        self._add(Decided(self._now(), self.client, op, is_ours))

    # Consumers

    def consuming(self, group: str = "", *, read_committed: bool, protocol: str = "classic") -> None:
        self._add(Consuming(self._now(), self.client, group, read_committed, protocol))

    def assigned(
        self, places: Iterable[Place], generation: int = -1, positions: Iterable[int] = (), member_id: str = ""
    ) -> None:
        self._add(Assigned(self._now(), self.client, _places(places), generation, tuple(positions), member_id))

    def revoked(self, places: Iterable[Place], *, lost: bool = False) -> None:
        self._add(Revoked(self._now(), self.client, _places(places), lost))

    def polled(
        self,
        place: Place,
        offsets: Iterable[int],
        values: Iterable[str | None],
        keys: Iterable[str | None] = (),
        *,
        txn: int = NO_TXN,
    ) -> None:
        """Records of one partition, as one call returned them."""
        self._add(Polled(self._now(), self.client, *place, tuple(offsets), tuple(values), tuple(keys), txn))

    def beaten(
        self,
        group: str,
        member_id: str,
        *,
        since_ms: float,
        sent_epoch: int,
        epoch: int,
        until_ms: float,
        error: str = "",
    ) -> None:
        """A heartbeat of the consumer protocol was answered."""
        self._add(Beaten(self._now(), self.client, group, member_id, since_ms, sent_epoch, epoch, until_ms, error))

    def committing_offsets(
        self,
        group: str,
        offsets: Mapping[Any, int | None],
        *,
        txn: int = NO_TXN,
        member_id: str = "",
        epoch: int = -1,
        consumer: str = "",
    ) -> int:
        """Call before the commit. Returns the operation for its outcome. In a transaction, its end is the outcome."""
        op = self.history.new_op()
        rows = _offsets(offsets)
        self._add(CommittingOffsets(self._now(), self.client, op, group, rows, txn, member_id, epoch, consumer))
        return op

    def offsets_committed(self, op: int) -> None:
        self._add(OffsetsCommitted(self._now(), self.client, op))

    def offsets_refused(self, op: int) -> None:
        self._add(OffsetsRefused(self._now(), self.client, op))

    def offsets_seen(self, group: str, offsets: Mapping[Any, int | None], *, since_ms: float) -> None:
        self._add(OffsetsSeen(self._now(), self.client, since_ms, group, _offsets(offsets)))

    # Topics that are created again

    def renewed(self, topic: str, partitions: int, *, stays: bool = False) -> None:
        self._add(Renewed(self._now(), self.client, topic, partitions, stays))

    def given(self, group: str, place: Place, offsets: Iterable[int], values: Iterable[str]) -> None:
        self._add(Given(self._now(), self.client, group, *place, tuple(offsets), tuple(values)))

    def read_through(self, group: str, topic: str, ends: Iterable[int]) -> None:
        self._add(ReadThrough(self._now(), self.client, group, topic, tuple(ends)))

    def committed_by_id(self, group: str, topic: str, offsets: Iterable[int | None]) -> None:
        self._add(CommittedById(self._now(), self.client, group, topic, tuple(offsets)))

    # Administration

    def asking(self, change: str, target: str, detail: str = "") -> int:
        op = self.history.new_op()
        self._add(Asking(self._now(), self.client, op, change, target, detail))
        return op

    def changed(self, op: int) -> None:
        self._add(Changed(self._now(), self.client, op))

    def refused(self, op: int, error: str) -> None:
        self._add(Refused(self._now(), self.client, op, error))

    def right_changed(self, host: str, what: str, name: str, stage: str) -> None:
        self._add(RightChanged(self._now(), self.client, host, what, name, stage))


def _places(places: Iterable[Place]) -> tuple[Place, ...]:
    return tuple((topic, partition) for topic, partition in places)


def _offsets(offsets: Mapping[Any, int | None]) -> tuple[tuple[str, int, int | None], ...]:
    return tuple((topic, partition, offset) for (topic, partition), offset in offsets.items())
