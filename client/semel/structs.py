"""The values users see: topic-partitions, records, offsets. Names and fields are aiokafka's."""

from typing import Generic, NamedTuple, TypeVar

import msgspec

KT = TypeVar("KT")
VT = TypeVar("VT")


class TopicPartition(NamedTuple):
    """One partition of one topic; a plain tuple, so it hashes and sorts."""

    topic: str
    partition: int


class OffsetAndMetadata(NamedTuple):
    """A committed position: the offset of the next record to read, with a note of the committer."""

    offset: int
    metadata: str = ""


class OffsetAndTimestamp(NamedTuple):
    """Answer of `offsets_for_times`: the first record at or after the asked time."""

    offset: int
    timestamp: int


class ConsumerGroupMetadata(NamedTuple):
    """A consumer's standing in its group (KIP-447), for offsets that travel in a producer's transaction.

    With `group_id` alone the offsets are taken whoever the group's members are.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class GroupStep(msgspec.Struct, frozen=True):
    """One step of a transaction group, as its driver has begun it; to be handed to the workers (it can be pickled).

    `epoch` counts the group's steps. `decided_token`: what the last step that was committed was called, and its epoch;
    None and -1 if none was.
    """

    group: str
    epoch: int
    decided_token: str | None = None
    decided_epoch: int = -1


class PreparedTransaction(msgspec.Struct, frozen=True):
    """A transaction whose records are all stored, and which is for its group's driver to decide (can be pickled)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_epoch: int


class RecordMetadata(msgspec.Struct, frozen=True, gc=False):
    """Where a sent record was stored.

    `offset` is -1 when the broker gives none (acks=0, or a duplicate older than it remembers). `timestamp` is
    milliseconds; `timestamp_type` 0 is CreateTime (the producer's), 1 LogAppendTime (the broker's).
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


class ConsumerRecord(msgspec.Struct, Generic[KT, VT], gc=False):
    """One record as the consumer hands it out. `timestamp` in milliseconds; sizes in bytes, -1 for null.

    `checksum` is None: since record batches v2 the checksum covers the batch, not the record.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: KT
    value: VT
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


class BrokerMetadata(msgspec.Struct, frozen=True):
    """A broker as metadata lists it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionMetadata(msgspec.Struct, frozen=True):
    """A partition as metadata lists it; `leader` is -1 while there is none, `leader_epoch` -1 when not told.

    The first of the `replicas` is the preferred leader; `isr` are those in sync, `offline_replicas` those of brokers
    that are away.
    """

    topic: str
    partition: int
    leader: int
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()


class TopicMetadata(msgspec.Struct, frozen=True):
    """A topic as metadata lists it; `partitions[i].partition == i`."""

    name: str
    partitions: tuple[PartitionMetadata, ...]
    is_internal: bool = False
    topic_id: bytes = bytes(16)


class Metadata(msgspec.Struct, frozen=True):
    """One consistent picture of the cluster; replaced as a whole, never changed in place.

    `errors` holds the error code of every wanted topic the broker could not describe.
    """

    brokers: dict[int, BrokerMetadata]
    topics: dict[str, TopicMetadata]
    controller_id: int = -1
    cluster_id: str | None = None
    errors: dict[str, int] = {}

    def leader(self, topic: str, partition: int) -> int:
        """Node id of the partition's leader, -1 when unknown or absent."""
        found = self.topics.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return -1
        return found.partitions[partition].leader

    def leader_epoch(self, topic: str, partition: int) -> int:
        """The epoch of that leader, -1 when not told."""
        found = self.topics.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return -1
        return found.partitions[partition].leader_epoch
