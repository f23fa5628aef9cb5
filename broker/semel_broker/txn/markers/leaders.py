"""Where partitions are led, as the cluster's image has it."""

from __future__ import annotations

from semel_broker.cluster.image import Image
from semel_broker.topics.topics import Topics
from semel_broker.txn.model.metadata import TopicPartition


class ImageLeaders:
    """See `marker_channel.Leaders`."""

    def __init__(self, image: Image) -> None:
        self._image = image

    def of(self, partition: TopicPartition) -> int | None:
        """The live broker that leads the partition; None while nobody does, or it does not exist."""
        kept = self._image.topic(partition[0])
        return None if kept is None else self._image.leader(kept.value.topic_id, partition[1])

    def exists(self, partition: TopicPartition) -> bool:
        """Whether there is such a partition."""
        kept = self._image.topic(partition[0])
        return kept is not None and 0 <= partition[1] < len(kept.value.replicas)


class Alone:
    """The leaders of a broker that is the only one."""

    def __init__(self, node_id: int, topics: Topics) -> None:
        self._node_id = node_id
        self._topics = topics

    def of(self, partition: TopicPartition) -> int | None:
        """This broker."""
        return self._node_id if self.exists(partition) else None

    def exists(self, partition: TopicPartition) -> bool:
        """Whether there is such a partition."""
        topic = self._topics.get(partition[0])
        return topic is not None and 0 <= partition[1] < topic.partition_count
