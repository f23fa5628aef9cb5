"""The events of a history: flat structs, each with its time.

An action that a crash may interrupt has two events: one before the call and one after its outcome. If the client never
learned the outcome, the second event is missing.
"""

from __future__ import annotations

import msgspec

Place = tuple[str, int]
"""Topic and partition."""

NO_TXN = -1


def identified(name: str, topic_id: bytes) -> str:
    """Stand for a topic in the events, where its name is not enough: another topic had the same name."""
    return f"{name}@{topic_id.hex()}"


class Event(msgspec.Struct, frozen=True, gc=False, tag=True):
    """`client`: one client object, as `name#incarnation`."""

    at_ms: float
    client: str


class Initialized(Event, frozen=True, gc=False):
    """InitProducerId was answered; sent at `since_ms`. Producer id and epoch are -1 if the client hides them."""

    transactional_id: str
    since_ms: float
    producer_id: int = -1
    producer_epoch: int = -1


class Sending(Event, frozen=True, gc=False):
    """The client is about to call `send`. `partition` -1: the client chooses. `txn`: `op` of its Beginning, or NO_TXN.

    `idempotent`: the record is stored at most once, and in order. `acks`: 0, 1 or -1. `made_from`: the value of the
    input record from which this output is made. A `value` of None (a tombstone in a compacted topic) is not unique.
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
    """The send was acknowledged. `offset` is -1 if the broker did not return it."""

    op: int
    partition: int
    offset: int


class NotStored(Event, frozen=True, gc=False):
    """The send failed. `is_certain`: the record never left the client, so that no reader may ever see it."""

    op: int
    error: str
    is_certain: bool


class Beginning(Event, frozen=True, gc=False):
    """A transaction begins; `op` identifies it. It counts as aborted unless a Committing follows."""

    op: int
    transactional_id: str


class Committing(Event, frozen=True, gc=False):
    """The client is about to call commit."""

    txn: int


class Committed(Event, frozen=True, gc=False):
    """The commit was acknowledged; TransactionWasCommitted counts as well."""

    txn: int


class Aborted(Event, frozen=True, gc=False):
    """The abort was acknowledged."""

    txn: int


class Consuming(Event, frozen=True, gc=False):
    """A consumer starts. `group`: "" for none. `read_committed`: its isolation level. `protocol`: of its group."""

    group: str
    read_committed: bool
    protocol: str = "classic"


class Assigned(Event, frozen=True, gc=False):
    """A consumer got partitions: from its group in `generation`, or (-1) by its own choice.

    `positions`: the first offset to read in each, -1 if not known. `member_id`: in the group, if it is known.
    """

    places: tuple[Place, ...]
    generation: int = -1
    positions: tuple[int, ...] = ()
    member_id: str = ""


class Revoked(Event, frozen=True, gc=False):
    """A consumer no longer reads these partitions. `lost`: other members may have read them for a while already."""

    places: tuple[Place, ...]
    lost: bool = False


class Polled(Event, frozen=True, gc=False):
    """Records of one partition that one call returned, in this order. `txn`: the transaction of the call, or NO_TXN."""

    topic: str
    partition: int
    offsets: tuple[int, ...]
    values: tuple[str | None, ...]
    keys: tuple[str | None, ...] = ()
    txn: int = NO_TXN


class Beaten(Event, frozen=True, gc=False):
    """A heartbeat of the consumer protocol was answered; sent at `since_ms` with `sent_epoch` (0: the member joins).

    `epoch`: of the member from now on. `until_ms`: the end of its session by its own clock. `error`: the name of the
    answer's error, or "".
    """

    group: str
    member_id: str
    since_ms: float
    sent_epoch: int
    epoch: int
    until_ms: float
    error: str = ""


class CommittingOffsets(Event, frozen=True, gc=False):
    """The client is about to commit offsets of a group, directly or in transaction `txn`. None deletes an offset.

    `member_id`, `epoch`: of a member of the consumer protocol. `consumer`: in a transaction, the member of the group as
    which the producer commits, if it is known.
    """

    op: int
    group: str
    offsets: tuple[tuple[str, int, int | None], ...]
    txn: int = NO_TXN
    member_id: str = ""
    epoch: int = -1
    consumer: str = ""


class OffsetsCommitted(Event, frozen=True, gc=False):
    """The offset commit `op` was acknowledged."""

    op: int


class OffsetsRefused(Event, frozen=True, gc=False):
    """The offset commit `op` was not carried out, and certainly never will be."""

    op: int


class OffsetsSeen(Event, frozen=True, gc=False):
    """The committed offsets of the group that the broker returned; asked at `since_ms`. None: no offset."""

    since_ms: float
    group: str
    offsets: tuple[tuple[str, int, int | None], ...]


class Renewed(Event, frozen=True, gc=False):
    """A topic exists under a name that several topics have one after the other. `topic`: its name and id, see
    `identified`. `stays`: no other one follows.
    """

    topic: str
    partitions: int
    stays: bool = False


class Given(Event, frozen=True, gc=False):
    """Records of one partition that one call returned, of a topic that is deleted and created again. The consumer knows
    only its name; the value of each record belongs to a Sending with its id. `group`: "" for none.
    """

    group: str
    name: str
    partition: int
    offsets: tuple[int, ...]
    values: tuple[str, ...]


class ReadThrough(Event, frozen=True, gc=False):
    """A consumer without a group, or all members of a group together, have read a topic to its end: to these offsets,
    by partition. `topic`: its name and id.
    """

    group: str
    topic: str
    ends: tuple[int, ...]


class CommittedById(Event, frozen=True, gc=False):
    """The committed offsets of a group for a topic id, by partition, at the end. None: no offset. `topic`: its name and
    id.
    """

    group: str
    topic: str
    offsets: tuple[int | None, ...]


class Planned(Event, frozen=True, gc=False):
    """The driver of a transaction group has recorded its next batch: `rows`, to be committed with `token`."""

    group: str
    token: str
    rows: tuple[str, ...]


class StepBegun(Event, frozen=True, gc=False):
    """BeginTransactionGroup was answered; sent at `since_ms`. `decided_token`: the token committed last, or None."""

    group: str
    epoch: int
    since_ms: float
    decided_token: str | None = None


class Deciding(Event, frozen=True, gc=False):
    """The driver is about to commit a step with this token and these transactions. Each has a Committing, too."""

    op: int
    group: str
    epoch: int
    token: str
    txns: tuple[int, ...]


class Decided(Event, frozen=True, gc=False):
    """The commit of the step was acknowledged. `is_ours`: this step is committed; else an earlier one was."""

    op: int
    is_ours: bool


class Asking(Event, frozen=True, gc=False):
    """The client is about to send an administrative request.

    `change`: create, delete, grow, configure, delete-records. `target`: the topic. `detail`: number of partitions,
    name=value, or partition:offset.
    """

    op: int
    change: str
    target: str
    detail: str = ""


class Changed(Event, frozen=True, gc=False):
    """The request `op` was acknowledged."""

    op: int


class Refused(Event, frozen=True, gc=False):
    """The request `op` was certainly refused."""

    op: int
    error: str


class RightChanged(Event, frozen=True, gc=False):
    """A right of the clients on `host` to the resource `name`. `what`: see `rights.RightKind`.

    `stage`: taking, taken, giving back, given back. It is denied from "taken" until "giving back", and perhaps denied
    from "taking" until "given back".
    """

    host: str
    what: str
    name: str
    stage: str


AnyEvent = (
    Initialized | Sending | Stored | NotStored | Beginning | Committing | Committed | Aborted
    | Consuming | Assigned | Revoked | Polled | Beaten
    | CommittingOffsets | OffsetsCommitted | OffsetsRefused | OffsetsSeen
    | Renewed | Given | ReadThrough | CommittedById
    | Planned | StepBegun | Deciding | Decided | Asking | Changed | Refused | RightChanged
)  # fmt: skip


class HistoryTopic(msgspec.Struct, frozen=True):
    """A topic that checkers know. `cleanup`: "" (all records stay, or not known), "compact", "delete"."""

    name: str
    partitions: int
    cleanup: str = ""


class Pipeline(msgspec.Struct, frozen=True):
    """Each record of `source` becomes exactly one record of `target`, in transactions with the offsets of `group`."""

    group: str
    source: str
    target: str
