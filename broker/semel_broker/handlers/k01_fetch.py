"""Fetch (key 1): stored batches as they are, from an offset on, or as soon as there are some.

Served: v4 to v11, without sessions: the answer's session id is always 0, so that every client goes on with full
fetches (KIP-227), and a session id of the client's cannot exist. Answered once `min_bytes` are readable, a partition
has an error, or `max_wait_ms` have passed. The first partition with data gives at least one whole batch, also above the
limits; which partition is first rotates from request to request, so that none starves behind another.
`preferred_read_replica` is always -1. Consumers only: replicas do not fetch from this listener.
"""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Coroutine
from typing import Any

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)

from semel_broker.context import RequestContext
from semel_broker.partition import READ_COMMITTED, Partition
from semel_broker.waiters import FetchWaiter


class Reading(msgspec.Struct, gc=False):
    """What one pass over the partitions has found."""

    rows: list[FetchResponsePartition]  # in the order of the request
    partitions: list[Partition]  # those without an error
    bytes_read: int = 0
    bytes_visible: int = 0  # sum of the partitions' counters: what is more than this came after the pass
    has_error: bool = False


def handle(request: FetchRequest, ctx: RequestContext) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
    if request.replica_id >= 0:
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "replicas do not fetch from a client listener")
    if request.session_id:
        raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"there is no fetch session {request.session_id}")
    reading = _read(request, ctx)
    if (
        reading.has_error
        or reading.bytes_read >= request.min_bytes
        or request.max_wait_ms <= 0
        or not reading.partitions
    ):
        return _response(request, reading)
    return _read_later(request, ctx, reading)


async def _read_later(request: FetchRequest, ctx: RequestContext, reading: Reading) -> FetchResponse:
    """Wait for the bytes that are missing, at most `max_wait_ms`, then read again."""
    loop = get_running_loop()
    partitions = reading.partitions
    waiter = FetchWaiter(loop, request.min_bytes - reading.bytes_read)
    for partition in partitions:
        partition.add_fetch_waiter(waiter)
    waiter.wake(sum(partition.bytes_visible for partition in partitions) - reading.bytes_visible)  # since the pass
    del reading  # while it waits, a fetch holds no data
    deadline = loop.call_later(request.max_wait_ms / 1000, waiter.release)
    try:
        await waiter.future
    finally:
        deadline.cancel()
        for partition in partitions:
            partition.remove_fetch_waiter(waiter)
    return _response(request, _read(request, ctx))


def _read(request: FetchRequest, ctx: RequestContext) -> Reading:
    """One pass over the partitions, beginning at another one with every request of the connection."""
    wanted = [(topic.topic, row) for topic in request.topics for row in topic.partitions]
    count = len(wanted)
    reading = Reading([FetchResponsePartition()] * count, [])
    bytes_left = min(request.max_bytes, ctx.broker.config.fetch_max_bytes)
    for turn in range(count):
        at = (ctx.turn + turn) % count
        topic, row = wanted[at]
        try:
            partition = ctx.broker.topics.partition(topic, row.partition)
            reading.rows[at] = found = _read_partition(partition, row, request.isolation_level, bytes_left, reading)
        except KafkaError as error:
            reading.has_error = True
            reading.rows[at] = FetchResponsePartition(
                partition_index=row.partition, error_code=error.code, high_watermark=-1, records=b""
            )
            continue
        reading.partitions.append(partition)
        assert found.records is not None
        bytes_left -= len(found.records)
        reading.bytes_read += len(found.records)
        reading.bytes_visible += partition.bytes_visible
    return reading


def _read_partition(
    partition: Partition, row: FetchRequestPartition, isolation: int, bytes_left: int, reading: Reading
) -> FetchResponsePartition:
    partition.check_leader_epoch(row.current_leader_epoch)
    records = partition.read(
        row.fetch_offset,
        bytes_max=max(0, min(row.partition_max_bytes, bytes_left)),
        isolation=isolation,
        at_least_one=reading.bytes_read == 0,
    )
    return FetchResponsePartition(
        partition_index=row.partition,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log_start_offset,
        aborted_transactions=[] if isolation == READ_COMMITTED else None,
        records=records,
    )


def _response(request: FetchRequest, reading: Reading) -> FetchResponse:
    rows = iter(reading.rows)
    return FetchResponse(
        responses=[
            FetchResponseTopic(topic=topic.topic, partitions=[next(rows) for _ in topic.partitions])
            for topic in request.topics
        ]
    )
