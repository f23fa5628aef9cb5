"""The arguments and results of `Admin`. Names and fields are aiokafka's where it has them."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

import msgspec
from semel_protocol.hashes import group_of
from semel_protocol.scram import ITERATIONS_MIN, ScramMechanism

from semel.structs import BrokerMetadata, TopicPartition


class NewTopic(msgspec.Struct, frozen=True):
    """A topic to create.

    num_partitions, replication_factor: -1 is the cluster's default.
    replica_assignments: partition -> node ids, instead of both. topic_configs: setting -> value.
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignments: Mapping[int, Sequence[int]] | None = None
    topic_configs: Mapping[str, str] | None = None


class NewPartitions(msgspec.Struct, frozen=True):
    """The total number of partitions of a topic. new_assignments: the node ids of each new partition."""

    total_count: int
    new_assignments: Sequence[Sequence[int]] | None = None


class RecordsToDelete(NamedTuple):
    """Delete every record below this offset; -1: all records below the high watermark."""

    before_offset: int


class ScramCredentialInfo(NamedTuple):
    """A mechanism of SCRAM, and the iterations of its hash: 4,096 to 16,384."""

    mechanism: ScramMechanism
    iterations: int = ITERATIONS_MIN


class UserScramCredentialsDescription(NamedTuple):
    """A user and its credentials, without their secrets."""

    user: str
    scram_credential_infos: tuple[ScramCredentialInfo, ...]


class UserScramCredentialUpsertion(msgspec.Struct, frozen=True):
    """Give a user this password, for one mechanism. salt: None takes a random one."""

    user: str
    scram_credential_info: ScramCredentialInfo
    password: str | bytes
    salt: bytes | None = None

    def __repr__(self) -> str:
        return f"<UserScramCredentialUpsertion of {self.user}>"  # the password stays out of logs


class UserScramCredentialDeletion(NamedTuple):
    """Take a user's credential for one mechanism. A user without credentials does not exist."""

    user: str
    mechanism: ScramMechanism


class ConfigResourceType(IntEnum):
    """The kinds of resources with settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(msgspec.Struct, frozen=True):
    """A topic by name, a broker by its id, or a subscription to metrics of clients by name. Broker "": all brokers.

    configs: for `describe_configs` the wanted names (None: all); for `alter_configs` name -> value, where None restores
    the default.
    """

    resource_type: ConfigResourceType
    name: str
    configs: Mapping[str, str | None] | Sequence[str] | None = None


class ConfigSource(IntEnum):
    """Where the value of a setting comes from (KIP-226)."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    CLIENT_METRICS = 7

    @classmethod
    def _missing_(cls, value: object) -> "ConfigSource":
        return cls.UNKNOWN  # newer brokers have more sources


class ConfigSynonym(NamedTuple):
    """The setting on one of the levels where it may be set. The first synonym is effective."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(msgspec.Struct, frozen=True):
    """One setting. value: None without a value, or when it is sensitive."""

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
    """The settings of one resource, by name."""

    resource_type: ConfigResourceType
    name: str
    configs: dict[str, ConfigEntry]


class ClusterDescription(msgspec.Struct, frozen=True):
    """The cluster's brokers by node id."""

    cluster_id: str | None
    controller_id: int
    brokers: dict[int, BrokerMetadata]


class ReplicaSize(msgspec.Struct, frozen=True):
    """A replica in a data directory. offset_lag: the offsets that it lacks up to its leader's high watermark.

    is_future: it is being moved into this directory from another one of the broker (KIP-113).
    """

    size_bytes: int
    offset_lag: int = 0
    is_future: bool = False


class LogDirDescription(msgspec.Struct, frozen=True):
    """A data directory of a broker. total_bytes, usable_bytes: of its file system; None when the broker does not say it
    (before KIP-827; semel's).
    """

    path: str
    replicas: dict[TopicPartition, ReplicaSize]
    total_bytes: int | None = None
    usable_bytes: int | None = None


class BrokerStatus(msgspec.Struct, frozen=True):
    """The result of `Admin.check_brokers` for one broker. error: why it does not answer, "" when it does.

    session_left_ms, session_timeout_ms: of its session with the cluster's store (etcd). None when the broker does not
    send them (other than semel's), or has no shared store.

    disk_hangs_ms: how long its disk has been hanging, so that it refuses writes. None when it does not hang, or the
    broker does not send it. disk_path: the data directory on that disk, "" without Describe on the cluster.
    """

    error: str = ""
    session_left_ms: int | None = None
    session_timeout_ms: int | None = None
    disk_hangs_ms: int | None = None
    disk_path: str = ""

    @property
    def answers(self) -> bool:
        return not self.error

    @property
    def is_store_unreachable(self) -> bool:
        """Whether the store does not answer this broker. A session is renewed three times within its timeout."""
        if self.session_left_ms is None or self.session_timeout_ms is None:
            return False
        return self.session_left_ms < self.session_timeout_ms / 2


class PartitionReassignment(msgspec.Struct, frozen=True):
    """A reassignment in progress: all current replicas, and those that are added or will be removed."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(broker for broker in self.replicas if broker not in self.removing_replicas)


class ConsumerGroupListing(NamedTuple):
    """A group in a listing. protocol_type: "" for a group that only stores offsets.

    state: "" from brokers before Kafka 2.6. group_type: the protocol of the group: "classic", "consumer" (KIP-848), or
    another one of newer brokers. Brokers that do not send it have classic groups.
    """

    group_id: str
    protocol_type: str
    state: str = ""
    group_type: str = "classic"


GROUP_STATES = (
    "Stable",
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Dead",
)
"""The states of classic groups and of groups of the consumer protocol, as brokers write them."""

LEFT_STATIC = -2
"""The member epoch of a static member that has left and may return within its session timeout (KIP-848)."""


class MemberDescription(msgspec.Struct, frozen=True):
    """A member of a group. subscription, assignment: empty for other protocol types than "consumer".

    The fields after them are of groups of the consumer protocol (KIP-848), and None in classic groups:
    pattern: the regular expression that it subscribes to; its topics are known to the coordinator alone.
    member_epoch: the epoch of its assignment; LEFT_STATIC while a static member is away.
    assignment: what it has and may keep. Partitions that it has yet to give up are not in it once the coordinator has
    asked for them. target_assignment: what it will have.
    member_type: "classic" or "consumer": the protocol that the member itself uses. None where the broker does not say.

    silent_ms: since its last heartbeat, in groups of both protocols; None where the broker does not say, as of Apache
    Kafka.
    """

    member_id: str
    client_id: str
    client_host: str
    group_instance_id: str | None = None
    subscription: tuple[str, ...] = ()
    assignment: tuple[TopicPartition, ...] = ()
    rack_id: str | None = None
    pattern: str | None = None
    member_epoch: int | None = None
    target_assignment: tuple[TopicPartition, ...] | None = None
    member_type: str | None = None
    silent_ms: int | None = None

    @property
    def name(self) -> str:
        """The instance id of a static member, or the member id."""
        return self.group_instance_id or self.member_id

    @property
    def is_away(self) -> bool:
        """Whether it is a static member that has left and whose partitions wait for it."""
        return self.member_epoch == LEFT_STATIC


class ConsumerGroupDescription(msgspec.Struct, frozen=True):
    """A group. protocol: the assignor. coordinator: a node id.

    state: Empty, Stable, or Dead when the group does not exist. A classic group that rebalances is PreparingRebalance
    or CompletingRebalance. A group of the consumer protocol (KIP-848) is Assigning while its target assignment is older
    than its epoch, and Reconciling until each member has its target assignment.
    group_type: "classic", "consumer", or "" when the group does not exist.
    group_epoch, assignment_epoch: of the members and their subscriptions, and of the target assignment made for them.
    None in classic groups.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[MemberDescription, ...]
    group_type: str = "classic"
    group_epoch: int | None = None
    assignment_epoch: int | None = None


class TransactionListing(NamedTuple):
    """A transactional id in a listing. coordinator: the broker that listed it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""States of a transaction that holds back read_committed consumers."""


class FenceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the fence ledger: a producer lost its epoch.

    reason: a word such as "new_instance" or "timed_out". text: the whole entry as a sentence.
    by: the client that caused it. note: further details, "" without any.
    new_producer_id, new_epoch: -1 when the transactional id expired.
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
    """A client for error messages and listings; "" when nothing is known of it."""
    if not client_id:
        return host
    return f"client {client_id!r} at {host or 'an unknown host'}"


class TransactionDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A transactional id as its coordinator knows it.

    state: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, Dead or PrepareEpochFence.
    start_time_ms: None before the first transaction.
    owner: the client that initialised the producer.
    last_update_time_ms: the time of the last change of state.
    fences: the fence ledger, the latest entry last.
    group_epoch: the step of its transaction group that it was initialised in, -1 outside of one.
    The last four are semel's own; other brokers leave them empty, and `has_ledger` is False.
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
        """Whether it holds back read_committed consumers."""
        return self.state in OPEN_STATES

    @property
    def has_ledger(self) -> bool:
        """Whether the coordinator keeps a fence ledger, which semel's does. Only then are owner and fences known."""
        return self.last_update_time_ms is not None

    @property
    def transaction_group(self) -> str:
        """The transaction group that it belongs to; "" for an ordinary id."""
        return group_of(self.transactional_id) if self.group_epoch >= 0 else ""

    @property
    def expires_at_ms(self) -> int | None:
        """The time when the coordinator will abort it. Only an ongoing transaction expires."""
        if self.state != "Ongoing" or self.start_time_ms is None:
            return None
        return self.start_time_ms + self.timeout_ms


class TransactionGroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a transaction group.

    group_epoch: the step in which it was initialised. start_time_ms: None before the first transaction.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_epoch: int
    state: str
    start_time_ms: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether it holds back read_committed consumers."""
        return self.state in OPEN_STATES


class TransactionGroupDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction group as its coordinator knows it. Times are in ms since the epoch.

    epoch: the number of its last step. state: of that step: Open, Committed or Aborted.
    owner: the text that the driver gave. client: the driver's client id and host.
    decided_token, decided_epoch: of the last committed step; None and -1 without one.
    note: why the last step ended, if its driver did not end it.
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
        """The start of its oldest open transaction; None without one."""
        starts = [each.start_time_ms for each in self.members if each.is_open and each.start_time_ms is not None]
        return min(starts, default=None)

    def is_overdue(self, now_ms: int) -> bool:
        """Whether its step has a transaction open for longer than its timeout, so that the coordinator should have
        aborted it.
        """
        since_ms = self.open_since_ms
        return self.is_open and since_ms is not None and now_ms > since_ms + self.timeout_ms


class ProducerState(msgspec.Struct, frozen=True, kw_only=True):
    """A producer as a partition knows it; -1 for unknown values.

    current_txn_start_offset: the first record of its open transaction in this partition, None without one.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int = -1
    last_timestamp: int = -1
    coordinator_epoch: int = -1
    current_txn_start_offset: int | None = None


class FencedProducer(NamedTuple):
    """The producer id and epoch after fencing. The next producer of the transactional id gets a higher epoch."""

    producer_id: int
    producer_epoch: int
