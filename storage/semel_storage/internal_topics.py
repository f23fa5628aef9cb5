"""Encodes and decodes the records of the two internal topics, `__consumer_offsets` and `__transaction_state`.

Keys and values are Kafka's, byte for byte (`OffsetCommitKey`, `GroupMetadataValue`, `TransactionLogValue`, ... of its
coordinators): an int16 version, then the fields of that version. The version of the key is also the type of the
record. A null value is a tombstone. Values became flexible (KIP-482, KIP-915) with the versions in `FLEXIBLE_SINCE`.

    key = encode_versioned(GroupMetadataKey(group="g"), GROUP_METADATA_KEY)
    value = encode_versioned(GroupMetadataValue(...), GROUP_METADATA_VALUE)
    decode_offsets_key(key) == GroupMetadataKey(group="g")
    decode_versioned(GroupMetadataValue, value)
"""

from typing import Annotated, TypeVar

from semel_protocol.errors import ProtocolError
from semel_protocol.primitives import Buffer
from semel_protocol.schema import ZERO_UUID, Codec, Int8, Int16, Int32, Int64, Message, Uuid, codec, since, tag, until

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"

Row = tuple[bytes, bytes | None]
"""(key, value) of one record; a value of None is a tombstone."""

OFFSET_COMMIT_KEY = 1
"""Version to write. Version 0 has the same layout; both are read."""
OFFSET_COMMIT_VALUE = 4
"""Version to write, as Kafka since 4.1: the first with the topic id."""
GROUP_METADATA_KEY = 2
GROUP_METADATA_VALUE = 3
CONSUMER_GROUP_VALUE = 0
"""Version to write of every value of a group of the consumer protocol (KIP-848)."""
TRANSACTION_LOG_KEY = 0
TRANSACTION_LOG_VALUE = 1
"""Version to write: 1 has the previous and next producer id as tagged fields (KIP-890)."""
TRANSACTION_GROUP_KEY = 10_000
TRANSACTION_GROUP_VALUE = 0

VERSION_BYTES = 2


class OffsetCommitKey(Message, kw_only=True):
    """v0-1. The group and the partition of a committed offset."""

    group: str
    topic: str
    partition: Int32


class OffsetCommitValue(Message, kw_only=True):
    """v0-4. A committed offset: the next offset to read. Timestamps in ms; -1 means not set. `topic_id`: of the topic
    at the time of the commit, all zeros if unknown (KIP-516)."""

    offset: Int64
    leader_epoch: Annotated[Int32, since(3)] = -1
    metadata: str = ""
    commit_timestamp: Int64 = -1
    expire_timestamp: Annotated[Int64, since(1), until(1)] = -1
    topic_id: Annotated[Uuid, since(4), tag(0)] = ZERO_UUID


class GroupMetadataKey(Message, kw_only=True):
    """v2."""

    group: str


class GroupMetadataValueMember(Message, kw_only=True):
    """One member of a generation. Timeouts in ms; subscription and assignment are opaque to the broker."""

    member_id: str
    group_instance_id: Annotated[str | None, since(3)] = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: Annotated[Int32, since(1)] = 0
    session_timeout: Int32 = 0
    subscription: bytes = b""
    assignment: bytes = b""


class GroupMetadataValue(Message, kw_only=True):
    """v0-4. A generation of a group after its assignment. An empty protocol type means a group without members."""

    protocol_type: str
    generation: Int32
    protocol: str | None = None
    leader: str | None = None
    current_state_timestamp: Annotated[Int64, since(2)] = -1
    members: list[GroupMetadataValueMember]


class ConsumerGroupMetadataKey(Message, kw_only=True):
    """v3."""

    group: str


class ConsumerGroupMetadataValue(Message, kw_only=True):
    """v0. The epoch of a group of the consumer protocol. `metadata_hash`: Kafka's, not used here."""

    epoch: Int32
    metadata_hash: Annotated[Int64, tag(0)] = 0


class ConsumerGroupPartitionMetadataKey(Message, kw_only=True):
    """v4."""

    group: str


class ConsumerGroupPartitionMetadataValuePartition(Message, kw_only=True):
    partition: Int32
    racks: list[str]


class ConsumerGroupPartitionMetadataValueTopic(Message, kw_only=True):
    topic_id: Uuid
    topic_name: str
    num_partitions: Int32
    partition_metadata: list[ConsumerGroupPartitionMetadataValuePartition] = []


class ConsumerGroupPartitionMetadataValue(Message, kw_only=True):
    """v0. The subscribed topics as the group knew them at its epoch."""

    topics: list[ConsumerGroupPartitionMetadataValueTopic]


class ConsumerGroupMemberMetadataKey(Message, kw_only=True):
    """v5."""

    group: str
    member_id: str


class ConsumerGroupMemberMetadataValueProtocol(Message, kw_only=True):
    name: str
    metadata: bytes


class ConsumerGroupMemberMetadataValueClassic(Message, kw_only=True):
    """Of a member that uses the classic protocol in a group of the consumer protocol."""

    session_timeout_ms: Int32
    supported_protocols: list[ConsumerGroupMemberMetadataValueProtocol]


class ConsumerGroupMemberMetadataValue(Message, kw_only=True):
    """v0. A member and its subscription."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None = None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: str | None = None
    classic_member_metadata: Annotated[ConsumerGroupMemberMetadataValueClassic | None, tag(0)] = None


class ConsumerGroupTargetAssignmentMetadataKey(Message, kw_only=True):
    """v6."""

    group: str


class ConsumerGroupTargetAssignmentMetadataValue(Message, kw_only=True):
    """v0. The epoch of the target assignment."""

    assignment_epoch: Int32
    assignment_timestamp: Annotated[Int64, tag(0)] = 0


class ConsumerGroupTargetAssignmentMemberKey(Message, kw_only=True):
    """v7."""

    group: str
    member_id: str


class ConsumerGroupTargetAssignmentMemberValueTopic(Message, kw_only=True):
    topic_id: Uuid
    partitions: list[Int32]


class ConsumerGroupTargetAssignmentMemberValue(Message, kw_only=True):
    """v0. The partitions that a member should have."""

    topic_partitions: list[ConsumerGroupTargetAssignmentMemberValueTopic]


class ConsumerGroupCurrentMemberAssignmentKey(Message, kw_only=True):
    """v8."""

    group: str
    member_id: str


class ConsumerGroupCurrentMemberAssignmentValueTopic(Message, kw_only=True):
    """`assignment_epochs`: Kafka's, not used here."""

    topic_id: Uuid
    partitions: list[Int32]
    assignment_epochs: Annotated[list[Int32] | None, tag(0)] = None


class ConsumerGroupCurrentMemberAssignmentValue(Message, kw_only=True):
    """v0. The partitions that a member has, and those that it has to revoke. `state`: 0 Stable, 1 UnrevokedPartitions,
    2 UnreleasedPartitions."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[ConsumerGroupCurrentMemberAssignmentValueTopic]
    partitions_pending_revocation: list[ConsumerGroupCurrentMemberAssignmentValueTopic]


class ConsumerGroupRegularExpressionKey(Message, kw_only=True):
    """v16."""

    group: str
    regular_expression: str


class ConsumerGroupRegularExpressionValue(Message, kw_only=True):
    """v0. The topics that a regular expression matched. `version`: of the topics, in Kafka's metadata log."""

    topics: list[str]
    version: Int64
    timestamp: Int64


class TransactionLogKey(Message, kw_only=True):
    """v0."""

    transactional_id: str


class TransactionLogValuePartitions(Message, kw_only=True):
    topic: str
    partition_ids: list[Int32]


class TransactionLogValueFence(Message, kw_only=True):
    """semel's own: one bump of the producer epoch. `reason`: `semel_broker.txn.model.ledger.FenceReason`."""

    at_ms: Int64
    reason: Int8
    old_producer_id: Int64
    old_epoch: Int16
    new_producer_id: Int64
    new_epoch: Int16
    client_id: str
    client_host: str
    note: str


class TransactionLogValue(Message, kw_only=True):
    """v0-1. The state of a transactional id. Times in ms; -1 means none.

    `transaction_status`: 0 Empty, 1 Ongoing, 2 PrepareCommit, 3 PrepareAbort, 4 CompleteCommit, 5 CompleteAbort,
    6 Dead, 7 PrepareEpochFence. Tags from 10000 on are semel's own; Kafka skips them.
    """

    producer_id: Int64
    previous_producer_id: Annotated[Int64, since(1), tag(0)] = -1
    next_producer_id: Annotated[Int64, since(1), tag(1)] = -1
    producer_epoch: Int16
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[TransactionLogValuePartitions] | None = None
    transaction_last_update_timestamp_ms: Int64 = -1
    transaction_start_timestamp_ms: Int64 = -1
    client_transaction_version: Annotated[Int16, since(1), tag(2)] = 0
    next_producer_epoch: Annotated[Int16, since(1), tag(3)] = -1
    last_producer_epoch: Annotated[Int16, since(1), tag(10_000)] = -1
    client_id: Annotated[str, since(1), tag(10_001)] = ""
    client_host: Annotated[str, since(1), tag(10_002)] = ""
    fences: Annotated[list[TransactionLogValueFence], since(1), tag(10_003)] = []
    group_epoch: Annotated[Int32, since(1), tag(10_004)] = -1


class TransactionGroupKey(Message, kw_only=True):
    """semel's own: the key of a transaction group. Kafka skips keys of unknown versions."""

    group: str


class TransactionGroupValue(Message, kw_only=True):
    """The current step of a transaction group. `state`: 0 Open, 1 Committed, 2 Aborted. `decided_*`: the last committed
    step."""

    group_epoch: Int32
    state: Int8
    owner: str
    client_id: str
    client_host: str
    timeout_ms: Int32
    begin_time_ms: Int64
    last_update_time_ms: Int64
    decided_token: str | None
    decided_epoch: Int32
    note: str


TRANSACTION_GROUP_STATES = ("Open", "Committed", "Aborted")


TRANSACTION_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)

VERSIONS: dict[type[Message], tuple[int, int]] = {
    OffsetCommitKey: (0, 1),
    OffsetCommitValue: (0, 4),
    GroupMetadataKey: (2, 2),
    GroupMetadataValue: (0, 4),
    ConsumerGroupMetadataKey: (3, 3),
    ConsumerGroupMetadataValue: (0, 0),
    ConsumerGroupPartitionMetadataKey: (4, 4),
    ConsumerGroupPartitionMetadataValue: (0, 0),
    ConsumerGroupMemberMetadataKey: (5, 5),
    ConsumerGroupMemberMetadataValue: (0, 0),
    ConsumerGroupTargetAssignmentMetadataKey: (6, 6),
    ConsumerGroupTargetAssignmentMetadataValue: (0, 0),
    ConsumerGroupTargetAssignmentMemberKey: (7, 7),
    ConsumerGroupTargetAssignmentMemberValue: (0, 0),
    ConsumerGroupCurrentMemberAssignmentKey: (8, 8),
    ConsumerGroupCurrentMemberAssignmentValue: (0, 0),
    ConsumerGroupRegularExpressionKey: (16, 16),
    ConsumerGroupRegularExpressionValue: (0, 0),
    TransactionLogKey: (0, 0),
    TransactionLogValue: (0, 1),
    TransactionGroupKey: (TRANSACTION_GROUP_KEY, TRANSACTION_GROUP_KEY),
    TransactionGroupValue: (0, 0),
}
FLEXIBLE_SINCE: dict[type[Message], int] = {
    OffsetCommitValue: 4,
    GroupMetadataValue: 4,
    ConsumerGroupMetadataValue: 0,
    ConsumerGroupPartitionMetadataValue: 0,
    ConsumerGroupMemberMetadataValue: 0,
    ConsumerGroupTargetAssignmentMetadataValue: 0,
    ConsumerGroupTargetAssignmentMemberValue: 0,
    ConsumerGroupCurrentMemberAssignmentValue: 0,
    ConsumerGroupRegularExpressionValue: 0,
    TransactionLogValue: 1,
    TransactionGroupValue: 0,
}
NEVER_FLEXIBLE = 1 << 15

ConsumerGroupKey = (
    ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)
"""The key of a record about a group of the consumer protocol."""
OffsetsKey = OffsetCommitKey | GroupMetadataKey | ConsumerGroupKey

OFFSETS_KEYS: dict[int, type[OffsetsKey]] = {
    0: OffsetCommitKey,
    1: OffsetCommitKey,
    2: GroupMetadataKey,
    3: ConsumerGroupMetadataKey,
    4: ConsumerGroupPartitionMetadataKey,
    5: ConsumerGroupMemberMetadataKey,
    6: ConsumerGroupTargetAssignmentMetadataKey,
    7: ConsumerGroupTargetAssignmentMemberKey,
    8: ConsumerGroupCurrentMemberAssignmentKey,
    16: ConsumerGroupRegularExpressionKey,
}
CONSUMER_GROUP_VALUES: dict[type[Message], type[Message]] = {
    ConsumerGroupMetadataKey: ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey: ConsumerGroupPartitionMetadataValue,
    ConsumerGroupMemberMetadataKey: ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroupTargetAssignmentMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupRegularExpressionKey: ConsumerGroupRegularExpressionValue,
}
"""Key -> value of the records about groups of the consumer protocol."""

M = TypeVar("M", bound=Message)


def version_of(data: Buffer) -> int:
    """The int16 version at the start of a key or value. Raises ProtocolError without one."""
    if len(data) < VERSION_BYTES:
        raise ProtocolError(f"{len(data)} bytes are too short for a versioned record")
    return int.from_bytes(data[:VERSION_BYTES], "big", signed=True)


def codec_of(cls: type[M], version: int) -> Codec[M]:
    """The codec of one version of `cls`. Raises ProtocolError for an unknown version."""
    low, high = VERSIONS[cls]
    if not low <= version <= high:
        raise ProtocolError(f"{cls.__name__} v{version} is unknown; v{low} to v{high} are supported")
    return codec(cls, version, version >= FLEXIBLE_SINCE.get(cls, NEVER_FLEXIBLE))


def encode_versioned(message: Message, version: int) -> bytes:
    """Encode a key or value of a record: int16 version, then the fields. Raises ProtocolError."""
    return version.to_bytes(VERSION_BYTES, "big") + codec_of(type(message), version).encode_bytes(message)


def decode_versioned(cls: type[M], data: Buffer) -> M:
    """The reverse of `encode_versioned`. Raises ProtocolError for an unknown version or malformed bytes."""
    return codec_of(cls, version_of(data)).decode(data, VERSION_BYTES)


def decode_offsets_key(data: Buffer) -> OffsetsKey | None:
    """Decode the key of a `__consumer_offsets` record; None for an unknown type of another coordinator.

    Raises ProtocolError for malformed bytes.
    """
    cls = OFFSETS_KEYS.get(version_of(data))
    return None if cls is None else decode_versioned(cls, data)
