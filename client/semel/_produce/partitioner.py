"""Chooses the partition of a record: by the hash of its key, as all Kafka clients, or one partition after another.

Records without a key go to one partition until its batch is closed, then to another one at random (KIP-480). That makes
few full batches instead of many small ones.
"""

import random
from functools import lru_cache

from semel_protocol.hashes import murmur2

from semel._config.arguments import whole
from semel._config.client import Partitioner
from semel._config.settings import INT32_MAX
from semel._produce.accumulator import PartitionQueue
from semel._produce.sender import Sender
from semel.errors import IllegalStateError
from semel.structs import TopicMetadata

KEYS_REMEMBERED = 65_536


@lru_cache(KEYS_REMEMBERED)
def key_hash(key: bytes) -> int:
    """murmur2 as in Kafka's default partitioner, before the modulo. Recent keys are cached, because keys recur."""
    return murmur2(key) & 0x7FFFFFFF


class TopicQueues:
    """The partition queues of one topic, and the choice between them."""

    __slots__ = ("_available", "_rng", "_sender", "count", "partitioner", "queues", "sticky", "topic")

    def __init__(self, sender: Sender, rng: random.Random, partitioner: Partitioner | None, topic: str) -> None:
        self.topic, self.partitioner = topic, partitioner
        self._sender, self._rng = sender, rng
        self.queues: list[PartitionQueue] = []
        self._available: list[int] = []
        self.count = 0
        self.sticky: PartitionQueue | None = None

    def update(self, metadata: TopicMetadata) -> None:
        """Apply new metadata: partitions may have been added, leaders may have changed."""
        self.queues = [self._sender.queue(self.topic, row.partition) for row in metadata.partitions]
        self.count = len(self.queues)
        self._available = [row.partition for row in metadata.partitions if row.leader >= 0]

    def queue(self, partition: int) -> PartitionQueue:
        """The queue of a partition that the caller chose.

        Raises IllegalStateError when it does not exist, TypeError and ValueError when it is no number of a partition.
        """
        if type(partition) is not int:
            partition = whole("partition", partition, 0, INT32_MAX)
        if 0 <= partition < self.count:
            return self.queues[partition]
        raise IllegalStateError(f"topic {self.topic!r} has partitions 0 to {self.count - 1}, not {partition}")

    @property
    def may_move(self) -> bool:
        """Whether a record without a key may go to any partition. False with a partitioner of the application."""
        return self.partitioner is None

    def choose(self, key: bytes | None) -> PartitionQueue:
        """The queue for a record with this serialized key."""
        if self.partitioner is not None:
            return self._chosen_by(self.partitioner, key)
        if key is None:
            return self.sticky or self.next_sticky()
        return self.queues[key_hash(key) % self.count]

    def _chosen_by(self, partitioner: Partitioner, key: bytes | None) -> PartitionQueue:
        """The queue of the partition that a function of the application chose. Raises what it raises, TypeError and
        ValueError for its result.
        """
        chosen = partitioner(key, list(range(self.count)), list(self._available))
        return self.queues[whole(f"the partitioner's choice for topic {self.topic!r}", chosen, 0, self.count - 1)]

    def choose_for_batch(self) -> PartitionQueue:
        """The queue for a batch that the caller has filled: each to another partition."""
        return self.next_sticky() if self.partitioner is None else self.choose(None)

    def next_sticky(self) -> PartitionQueue:
        """Move records without a key to another partition, to one with a leader if there is any."""
        candidates = self._available or range(self.count)
        chosen = candidates[self._rng.randrange(len(candidates))]
        if len(candidates) > 1 and self.sticky is not None:
            while chosen == self.sticky.partition:
                chosen = candidates[self._rng.randrange(len(candidates))]
        self.sticky = self.queues[chosen]
        return self.sticky
