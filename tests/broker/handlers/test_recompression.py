"""Topics with a `compression.type` of their own: the stored batches, and the cost for other clients. As Kafka 4.1.1."""

from __future__ import annotations

import asyncio
import random

import pytest
from broker.harness import Harness, Wire, batch, fetch_request, headers_of, produce_request, records_of
from semel_broker.config.limits import Limits
from semel_broker.config.loading import load
from semel_broker.config.topic_configs import in_force
from semel_broker.scheduling.recompressor import Recompressor, Target, target_of
from semel_protocol.batch import pack_batch, read_header
from semel_protocol.compression import CODECS, GZIP, LZ4, NONE, ZSTD
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest

NAMES = {"uncompressed" if codec == NONE else name: codec for name, codec in CODECS.items()}
KIB, MIB = 1 << 10, 1 << 20
VALUES = [b"value %d" % number * 20 for number in range(20)]


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


async def test_batches_are_stored_under_the_topics_codec(broker: Harness, wire: Wire) -> None:
    for name, codec in NAMES.items():
        await wire.create_topic(name, compression_type=name)
        sent = {source: batch(*VALUES, codec=source) for source in NAMES.values()}
        for source, each in sent.items():
            row = await wire.produce(name, each)
            assert (row.error_code, row.base_offset) == (0, 20 * source)
        stored = bytes((await wire.fetch(name, 0)).records or b"")
        headers = headers_of(stored)
        assert [header.codec for header in headers] == [codec] * 5
        assert [header.base_offset for header in headers] == [0, 20, 40, 60, 80]
        assert [header.base_timestamp for header in headers] == [read_header(sent[0]).base_timestamp] * 5
        assert [record.value for record in records_of(stored, 0)] == VALUES * 5
        as_sent = stored[sum(header.size for header in headers[:codec]) :]
        assert as_sent[21 : headers[codec].size] == sent[codec][21:], "a batch of the topic's codec is stored as it is"


async def test_large_batches_are_stored_in_the_order_of_the_requests(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t", compression_type="gzip")
    sizes = [300 * KIB, 10, 200 * KIB, 70 * KIB, 5, 600 * KIB]
    for size in sizes:
        wire.send(produce_request("t", batch(noise(size), codec=LZ4)))
    rows = [(await wire.receive()).responses[0].partition_responses[0] for _ in sizes]
    assert [(row.error_code, row.base_offset) for row in rows] == [(0, offset) for offset in range(6)]
    assert await wire.values("t") == [noise(size) for size in sizes]
    assert {header.codec for header in headers_of((await wire.fetch("t", 0)).records)} == {GZIP}


@pytest.mark.parametrize("size", [10, 300 * KIB])
async def test_a_retry_is_answered_with_the_offset_of_the_first(broker: Harness, wire: Wire, size: int) -> None:
    await wire.create_topic("t", compression_type="zstd")
    producer = await wire.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))
    state = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    first, second = (batch(noise(size), base_sequence=sequence, **state) for sequence in (0, 1))
    for each, offset in ((first, 0), (second, 1), (first, 0), (second, 1)):
        row = await wire.produce("t", each)
        assert (row.error_code, row.base_offset) == (0, offset)
    (header, _) = headers_of((await wire.fetch("t", 0)).records)
    assert (header.codec, header.producer_id, header.base_sequence) == (ZSTD, producer.producer_id, 0)
    gap = batch(noise(size), base_sequence=7, **state)
    assert (await wire.produce("t", gap)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("size", [3 * KIB, 100 * KIB])
async def test_max_message_bytes_applies_to_received_and_stored_batches(broker: Harness, wire: Wire, size: int) -> None:
    room = str(size)
    await wire.create_topic("inflated", compression_type="uncompressed", max_message_bytes=room)
    await wire.create_topic("deflated", compression_type="gzip", max_message_bytes=room)
    row = await wire.produce("inflated", batch(bytes(2 * size), codec=GZIP))
    assert row.error_code == ErrorCode.MESSAGE_TOO_LARGE
    row = await wire.produce("deflated", batch(bytes(2 * size)))
    assert row.error_code == ErrorCode.MESSAGE_TOO_LARGE
    for topic in ("inflated", "deflated"):
        assert (await wire.produce(topic, batch(bytes(size // 2), codec=LZ4))).error_code == 0


@pytest.mark.proves("decompression-bomb")
@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
async def test_a_decompression_bomb_gets_message_too_large(broker: Harness, wire: Wire, codec: int) -> None:
    await wire.create_topic("t", compression_type="snappy")
    bomb = batch(bytes(40 * MIB), codec=codec)
    assert len(bomb) < MIB
    assert (await wire.produce("t", bomb)).error_code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
@pytest.mark.parametrize("size", [100, 200 * KIB])
async def test_a_corrupt_blob_gets_a_non_retriable_error(broker: Harness, wire: Wire, codec: int, size: int) -> None:
    await wire.create_topic("t", compression_type="snappy")
    await wire.create_topic("u", compression_type="snappy")
    bad = pack_batch(read_header(batch(b"x", codec=codec)), bytes(8) + noise(size))
    rows = [
        ProduceRequestTopic(name=name, partition_data=[ProduceRequestPartition(index=0, records=records)])
        for name, records in (("t", bad), ("u", batch(b"good")))
    ]
    answer = await wire.call(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=rows))
    (refused,), (taken,) = (topic.partition_responses for topic in answer.responses)
    assert (refused.error_code, refused.base_offset, taken.error_code) == (ErrorCode.INVALID_RECORD, -1, 0)
    assert await wire.values("u") == [b"good"]
    wire.forget(wire.send(produce_request("t", bad, acks=0)))
    assert await wire.closed_by_peer()


async def test_an_old_producers_batch_becomes_zstd_and_its_own_zstd_is_refused(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t", compression_type="zstd")
    assert (await wire.produce("t", batch(b"x"), version=6)).error_code == 0
    assert (await wire.produce("t", batch(noise(100 * KIB)), version=6)).error_code == 0
    row = await wire.produce("t", batch(b"x", codec=ZSTD), version=6)
    assert row.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert [header.codec for header in headers_of((await wire.fetch("t", 0)).records)] == [ZSTD, ZSTD]


async def test_log_append_time_is_stamped_on_recompressed_batches(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t", compression_type="gzip", message_timestamp_type="LogAppendTime")
    row = await wire.produce("t", batch(b"x", timestamp=1))
    (header,) = headers_of((await wire.fetch("t", 0)).records)
    assert (header.codec, header.log_append_time, header.max_timestamp) == (GZIP, True, row.log_append_time_ms)


async def test_a_changed_codec_applies_to_later_batches(broker: Harness, wire: Wire) -> None:
    assert broker.node is not None
    topics = broker.node.broker.topics
    await wire.create_topic("t")
    await wire.create_topic("own", compression_type="producer")
    assert topics.recompressing == set()
    config = broker.node.broker.config
    config.alter(dynamic_default={"compression.type": "lz4"}, dynamic={})
    topics.follow_broker()
    assert topics.recompressing == {"t"}
    await wire.produce("t", batch(b"x"))
    config.alter(dynamic_default={}, dynamic={})
    topics.follow_broker()
    assert topics.recompressing == set()
    await wire.produce("t", batch(b"x"))
    assert [header.codec for header in headers_of((await wire.fetch("t", 0)).records)] == [LZ4, NONE]


async def test_the_topics_compression_level_is_used() -> None:
    broker = load(overrides=["compression.zstd.level=7", "compression.gzip.level=2"])
    for given, target in [
        ({}, None),
        ({"compression.type": "zstd"}, Target(ZSTD, 7, 1000)),
        ({"compression.type": "zstd", "compression.zstd.level": "-5"}, Target(ZSTD, -5, 1000)),
        ({"compression.type": "gzip"}, Target(GZIP, 2, 1000)),
        ({"compression.type": "lz4", "compression.zstd.level": "1"}, Target(LZ4, 9, 1000)),
        ({"compression.type": "uncompressed", "max.message.bytes": "500"}, Target(NONE, 0, 500)),
    ]:
        assert target_of(in_force(given, broker), 1000) == target


# --- effects on other requests ---


@pytest.mark.proves("recompression-blocks")
async def test_a_small_batch_does_not_wait_behind_large_ones() -> None:
    recompressor = Recompressor(Limits().recompressed_at_once_bytes)
    target = Target(GZIP, 9, 16 * MIB)
    order: list[str] = []

    async def one(name: str, records: bytes) -> None:
        await recompressor.recompressed(records, read_header(records), target)
        order.append(name)

    large, middle, small = (batch(noise(size), codec=LZ4) for size in (3 * MIB, 300 * KIB, 10 * KIB))
    work = [one(f"large {n}", large) for n in range(3)] + [one("middle", middle), one("small", small)]
    await asyncio.gather(*work)
    assert order == ["small", "middle", "large 0", "large 1", "large 2"]


@pytest.mark.proves("recompression-blocks")
async def test_a_large_batch_is_worked_on_in_many_turns_and_one_slice_at_a_time() -> None:
    recompressor = Recompressor(Limits().recompressed_at_once_bytes)
    large = batch(noise(4 * MIB), codec=GZIP)
    tasks = [
        asyncio.ensure_future(recompressor.recompressed(large, read_header(large), Target(LZ4, 1, 16 * MIB)))
        for _ in range(2)
    ]
    turns = 0
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        turns += 1
    assert turns > 2 * 2 * (4 * MIB) // (32 * KIB), "32 KiB a turn: out of gzip, and into lz4"


@pytest.mark.proves("recompression-blocks")
async def test_what_a_turn_recompresses_at_once_is_bounded() -> None:
    recompressor = Recompressor(Limits().recompressed_at_once_bytes)
    small = batch(noise(40 * KIB))
    header, target = read_header(small), Target(LZ4, 1, 16 * MIB)
    assert [recompressor.at_once(small, header, target) is not None for _ in range(6)] == [True] * 4 + [False] * 2
    await asyncio.sleep(0)
    assert recompressor.at_once(small, header, target) is not None
    larger = batch(noise(70 * KIB))
    assert recompressor.at_once(larger, read_header(larger), target) is None
    bomb = batch(bytes(40 * MIB), codec=ZSTD)
    assert recompressor.at_once(bomb, read_header(bomb), target) is None


async def test_a_batch_of_a_cancelled_request_is_dropped() -> None:
    recompressor = Recompressor(Limits().recompressed_at_once_bytes)
    large = batch(noise(MIB), codec=GZIP)
    waiting = asyncio.ensure_future(recompressor.recompressed(large, read_header(large), Target(LZ4, 1, 16 * MIB)))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(KafkaError, match="at most 1000 bytes"):
        await recompressor.recompressed(large, read_header(large), Target(LZ4, 1, 1000))


async def test_a_waiting_fetch_gets_the_recompressed_batch(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t", compression_type="gzip")
    reader = await broker.wire()
    reader.send(fetch_request("t", 0, max_wait_ms=5_000))
    await wire.produce("t", batch(noise(200 * KIB)))
    row = (await reader.receive()).responses[0].partitions[0]
    assert [record.value for record in records_of(row.records, 0)] == [noise(200 * KIB)]
