"""What a history is made of: flat events, each with its time, and what they are about.

What may end in a crash is two events, one before the call and one after its outcome: an outcome that nobody heard is an
event that is missing.
"""

from __future__ import annotations

import msgspec

Place = tuple[str, int]
"""Topic and partition."""

NO_TXN = -1


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
    """A topic that checkers know of. `cleanup`: "" (all stays), "compact", "delete"; "" also when nobody says."""

    name: str
    partitions: int
    cleanup: str = ""


class Pipeline(msgspec.Struct, frozen=True):
    """Every record of `source` becomes exactly one of `target`, in the transactions of a group."""

    group: str
    source: str
    target: str
