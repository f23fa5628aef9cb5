"""An internal topic as the memory of a coordinator: who lies where, reading all of it, and what a refusal means.

The records of one id (a group's, a transactional id) all lie in one partition, chosen by Java's hash of the id, so that
whoever leads the partition coordinates the id.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Callable

from semel_protocol.batch import check_crcs
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.hashes import coordinator_partition

from semel_broker.partition import Partition
from semel_broker.topics import Topics

READ_BYTES = 256 << 10

REFUSALS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""What a failed append means to a coordinator's clients; anything else is UNKNOWN_SERVER_ERROR."""


class CoordinatorTopic:
    """All partitions of the internal topic `name` that this broker leads."""

    def __init__(self, topics: Topics, name: str) -> None:
        self.name = name
        self._topics = topics
        self._partition_count = 0

    async def create(self) -> None:
        """Make sure that the topic exists."""
        if not self._partition_count:
            topic = await self._topics.ensure(self.name)
            self._partition_count = topic.partition_count

    def index_of(self, name: str) -> int:
        """The index of the partition that holds the records of this id."""
        return coordinator_partition(name, self._partition_count)

    def partition(self, index: int) -> Partition:
        """Raises UNKNOWN_TOPIC_OR_PARTITION."""
        return self._topics.partition(self.name, index)

    async def replay(self, take: Callable[[int, bytes], int]) -> None:
        """Hand over all there is, partition by partition, in bites that leave the loop room to breathe.

        `take(index, whole batches)` returns the offset behind them. Raises CorruptBatch, and what `take` raises.
        """
        topic = self._topics.get(self.name)
        if topic is None:
            return
        self._partition_count = topic.partition_count
        for index in range(topic.partition_count):
            partition = self.partition(index)
            if not partition.is_open:
                continue
            await partition.committed(partition.end_offset)
            offset = partition.log_start_offset
            while data := partition.read(offset, bytes_max=READ_BYTES):
                check_crcs(data, f"{self.name}-{index}")
                offset = take(index, data)
                await sleep(0)


def as_seen_by_clients(error: KafkaError, told_as_it_is: ErrorCode | None = None) -> KafkaError:
    """A failed append as those hear of it who asked for what was to be stored."""
    code = error.code if error.code is told_as_it_is else REFUSALS.get(error.code, ErrorCode.UNKNOWN_SERVER_ERROR)
    return KafkaError(code, f"could not store: {error}")
