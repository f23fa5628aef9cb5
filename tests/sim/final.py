"""The final state of a run, when all faults are over and all work is done. Checkers judge it with the history.

Two new readers, one of each isolation level, read each partition from its first offset. Group offsets and topics are
asked for. If the broker's memory is accessible, the batches of its logs and the decisions of its coordinator are added.
Checkers that need these find nothing without them.
"""

from __future__ import annotations

import msgspec
from semel_protocol.schema import ZERO_UUID

from sim.events import Place


class ReadRecord(msgspec.Struct, frozen=True, gc=False):
    """One record as a reader got it."""

    offset: int
    key: str | None
    value: str | None


class LogBatch(msgspec.Struct, frozen=True, gc=False):
    """One batch of a log, without its records. `marker`: "commit" or "abort" for a control batch, else ""."""

    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    is_transactional: bool
    marker: str = ""
    coordinator_epoch: int = -1


class PartitionEnd(msgspec.Struct, kw_only=True):
    """One partition. `committed`, `uncommitted`: the records of each reader. `batches`: of the leader, if known."""

    start_offset: int = 0
    high_watermark: int = 0
    last_stable_offset: int = 0
    committed: list[ReadRecord] = []
    uncommitted: list[ReadRecord] = []
    batches: list[LogBatch] | None = None


class CoordinatorDecision(msgspec.Struct, frozen=True):
    """One record of `__transaction_state`, in the order of the log. `status`: Kafka's name, such as "PrepareCommit"."""

    transactional_id: str
    status: str
    producer_id: int
    producer_epoch: int
    places: tuple[Place, ...]


class StoredRecord(msgspec.Struct, frozen=True, gc=False):
    """One record in a log. `payload`: must be equal on all replicas. `is_bare`: compaction may remove it without loss:
    a tombstone, a marker, or a record of an aborted transaction. The last two have no key.
    """

    offset: int
    key: bytes | None
    payload: bytes
    is_bare: bool = False


class ReplicaLog(msgspec.Struct, kw_only=True):
    """The log of a partition on one broker, with the state that this broker derived from it.

    `batches`: base offset and bytes of each. If compaction removes single records, each log at its own time, `records`
    replace them. `producers`: (id, epoch, last sequence, last offset, coordinator epoch, first offset of its open
    transaction). `may_have_expired`: producers may be missing because their state has expired. `aborted`: (producer id,
    first offset, last offset). `groups`: committed offsets, by group, topic and partition.
    """

    broker: str
    is_leader: bool = False
    start_offset: int = 0
    end_offset: int = 0
    high_watermark: int = 0
    last_stable_offset: int = 0
    batches: list[tuple[int, bytes]] = []
    records: list[StoredRecord] | None = None
    producers: list[tuple[int, int, int, int, int, int]] = []
    may_have_expired: bool = False
    aborted: list[tuple[int, int, int]] = []
    groups: dict[str, int] = {}


class Commit(msgspec.Struct, frozen=True, gc=False):
    """One committed offset in `__consumer_offsets`. `position`: of its record. `topic_id`: zeros if it has none."""

    group: str
    place: Place
    offset: int
    position: int
    topic_id: bytes = ZERO_UUID


GroupGeneration = tuple[str, str, int]
"""Group, member id, and one of its generations, or epochs."""


class StoreWrite(msgspec.Struct, frozen=True, gc=False):
    """A write of a key in the store at a revision; `value` None: the key was removed."""

    revision: int
    key: str
    value: bytes | None


class Final(msgspec.Struct, kw_only=True):
    """`groups`: committed offsets. `configs`: settings of topics that were altered. `decisions`: None if not known.
    `replicas`: of partitions on several brokers, also of internal topics. `store`: all writes to the brokers' store.
    `uncommitted`: the findings of `Commitment`. `commits`: the committed offsets in the order of the log. `regressed`,
    `unfaithful`: the findings of `Coordinators` and of its function of this name. `eras`: see `group_records`.
    `log_starts`: the highest of each partition at any time of the run, if its topic has retention. `keeps_deletions`:
    whether an acknowledged deletion of records must last: not among several brokers, where a new leader may not
    know it, nor if the file of the log starts was damaged, or the log itself is not synced.

    `undrained`: clients and other parts that did not finish although all faults were over, with the reason.
    """

    partitions: dict[Place, PartitionEnd] = {}
    groups: dict[str, dict[Place, int]] = {}
    topics: dict[str, int] = {}
    configs: dict[str, dict[str, str]] = {}
    decisions: list[CoordinatorDecision] | None = None
    replicas: dict[Place, list[ReplicaLog]] = {}
    store: list[StoreWrite] = []
    uncommitted: list[str] = []
    commits: list[Commit] = []
    eras: dict[GroupGeneration, int] = {}
    log_starts: dict[Place, int] = {}
    keeps_deletions: bool = False
    regressed: list[str] = []
    unfaithful: list[str] = []
    undrained: list[str] = []
