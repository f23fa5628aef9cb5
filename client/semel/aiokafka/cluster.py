"""aiokafka's `cluster`: the brokers, topics and leaders that a client knows now."""

from __future__ import annotations

from collections.abc import Callable

from semel_protocol.errors import ErrorCode

from semel.structs import BrokerMetadata, Metadata, PartitionMetadata, TopicPartition

__all__ = ["ClusterMetadata"]


class ClusterMetadata:
    """aiokafka's methods over the client's metadata. `read` returns the metadata of this moment."""

    def __init__(self, read: Callable[[], Metadata]) -> None:
        self._read = read

    def topics(self, exclude_internal_topics: bool = True) -> set[str]:
        """The names of the known topics."""
        topics = self._read().topics.items()
        return {name for name, topic in topics if not (exclude_internal_topics and topic.is_internal)}

    @property
    def internal_topics(self) -> set[str]:
        return {name for name, topic in self._read().topics.items() if topic.is_internal}

    @property
    def unauthorized_topics(self) -> set[str]:
        errors = self._read().errors
        return {name for name, code in errors.items() if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The partition numbers of a topic; None for an unknown one."""
        found = self._partitions_of(topic)
        return None if found is None else {each.partition for each in found}

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """The partitions of a topic that have a leader; None for an unknown topic."""
        found = self._partitions_of(topic)
        return None if found is None else {each.partition for each in found if each.leader != -1}

    def leader_for_partition(self, partition: TopicPartition) -> int | None:
        """The node id of the leader; -1 without a leader, None for an unknown partition."""
        topic, number = partition
        found = self._partitions_of(topic)
        return found[number].leader if found is not None and 0 <= number < len(found) else None

    def partitions_for_broker(self, broker_id: int) -> set[TopicPartition] | None:
        """The partitions that this broker leads; None if it leads none."""
        found = {
            TopicPartition(topic.name, each.partition)
            for topic in self._read().topics.values()
            for each in topic.partitions
            if each.leader == broker_id
        }
        return found or None

    def brokers(self) -> set[BrokerMetadata]:
        return set(self._brokers.values())

    def broker_metadata(self, broker_id: int) -> BrokerMetadata | None:
        return self._brokers.get(broker_id)

    @property
    def controller(self) -> BrokerMetadata | None:
        return self._brokers.get(self._read().controller_id)

    @property
    def _brokers(self) -> dict[int, BrokerMetadata]:
        return self._read().brokers

    def _partitions_of(self, topic: str) -> tuple[PartitionMetadata, ...] | None:
        found = self._read().topics.get(topic)
        return None if found is None else found.partitions
