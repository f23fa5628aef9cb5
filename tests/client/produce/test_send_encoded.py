"""Batches whose records the caller has encoded: stored as they are, under the producer's identity and codec."""

from __future__ import annotations

import itertools

import pytest
from semel import Consumer, Producer
from semel.errors import IllegalOperation, MessageSizeTooLargeError
from semel_broker.testing.in_process import EphemeralBroker
from semel_protocol.records import encode_record


def encoded(values: list[bytes], *, step_ms: int = 0) -> bytes:
    return b"".join(encode_record(row * step_ms, row, b"key", value, [("h", b"x")]) for row, value in enumerate(values))


async def read(broker: EphemeralBroker, count: int) -> list[tuple[int, bytes | None, bytes | None, int]]:
    settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    async with Consumer("t", bootstrap_servers=broker.bootstrap_servers, **settings) as consumer:
        return [
            (row.offset, row.key, row.value, row.timestamp) for row in [await consumer.getone() for _ in range(count)]
        ]


@pytest.mark.real_time
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_encoded_records_are_read_back(semel_broker: EphemeralBroker, codec: str) -> None:
    values = [b"%d" % row for row in range(100)]
    async with Producer(bootstrap_servers=semel_broker.bootstrap_servers, compression_type=codec) as producer:
        await producer.send_and_wait("t", b"before", partition=0, timestamp_ms=900)
        future = await producer.send_encoded("t", 0, memoryview(encoded(values, step_ms=1)), 100, 1_000, 1_099)
        await producer.send_and_wait("t", b"behind", partition=0, timestamp_ms=2_000)
        row = await future
    assert (row.topic, row.partition, row.offset, row.timestamp) == ("t", 0, 1, 1_000)
    assert await read(semel_broker, 102) == [
        (0, None, b"before", 900),
        *((1 + row, b"key", value, 1_000 + row) for row, value in enumerate(values)),
        (101, None, b"behind", 2_000),
    ]


@pytest.mark.real_time
async def test_it_is_part_of_the_transaction(semel_broker: EphemeralBroker) -> None:
    settings = {"bootstrap_servers": semel_broker.bootstrap_servers, "transactional_id": "t"}
    async with Producer(**settings) as producer:
        with pytest.raises(IllegalOperation):
            await producer.send_encoded("t", 0, encoded([b"outside"]), 1, 0, 0)
        await producer.begin_transaction()
        await producer.send_encoded("t", 0, encoded([b"aborted"]), 1, 0, 0)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_encoded("t", 0, encoded([b"committed"]), 1, 0, 0)
    assert [row[2] for row in await read(semel_broker, 1)] == [b"committed"]


@pytest.mark.real_time
async def test_records_that_are_too_large_are_refused_by_client_and_broker(semel_broker: EphemeralBroker) -> None:
    settings = {"bootstrap_servers": semel_broker.bootstrap_servers, "max_request_size": 2_000_000}
    async with Producer(**settings) as producer:
        with pytest.raises(MessageSizeTooLargeError, match="max_request_size"):
            await producer.send_encoded("t", 0, bytes(2_000_001), 2, 0, 0)
        with pytest.raises(MessageSizeTooLargeError, match=r"max\.message\.bytes"):
            await (await producer.send_encoded("t", 0, encoded([bytes(700_000)] * 2), 2, 0, 0))


@pytest.mark.real_time
async def test_timestamps_out_of_range_are_refused(semel_broker: EphemeralBroker) -> None:
    async with Producer(bootstrap_servers=semel_broker.bootstrap_servers) as producer:
        with pytest.raises(ValueError, match="timestamp"):
            await producer.send_encoded("t", 0, encoded([b"a"]), 1, -1, 0)


@pytest.mark.real_time
async def test_without_a_partition_each_batch_goes_to_one_like_records_without_a_key() -> None:
    with EphemeralBroker() as broker:
        broker.create_topic("spread", 3)
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            futures = [await producer.send_encoded("spread", None, encoded([b"a", b"b"]), 2, 1, 1) for _ in range(20)]
            rows = [await future for future in futures]
    chosen = [row.partition for row in rows]
    assert set(chosen) == {0, 1, 2}
    assert all(a != b for a, b in itertools.pairwise(chosen)), "a batch moves to another partition"


@pytest.mark.real_time
async def test_without_a_partition_the_partitioner_of_the_application_chooses() -> None:
    with EphemeralBroker() as broker:
        broker.create_topic("chosen", 3)
        settings = {"bootstrap_servers": broker.bootstrap_servers, "partitioner": lambda *_: 2}
        async with Producer(**settings) as producer:
            future = await producer.send_encoded("chosen", None, encoded([b"a"]), 1, 1, 1)
            assert (await future).partition == 2
