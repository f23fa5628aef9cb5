"""Reads the records of a partition with plain Fetch requests, independent of the Consumer."""

from __future__ import annotations

from semel._edge import Edge
from semel._net.connection import connect
from semel_protocol.batch import iterate
from semel_protocol.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from semel_protocol.records import Record, decode_batch


async def stored(port: int, topic: str, partition: int) -> list[Record]:
    """Every record of the partition, in order."""
    connection = await connect(Edge(), "127.0.0.1", port, client_id="reading", timeout_ms=5000)
    records: list[Record] = []
    offset, high_watermark = 0, 1
    try:
        while offset < high_watermark:
            row = FetchRequestPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 24)
            request = FetchRequest(
                max_wait_ms=100,
                min_bytes=0,
                isolation_level=0,
                topics=[FetchRequestTopic(topic=topic, partitions=[row])],
            )
            answer: FetchResponse = await connection.request(request, timeout_ms=5000)
            found = answer.responses[0].partitions[0]
            assert found.error_code == 0, found.error_code
            high_watermark = found.high_watermark
            for header, batch in iterate(found.records or b""):
                records += [record for record in decode_batch(batch, header) if record.offset >= offset]
                offset = header.next_offset
    finally:
        connection.close()
    return records
