"""The values that users see: topic-partitions, records, offsets, metadata. Names and fields are those of aiokafka."""

from typing import Generic, NamedTuple

import msgspec
from semel_protocol.schema import ZERO_UUID

from semel._type_variables import K_co, V_co


class TopicPartition(NamedTuple):
    """One partition of one topic. A tuple: it hashes and sorts."""

    topic: str
    partition: int


class OffsetAndMetadata(NamedTuple):
    """A committed position: the offset of the next record to read, and a text of the committer."""

    offset: int
    metadata: str = ""


class OffsetAndTimestamp(NamedTuple):
    """Result of `offsets_for_times`: offset and timestamp (ms) of the first record at or after the given time."""

    offset: int
    timestamp: int


class ConsumerGroupMetadata(NamedTuple):
    """A consumer's membership in its group (KIP-447), for offsets that are committed in a producer's transaction.

    With `group_id` alone the coordinator does not check the membership. topic_ids: the topics that the records are of
    (KIP-1319), so that no offset of a deleted topic is committed for its successor. Without one the name counts.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topic_ids: tuple[tuple[TopicPartition, bytes], ...] = ()


class GroupStep(msgspec.Struct, frozen=True):
    """One step of a transaction group, as `TransactionGroup.begin` returns it. For the workers; can be pickled.

    epoch: the number of the step.
    decided_token, decided_epoch: the token and the number of the last committed step; None and -1 without one.
    """

    group: str
    epoch: int
    decided_token: str | None = None
    decided_epoch: int = -1


class PreparedTransaction(msgspec.Struct, frozen=True):
    """A transaction whose records are all stored, for the driver of its group to decide. Can be pickled."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_epoch: int


class RecordMetadata(msgspec.Struct, frozen=True, gc=False):
    """The place where a sent record was stored.

    offset: -1 when the broker gives none (acks=0, or a duplicate older than the broker remembers).
    timestamp: milliseconds since the epoch. timestamp_type: 0 is CreateTime (the producer's), 1 LogAppendTime (the
    broker's).
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    log_start_offset: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class ConsumerRecord(msgspec.Struct, Generic[K_co, V_co], gc=False):
    """One record as the consumer hands it out. `ConsumerRecord[K, V]` names the types of its key and value.

    timestamp: milliseconds since the epoch; timestamp_type: as in `RecordMetadata`.
    serialized_key_size, serialized_value_size: bytes, -1 for null.
    checksum: always None. Since record batches v2 the checksum covers the batch (KIP-98).
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: K_co
    value: V_co
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    headers: tuple[tuple[str, bytes | None], ...]


class BrokerMetadata(msgspec.Struct, frozen=True):
    """A broker in the cluster's metadata."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionMetadata(msgspec.Struct, frozen=True):
    """A partition in the cluster's metadata.

    leader: node id, -1 without a leader. leader_epoch: -1 when the broker does not send it.
    replicas: node ids, the preferred leader first. isr: the in-sync replicas. offline_replicas: replicas on brokers
    that are offline.
    """

    topic: str
    partition: int
    leader: int
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()


class TopicMetadata(msgspec.Struct, frozen=True):
    """A topic in the cluster's metadata; `partitions[i].partition == i`."""

    name: str
    partitions: tuple[PartitionMetadata, ...]
    is_internal: bool = False
    topic_id: bytes = ZERO_UUID


class Metadata(msgspec.Struct, frozen=True):
    """A consistent view of the cluster. It is replaced as a whole and never changed in place.

    errors: the error code of each wanted topic that the broker could not describe.
    """

    brokers: dict[int, BrokerMetadata]
    topics: dict[str, TopicMetadata]
    controller_id: int = -1
    cluster_id: str | None = None
    errors: dict[str, int] = {}

    def topic_id(self, topic: str) -> bytes:
        """The id of the topic that has this name; zeros when it is unknown."""
        found = self.topics.get(topic)
        return ZERO_UUID if found is None else found.topic_id

    def describes(self, topic: str, topic_id: bytes) -> bool:
        """Whether the topic of this name has this id, as far as both ids are known. If not, it was created again."""
        known = self.topic_id(topic)
        return known == topic_id or ZERO_UUID in (known, topic_id)

    def leader(self, topic: str, partition: int, topic_id: bytes = ZERO_UUID) -> int:
        """Node id of the partition's leader; -1 when it is unknown or there is none, also if the topic of this name is
        known to have another id.
        """
        found = self.topics.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return -1
        if found.topic_id != topic_id and ZERO_UUID not in (found.topic_id, topic_id):
            return -1
        return found.partitions[partition].leader

    def leader_epoch(self, topic: str, partition: int) -> int:
        """The epoch of that leader; -1 when it is unknown."""
        found = self.topics.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return -1
        return found.partitions[partition].leader_epoch
