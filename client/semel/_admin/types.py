"""What `Admin` takes and answers. Names and fields are aiokafka's where it has them; results are values."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

import msgspec
from semel_protocol.hashes import group_of

from semel.structs import BrokerMetadata, TopicPartition


class NewTopic(msgspec.Struct, frozen=True):
    """A topic to create. -1: the cluster's default. `replica_assignments`: partition -> brokers, instead of both."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignments: Mapping[int, Sequence[int]] = {}
    topic_configs: Mapping[str, str] = {}


class NewPartitions(msgspec.Struct, frozen=True):
    """How many partitions a topic shall have in all; `new_assignments`: the brokers of each new one."""

    total_count: int
    new_assignments: Sequence[Sequence[int]] | None = None


class RecordsToDelete(NamedTuple):
    """Every record below this offset; -1: all that is committed."""

    before_offset: int


class ConfigResourceType(IntEnum):
    """What has settings."""

    TOPIC = 2
    BROKER = 4


class ConfigResource(msgspec.Struct, frozen=True):
    """A topic by name, or a broker by its id; broker "" stands for all brokers.

    `configs`: for `describe_configs` the names wanted (None: all), for `alter_configs` name -> value, where None
    makes the setting follow its default again.
    """

    resource_type: ConfigResourceType
    name: str
    configs: Mapping[str, str | None] | Sequence[str] | None = None


class ConfigSource(IntEnum):
    """Where a setting's value comes from (KIP-226)."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5

    @classmethod
    def _missing_(cls, value: object) -> "ConfigSource":
        return cls.UNKNOWN  # newer brokers know more sources


class ConfigSynonym(NamedTuple):
    """The same setting on one of the levels it may be given on; the first one is in force."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(msgspec.Struct, frozen=True):
    """One setting as it stands; `value` is None when it has none, or when it is sensitive."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool = False
    is_sensitive: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT


class ConfigDescription(msgspec.Struct, frozen=True):
    """The settings of one resource by name."""

    resource_type: ConfigResourceType
    name: str
    configs: dict[str, ConfigEntry]


class ClusterDescription(msgspec.Struct, frozen=True):
    """The cluster's brokers by node id."""

    cluster_id: str | None
    controller_id: int
    brokers: dict[int, BrokerMetadata]


class BrokerStatus(msgspec.Struct, frozen=True):
    """What came of a check_brokers at a broker. `error`: why it does not answer, "" when it does.

    session_left_ms, session_timeout_ms: of its session with the cluster's store (etcd); None where brokers do not tell
    (other than semel's) or have no store in common.
    """

    error: str = ""
    session_left_ms: int | None = None
    session_timeout_ms: int | None = None

    @property
    def answers(self) -> bool:
        return not self.error

    @property
    def is_store_unreachable(self) -> bool:
        """The store does not answer this broker: a session is renewed three times in its timeout."""
        if self.session_left_ms is None or self.session_timeout_ms is None:
            return False
        return self.session_left_ms < self.session_timeout_ms / 2


class PartitionReassignment(msgspec.Struct, frozen=True):
    """A move that is under way: all replicas while it lasts, and which of them are new or will go."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas that there will be."""
        return tuple(broker for broker in self.replicas if broker not in self.removing_replicas)


class ConsumerGroupListing(NamedTuple):
    """A group in a listing; `protocol_type` is "" for one that only stores offsets."""

    group_id: str
    protocol_type: str


class MemberDescription(msgspec.Struct, frozen=True):
    """A member of a group. `subscription` and `assignment` are empty for other protocols than "consumer"."""

    member_id: str
    client_id: str
    client_host: str
    group_instance_id: str | None = None
    subscription: tuple[str, ...] = ()
    assignment: tuple[TopicPartition, ...] = ()


class ConsumerGroupDescription(msgspec.Struct, frozen=True):
    """A group. `state`: PreparingRebalance, CompletingRebalance, Stable, Empty, or Dead when there is none."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[MemberDescription, ...]


class TransactionListing(NamedTuple):
    """A transactional id in a listing; `coordinator` is the broker that listed it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""States of a transaction that still holds back read_committed readers."""


class FenceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the fence ledger: a producer epoch was taken away from whoever had it.

    reason: a word such as "new_instance" or "timed_out"; text: the whole line as a sentence. by: who did it, in words.
    note: what there was to say beyond that. New id and epoch are -1 when the transactional id expired.
    """

    at_ms: int
    reason: str
    old_producer_id: int
    old_epoch: int
    new_producer_id: int
    new_epoch: int
    by: str = ""
    note: str = ""
    text: str = ""


def client_text(client_id: str, host: str) -> str:
    """A client as people call it; "" when nothing is known of it."""
    if not client_id:
        return host
    return f"client {client_id!r} at {host or 'an unknown host'}"


class TransactionDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A transactional id as its coordinator knows it.

    state: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, Dead or PrepareEpochFence.
    start_time_ms: None before the first transaction. owner: the client that initialised the producer, in words.
    last_update_time_ms: of the last change of state. fences: who lost an epoch to whom, the latest last. group_epoch:
    the step of its transaction group that it was initialised in, -1 outside of one. The last four are semel's own;
    other brokers leave them empty.
    """

    transactional_id: str
    state: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    partitions: tuple[TopicPartition, ...] = ()
    owner: str = ""
    last_update_time_ms: int | None = None
    fences: tuple[FenceRecord, ...] = ()
    group_epoch: int = -1

    @property
    def is_open(self) -> bool:
        """Whether it still holds back read_committed readers."""
        return self.state in OPEN_STATES

    @property
    def transaction_group(self) -> str:
        """The group that its transactions commit with; "" for an ordinary id."""
        return group_of(self.transactional_id) if self.group_epoch >= 0 else ""

    @property
    def expires_at_ms(self) -> int | None:
        """When the coordinator will abort it: only an ongoing one is aborted."""
        if self.state != "Ongoing" or self.start_time_ms is None:
            return None
        return self.start_time_ms + self.timeout_ms


class TransactionGroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a transaction group. group_epoch: the step that it was initialised in; start_time_ms: None before
    the first transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_epoch: int
    state: str
    start_time_ms: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether it still holds back read_committed readers."""
        return self.state in OPEN_STATES


class TransactionGroupDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction group as its coordinator knows it.

    epoch: its steps so far; state of the last one: Open, Committed or Aborted. owner, client: who began it, in its own
    words and as its connection is known. decided_token, decided_epoch: the last step that was committed; None and -1 if
    none was. note: how the last step ended, where that was not its driver's doing. Times in ms since 1970.
    """

    name: str
    epoch: int
    state: str
    coordinator: int
    owner: str = ""
    client: str = ""
    timeout_ms: int
    began_ms: int
    last_update_time_ms: int
    decided_token: str | None = None
    decided_epoch: int = -1
    note: str = ""
    members: tuple[TransactionGroupMember, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether its last step is not decided."""
        return self.state == "Open"

    @property
    def open_since_ms(self) -> int | None:
        """Since when one of its transactions has been open; None if none is."""
        starts = [each.start_time_ms for each in self.members if each.is_open and each.start_time_ms is not None]
        return min(starts, default=None)

    def is_overdue(self, now_ms: int) -> bool:
        """Whether its step has had something open for longer than its timeout: its coordinator should have ended it."""
        since_ms = self.open_since_ms
        return self.is_open and since_ms is not None and now_ms > since_ms + self.timeout_ms


class ProducerState(msgspec.Struct, frozen=True, kw_only=True):
    """What a partition knows of an idempotent or transactional producer; -1 for what it does not know.

    current_txn_start_offset: first record of the transaction that it has open here, None without one.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int = -1
    last_timestamp: int = -1
    coordinator_epoch: int = -1
    current_txn_start_offset: int | None = None


class FencedProducer(NamedTuple):
    """What fencing left behind: the next producer of the transactional id has a higher epoch still."""

    producer_id: int
    producer_epoch: int
