"""Queues batches that the application has built or encoded itself. One future gives the place of the first record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from semel_protocol.records import BatchBuilder

from semel._produce.accumulator import BufferMemory, PartitionQueue
from semel._produce.sender import Sender
from semel.structs import RecordMetadata


def open_built(
    sender: Callable[[], Sender],
    queue: PartitionQueue,
    memory: BufferMemory,
    builder: BatchBuilder,
    first_timestamp_ms: int,
) -> asyncio.Future[RecordMetadata]:
    """Puts the batch at the end of the queue; its memory is reserved already. `sender` raises when the producer has
    ended.
    """
    reserved = builder.size_bytes
    try:
        running = sender()
        opened = running.open_batch(queue, reserved, builder)
    except BaseException:
        memory.release(reserved)
        raise
    future: asyncio.Future[RecordMetadata] = queue.loop.create_future()
    opened.futures.append(future)
    opened.timestamps.append(first_timestamp_ms)
    opened.closed = True
    running.place(queue)
    return future
