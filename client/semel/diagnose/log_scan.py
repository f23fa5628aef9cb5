"""Scans a partition batch by batch, control batches and open transactions included. Records stay undecoded."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from semel_protocol.acls import Operation
from semel_protocol.batch import BatchHeader, CorruptBatch, iterate
from semel_protocol.control import ControlType, read_marker
from semel_protocol.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)

from semel._net.pool import ConnectionPurpose
from semel._net.retry import Deadline
from semel.admin import Admin
from semel.errors import CorruptRecordException, KafkaProtocolError, error_for
from semel.structs import TopicPartition

FETCH_BYTES = 4 << 20


class ScannedBatch(msgspec.Struct, frozen=True):
    """One batch of a log. marker: the outcome of the transaction that this control batch ends, None for other
    batches.
    """

    header: BatchHeader
    marker: ControlType | None = None
    coordinator_epoch: int = -1


async def scan(admin: Admin, partition: TopicPartition, start: int, end: int) -> AsyncIterator[ScannedBatch]:
    """The batches of `partition` with an offset from start to end - 1, in order, whatever the outcome of their
    transactions.

    Raises OffsetOutOfRangeError, UnknownTopicOrPartitionError, CorruptRecordException.
    """
    at = start
    while at < end:
        row = await fetch_stored(admin, partition, at)
        before = at
        try:
            for header, view in iterate(row.records or b""):
                if header.base_offset >= end:
                    return
                at = header.next_offset
                if at > start:
                    yield _scanned(header, view)
        except CorruptBatch as e:
            raise CorruptRecordException(f"{partition.topic}-{partition.partition} at offset {at}: {e.message}") from e
        if at == before:
            return  # the rest was compacted away, or truncated


def _scanned(header: BatchHeader, view: memoryview) -> ScannedBatch:
    marker = read_marker(view, header) if header.is_control and header.record_count else None
    if marker is None:
        return ScannedBatch(header)
    return ScannedBatch(header, marker.control_type, marker.coordinator_epoch)


async def fetch_stored(
    admin: Admin,
    partition: TopicPartition,
    offset: int,
    *,
    read_committed: bool = False,
    bytes_max: int = FETCH_BYTES,
) -> FetchResponsePartition:
    """One answer to Fetch with the batches from `offset` on, without waiting for records.

    read_committed: only batches below the last stable offset, with the list of aborted transactions among them.
    Raises as `scan`, without CorruptRecordException.
    """
    calls = admin._calls
    what = f"reading {partition.topic}-{partition.partition} at offset {offset}"
    right = calls.cluster.right(Operation.READ, topic=partition.topic)
    wanted = FetchRequestPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=bytes_max)

    async def attempt(deadline: Deadline) -> FetchResponsePartition:
        metadata = await calls.metadata([partition.topic], deadline)
        if code := metadata.errors.get(partition.topic):
            raise error_for(code, what, right)
        connection = await calls.cluster.connection(metadata.leader(*partition), ConnectionPurpose.FETCH)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=bytes_max,
            isolation_level=int(read_committed),
            topics=[FetchRequestTopic(topic=partition.topic, partitions=[wanted])],
        )
        answer: FetchResponse = await calls.request(connection, request, deadline)
        if answer.error_code:
            raise error_for(answer.error_code, what)
        for topic in answer.responses:
            for row in topic.partitions:
                if row.error_code:
                    raise error_for(row.error_code, what, right)
                return row
        raise KafkaProtocolError(f"{what}: the broker's answer does not contain it")

    return await calls.retrying(attempt, what=what)
