"""What clients did and saw, as flat events with times: the one thing that checkers judge.

Times are milliseconds of one clock for all clients (the simulator's virtual one; a monotonic one for real processes).
What may end in a crash is two events, one before the call and one after its outcome: an outcome that nobody heard is an
event that is missing. Values are unique: one value is one call of `send`.

    history = History(now_ms)
    witness = history.witness("shop")           # one client object, from its start to its end
    op = witness.sending("orders", 0, value="shop-17")
    witness.stored(op, 0, 42)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

Place = tuple[str, int]
"""Topic and partition."""

NO_TXN = -1
DAY_MS = 86_400_000.0


class Event(msgspec.Struct, frozen=True, gc=False, tag=True):
    """`client`: one client object, `name#incarnation`."""

    at_ms: float
    client: str


class Initialized(Event, frozen=True, gc=False):
    """InitProducerId was answered, asked `since_ms`. Producer id and epoch -1 where the client does not tell."""

    transactional_id: str
    since_ms: float
    producer_id: int = -1
    producer_epoch: int = -1


class Sending(Event, frozen=True, gc=False):
    """`send` is about to be called. `partition` -1: the client chooses. `txn`: `op` of its Beginning, or NO_TXN.

    `idempotent`: stored at most once, and in order. `acks`: 0, 1 or -1, what an acknowledgement of it promises.
    `made_from`: the value of the input whose output it is. A `value` of None (of a compacted topic) is not unique.
    """

    op: int
    topic: str
    partition: int
    key: str | None
    value: str | None
    txn: int = NO_TXN
    acks: int = -1
    idempotent: bool = True
    made_from: str | None = None


class Stored(Event, frozen=True, gc=False):
    """The send was acknowledged; `offset` -1 when the broker did not tell it."""

    op: int
    partition: int
    offset: int


class NotStored(Event, frozen=True, gc=False):
    """The send failed. `is_certain`: the record never left the client, so that nobody may ever read it."""

    op: int
    error: str
    is_certain: bool


class Beginning(Event, frozen=True, gc=False):
    """A transaction begins; its `op` is its name. It counts as aborted until a Committing says otherwise."""

    op: int
    transactional_id: str


class Committing(Event, frozen=True, gc=False):
    """Commit is about to be called."""

    txn: int


class Committed(Event, frozen=True, gc=False):
    """Its commit was acknowledged (TransactionWasCommitted is one way to hear of it)."""

    txn: int


class Aborted(Event, frozen=True, gc=False):
    """Its abort was acknowledged."""

    txn: int


class Consuming(Event, frozen=True, gc=False):
    """A consumer starts. Its `group` ("": none), and whether it reads committed records only."""

    group: str
    read_committed: bool


class Assigned(Event, frozen=True, gc=False):
    """Partitions were given to a consumer, by its group in `generation` or (-1) by itself.

    `position`: where each of them starts, -1 for not known.
    """

    places: tuple[Place, ...]
    generation: int = -1
    positions: tuple[int, ...] = ()


class Revoked(Event, frozen=True, gc=False):
    """Partitions are no longer read by this consumer. `lost`: others may have read them for a while already."""

    places: tuple[Place, ...]
    lost: bool = False


class Polled(Event, frozen=True, gc=False):
    """Records of one partition that one call handed out, in its order. `txn`: within which transaction, or NO_TXN."""

    topic: str
    partition: int
    offsets: tuple[int, ...]
    values: tuple[str | None, ...]
    keys: tuple[str | None, ...] = ()
    txn: int = NO_TXN


class CommittingOffsets(Event, frozen=True, gc=False):
    """Offsets of a group are about to be committed, by themselves or in a transaction; None: to be deleted."""

    op: int
    group: str
    offsets: tuple[tuple[str, int, int | None], ...]
    txn: int = NO_TXN


class OffsetsCommitted(Event, frozen=True, gc=False):
    """That was acknowledged."""

    op: int


class OffsetsRefused(Event, frozen=True, gc=False):
    """That has certainly not happened, and will not."""

    op: int


class OffsetsSeen(Event, frozen=True, gc=False):
    """The group's committed offsets as the broker told them, asked `since_ms`; None: it has none."""

    since_ms: float
    group: str
    offsets: tuple[tuple[str, int, int | None], ...]


class Planned(Event, frozen=True, gc=False):
    """The driver of a transaction group has written down what it will do next: `rows`, to be committed as `token`."""

    group: str
    token: str
    rows: tuple[str, ...]


class StepBegun(Event, frozen=True, gc=False):
    """BeginTransactionGroup was answered, asked `since_ms`. `decided_token`: what was committed last, if anything."""

    group: str
    epoch: int
    since_ms: float
    decided_token: str | None = None


class Deciding(Event, frozen=True, gc=False):
    """A step is about to be committed, as this token, with these transactions. For each there is a Committing, too."""

    op: int
    group: str
    epoch: int
    token: str
    txns: tuple[int, ...]


class Decided(Event, frozen=True, gc=False):
    """That was acknowledged. `is_ours`: it is this step that is committed; else an earlier one was, as this token."""

    op: int
    is_ours: bool


class Asking(Event, frozen=True, gc=False):
    """An administrative change is about to be asked for.

    `change`: create, delete, grow, configure, delete-records. `target`: the topic. `detail`: partitions as text,
    name=value, or partition:offset.
    """

    op: int
    change: str
    target: str
    detail: str = ""


class Changed(Event, frozen=True, gc=False):
    """It was acknowledged."""

    op: int


class Refused(Event, frozen=True, gc=False):
    """It was refused, with an answer that leaves no doubt."""

    op: int
    error: str


AnyEvent = (
    Initialized | Sending | Stored | NotStored | Beginning | Committing | Committed | Aborted
    | Consuming | Assigned | Revoked | Polled | CommittingOffsets | OffsetsCommitted | OffsetsRefused | OffsetsSeen
    | Planned | StepBegun | Deciding | Decided | Asking | Changed | Refused
)  # fmt: skip


class Topic(msgspec.Struct, frozen=True):
    """A topic that checkers know of. `cleanup`: "" (all stays), "compact", "delete"; "" also when nobody says.

    `tombstones_ms`: for how long compaction keeps a tombstone (delete.retention.ms).
    """

    name: str
    partitions: int
    cleanup: str = ""
    tombstones_ms: float = DAY_MS


class Pipeline(msgspec.Struct, frozen=True):
    """Every record of `source` becomes exactly one of `target`, in the transactions of a group."""

    group: str
    source: str
    target: str


class Record(msgspec.Struct):
    """A history as it is kept: `decode(History.encode())`."""

    topics: list[Topic]
    pipelines: list[Pipeline]
    events: list[AnyEvent]


class History:
    """Events in the order in which they happened. `now_ms` gives their times."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self.now_ms = now_ms
        self.events: list[Any] = []
        self.topics: dict[str, Topic] = {}
        self.pipelines: list[Pipeline] = []
        self._incarnations: dict[str, int] = {}
        self._op = 0

    def witness(self, name: str) -> Witness:
        """For the next client object of this name."""
        number = self._incarnations[name] = self._incarnations.get(name, 0) + 1
        return Witness(self, f"{name}#{number}")

    def new_op(self) -> int:
        """The name of an operation: 1, 2, ..."""
        self._op += 1
        return self._op

    def declare(self, *topics: Topic, pipelines: Iterable[Pipeline] = ()) -> None:
        """Says what the events are about."""
        self.topics.update((topic.name, topic) for topic in topics)
        self.pipelines.extend(pipelines)

    def encode(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode(Record(list(self.topics.values()), self.pipelines, self.events))

    @classmethod
    def decode(cls, *parts: bytes) -> History:
        """One history of several that were kept apart (one per process, with one clock). Raises msgspec's errors.

        Operations of different parts are told apart by their client.
        """
        history = cls(lambda: 0.0)
        for part in parts:
            record = msgspec.json.decode(part, type=Record)
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


class Witness:
    """Writes down what one client object does. Each method is to be called at the moment that it speaks of."""

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
        """Before `send`; the operation's name is what `stored` and `not_stored` want."""
        op = self.history.new_op()
        self._add(Sending(self._now(), self.client, op, topic, partition, key, value, txn, acks, idempotent, made_from))
        return op

    def stored(self, op: int, partition: int, offset: int) -> None:
        self._add(Stored(self._now(), self.client, op, partition, offset))

    def not_stored(self, op: int, error: str, *, is_certain: bool = False) -> None:
        self._add(NotStored(self._now(), self.client, op, error, is_certain))

    # Transactions

    def beginning(self, transactional_id: str) -> int:
        """Before `begin_transaction`; gives the transaction's name."""
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
        """Before a step is committed; its name is what `decided` wants."""
        op = self.history.new_op()
        listed = tuple(txns)
        self._add(Deciding(self._now(), self.client, op, group, epoch, token, listed))
        for txn in listed:
            self.committing(txn)
        return op

    def decided(self, op: int, *, is_ours: bool) -> None:
        self._add(Decided(self._now(), self.client, op, is_ours))

    # Consumers

    def consuming(self, group: str = "", *, read_committed: bool) -> None:
        self._add(Consuming(self._now(), self.client, group, read_committed))

    def assigned(self, places: Iterable[Place], generation: int = -1, positions: Iterable[int] = ()) -> None:
        self._add(Assigned(self._now(), self.client, _places(places), generation, tuple(positions)))

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
        """Records of one partition, as one call handed them out."""
        self._add(Polled(self._now(), self.client, *place, tuple(offsets), tuple(values), tuple(keys), txn))

    def committing_offsets(self, group: str, offsets: Mapping[Any, int | None], *, txn: int = NO_TXN) -> int:
        """Before the commit; its name is what the outcome wants. In a transaction its end is the outcome."""
        op = self.history.new_op()
        self._add(CommittingOffsets(self._now(), self.client, op, group, _offsets(offsets), txn))
        return op

    def offsets_committed(self, op: int) -> None:
        self._add(OffsetsCommitted(self._now(), self.client, op))

    def offsets_refused(self, op: int) -> None:
        self._add(OffsetsRefused(self._now(), self.client, op))

    def offsets_seen(self, group: str, offsets: Mapping[Any, int | None], *, since_ms: float) -> None:
        self._add(OffsetsSeen(self._now(), self.client, since_ms, group, _offsets(offsets)))

    # Administration

    def asking(self, change: str, target: str, detail: str = "") -> int:
        op = self.history.new_op()
        self._add(Asking(self._now(), self.client, op, change, target, detail))
        return op

    def changed(self, op: int) -> None:
        self._add(Changed(self._now(), self.client, op))

    def refused(self, op: int, error: str) -> None:
        self._add(Refused(self._now(), self.client, op, error))


def _places(places: Iterable[Place]) -> tuple[Place, ...]:
    return tuple((topic, partition) for topic, partition in places)


def _offsets(offsets: Mapping[Any, int | None]) -> tuple[tuple[str, int, int | None], ...]:
    return tuple((topic, partition, offset) for (topic, partition), offset in offsets.items())
