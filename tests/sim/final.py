"""What is there at the end, when everything is healed and nothing happens any more: the other thing checkers judge.

Two fresh readers start at the first offset of every partition, one of each isolation level; the groups' offsets and
the topics are asked for. Where the broker can be looked into, the batches of its logs and its coordinator's decisions
are added; a checker that needs them is silent without.
"""

from __future__ import annotations

import msgspec

from sim.events import Place


class Row(msgspec.Struct, frozen=True, gc=False):
    """One record as a fresh reader got it."""

    offset: int
    key: str | None
    value: str | None


class Batch(msgspec.Struct, frozen=True, gc=False):
    """One batch of a log, without its records. `marker`: "commit" or "abort" of a control batch, else ""."""

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
    """One partition. `committed`, `uncommitted`: what the readers got. `batches`: of the leader's log, if known."""

    start_offset: int = 0
    high_watermark: int = 0
    last_stable_offset: int = 0
    committed: list[Row] = []
    uncommitted: list[Row] = []
    batches: list[Batch] | None = None


class Decision(msgspec.Struct, frozen=True):
    """One record of `__transaction_state`, in its log's order. `status`: in Kafka's words, such as "PrepareCommit"."""

    transactional_id: str
    status: str
    producer_id: int
    producer_epoch: int
    places: tuple[Place, ...]


class Stored(msgspec.Struct, frozen=True, gc=False):
    """One record as a log has it. `payload`: what must be the same in every replica. `is_bare`: nobody misses it once
    its log is compacted, as a tombstone, a marker, or what an aborted transaction wrote; the last two have no key."""

    offset: int
    key: bytes | None
    payload: bytes
    is_bare: bool = False


class Replica(msgspec.Struct, kw_only=True):
    """A partition's log on one broker, with what that broker has concluded from it.

    `batches`: base offset and bytes of each; `records` in their place where logs forget one by one, each in its time.
    `producers`: (id, epoch, last sequence, last offset, coordinator epoch, first offset of its open transaction).
    `aborted`: (producer id, first offset, last offset). `groups`: committed offsets, by group, topic and partition.
    """

    broker: str
    is_leader: bool = False
    start_offset: int = 0
    end_offset: int = 0
    high_watermark: int = 0
    last_stable_offset: int = 0
    batches: list[tuple[int, bytes]] = []
    records: list[Stored] | None = None
    producers: list[tuple[int, int, int, int, int, int]] = []
    aborted: list[tuple[int, int, int]] = []
    groups: dict[str, int] = {}


class Told(msgspec.Struct, frozen=True, gc=False):
    """A key of the store that was written at a revision, or removed: without a value."""

    revision: int
    key: str
    value: bytes | None


class Final(msgspec.Struct, kw_only=True):
    """`groups`: committed offsets. `configs`: settings of topics that were altered. `decisions`: None for not known.
    `replicas`: of partitions that several brokers have, those of internal topics too. `store`: all that was ever
    written to the store that they share. `uncommitted`: what `Commitment` has found meanwhile.

    `undrained`: who could not finish although all faults were over, with what it waits for.
    """

    partitions: dict[Place, PartitionEnd] = {}
    groups: dict[str, dict[Place, int]] = {}
    topics: dict[str, int] = {}
    configs: dict[str, dict[str, str]] = {}
    decisions: list[Decision] | None = None
    replicas: dict[Place, list[Replica]] = {}
    store: list[Told] = []
    uncommitted: list[str] = []
    undrained: list[str] = []
