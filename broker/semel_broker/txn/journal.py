"""The memory of transactions on disk: records of `__transaction_state`.

The records of one transactional id lie in one partition, chosen by Java's hash of the id, so that whoever leads that
partition coordinates the transactions. One id has at most one record under way, so each takes effect by itself as
soon as it is durable; the order among ids does not matter.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import AsyncIterator, Sequence

import msgspec
from semel_protocol.batch import check_crcs, read_header
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.hashes import coordinator_partition
from semel_protocol.records import Record, build_batch
from semel_protocol.single_records import Rows, build_single, read_rows
from semel_storage.internal_topics import TRANSACTION_STATE

from semel_broker.partition import Partition
from semel_broker.topics import Topics
from semel_broker.txn.metadata import TransactionMetadata
from semel_broker.txn.records import Row, row_of
from semel_broker.world import World

READ_BYTES = 256 << 10

REFUSALS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""What a failed append means to a producer; anything else is UNKNOWN_SERVER_ERROR."""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """Something appended: durable once everything below `end_offset` is."""

    partition: Partition
    end_offset: int

    @property
    def is_durable(self) -> bool:
        return self.partition.high_watermark >= self.end_offset

    async def durable(self) -> None:
        """Return once it is. Raises KafkaError 15 or 16 if it will not be while this broker leads the partition."""
        try:
            await self.partition.committed(self.end_offset)
        except KafkaError as error:
            raise _as_seen_by_producers(error) from error


class Journal:
    """All partitions of `__transaction_state` that this broker leads."""

    def __init__(self, world: World, topics: Topics) -> None:
        self._world = world
        self._topics = topics
        self._partition_count = 0

    async def create(self) -> None:
        """Make sure that the topic exists."""
        if not self._partition_count:
            topic = await self._topics.ensure(TRANSACTION_STATE)
            self._partition_count = topic.partition_count

    def append(self, transactions: Sequence[TransactionMetadata], *, lazily: bool = False) -> Stored:
        """Append the records of `transactions`, all of one partition, in one batch. `lazily`: nobody waits for it.

        Raises KafkaError 15, 16 or -1: then nothing was appended.
        """
        partition = self._partition_of(transactions[0].transactional_id)
        batch = _batch_of([row_of(txn) for txn in transactions], self._world.now_ms())
        try:
            result = partition.append(batch, header=read_header(batch), lazily=lazily)
        except KafkaError as error:
            raise _as_seen_by_producers(error) from error
        return Stored(partition, result.last_offset + 1)

    def coordinator_epoch(self, transactional_id: str) -> int:
        """The epoch in which this broker coordinates the id: the leader epoch of its partition."""
        return self._partition_of(transactional_id).leader_epoch

    def partition_of(self, transactional_id: str) -> int:
        """The index of the partition that holds the id's records."""
        return coordinator_partition(transactional_id, self._partition_count)

    async def replay(self) -> AsyncIterator[Rows]:
        """All records of the topic, partition by partition, in bites that leave the loop room to breathe."""
        topic = self._topics.get(TRANSACTION_STATE)
        if topic is None:
            return
        self._partition_count = topic.partition_count
        for index in range(topic.partition_count):
            partition = self._topics.partition(TRANSACTION_STATE, index)
            if not partition.is_open:
                continue
            await partition.committed(partition.end_offset)
            offset = partition.log_start_offset
            while data := partition.read(offset, bytes_max=READ_BYTES):
                check_crcs(data, f"{TRANSACTION_STATE}-{index}")
                rows = read_rows(data)
                offset = rows.next_offset
                yield rows
                await sleep(0)

    def _partition_of(self, transactional_id: str) -> Partition:
        return self._topics.partition(TRANSACTION_STATE, self.partition_of(transactional_id))


def _batch_of(rows: Sequence[Row], now_ms: int) -> bytes:
    if len(rows) == 1:
        return build_single(*rows[0], now_ms)
    return build_batch([Record(at, now_ms, key, value) for at, (key, value) in enumerate(rows)])


def _as_seen_by_producers(error: KafkaError) -> KafkaError:
    return KafkaError(REFUSALS.get(error.code, ErrorCode.UNKNOWN_SERVER_ERROR), f"could not store: {error}")
