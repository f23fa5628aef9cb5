"""An internal topic as the memory of a coordinator: reading a partition of it, and what a refusal means.

The records of one id (a group's, a transactional id) all lie in one partition, chosen by Java's hash of the id, so that
whoever leads the partition coordinates the id (`shards`).
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Callable

from semel_protocol.batch import check_crcs
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.partitions.partition import Partition

READ_BYTES = 256 << 10

REFUSALS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""What a failed append means to a coordinator's clients; anything else is UNKNOWN_SERVER_ERROR."""


async def replay(partition: Partition, take: Callable[[bytes], int]) -> None:
    """Hand over all that is committed in the partition now, in bites that leave the loop room to breathe.

    `take(whole batches)` returns the offset behind them. Raises CorruptBatch, NOT_LEADER_OR_FOLLOWER when this broker
    leads no longer, and what `take` raises.
    """
    offset = partition.log_start_offset
    end = partition.high_watermark
    while offset < end:
        partition.check_leading()
        data = partition.read(offset, bytes_max=READ_BYTES)
        if not data:
            break
        check_crcs(data, f"{partition.topic}-{partition.index}")
        offset = take(data)
        await sleep(0)


def as_seen_by_clients(error: KafkaError, told_as_it_is: ErrorCode | None = None) -> KafkaError:
    """A failed append as those hear of it who asked for what was to be stored."""
    code = error.code if error.code is told_as_it_is else REFUSALS.get(error.code, ErrorCode.UNKNOWN_SERVER_ERROR)
    return KafkaError(code, f"could not store: {error}")
