"""Produce over the wire: appended batches, refused batches with their errors, and restarts."""

import asyncio
import gc
from types import SimpleNamespace
from typing import Any, cast

import pytest
from broker.conftest import StartBroker
from broker.harness import Harness, batch, headers_of, produce_request
from semel_broker.cluster.records import PRODUCER_NUMBERS
from semel_broker.coordination.producer_owners import NUMBERS
from semel_broker.handlers import k00_appends
from semel_broker.scheduling.waiters import OffsetWaiters
from semel_protocol.batch import seal
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest
from semel_protocol.records import Record, build_batch


def idempotent(producer_id: int, sequence: int, *values: bytes, epoch: int = 0) -> bytes:
    return batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


async def test_appended_batches_come_back_as_they_were_at_the_next_offsets(either_broker: Harness) -> None:
    wire = await either_broker.wire()
    await wire.create_topic("t")
    first = await wire.produce("t", batch(b"a", b"b"))
    second = await wire.produce("t", batch(b"c"))
    assert (first.error_code, first.base_offset, first.log_append_time_ms, first.log_start_offset) == (0, 0, -1, 0)
    assert second.base_offset == 2
    assert await wire.values("t") == [b"a", b"b", b"c"]
    row = await wire.fetch("t", 0)
    assert (row.high_watermark, row.last_stable_offset, row.log_start_offset) == (3, 3, 0)
    assert [header.base_offset for header in headers_of(row.records)] == [0, 2]


@pytest.mark.parametrize("codec", range(5))
async def test_every_codec_passes_through_unchanged(broker: Harness, codec: int) -> None:
    wire = await broker.wire()
    await wire.create_topic("t")
    sent = batch(*[b"value" * 20] * 50, codec=codec)
    assert (await wire.produce("t", sent)).error_code == 0
    stored = bytes((await wire.fetch("t", 0)).records or b"")
    assert stored[16:] == sent[16:]  # offset and leader epoch are the broker's, the rest is the producer's


async def test_acks_1_is_answered_and_acks_0_is_not(either_broker: Harness) -> None:
    wire = await either_broker.wire()
    await wire.create_topic("t")
    wire.forget(wire.send(produce_request("t", batch(b"0"), acks=0)))
    assert (await wire.produce("t", batch(b"1"), acks=1)).base_offset == 1
    async with asyncio.timeout(10):  # with fsync, readers see the record once it is synced
        while await wire.values("t") != [b"0", b"1"]:
            await asyncio.sleep(0.005)


async def test_a_failed_acks_0_closes_the_connection_and_says_why(broker: Harness) -> None:
    wire = await broker.wire()
    wire.send(produce_request("missing", batch(b"0"), acks=0))
    assert await wire.closed_by_peer()
    line = broker.log.of("connection_closed")[0]
    assert (line["reason"], line["code"]) == ("refused", "UNKNOWN_TOPIC_OR_PARTITION")
    assert "missing-0" in str(line["error"])


async def test_one_refused_partition_does_not_affect_the_others(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("t", partitions=2)
    rows = [ProduceRequestPartition(index=i, records=batch(b"%d" % i)) for i in (0, 7, 1)]
    topics = [ProduceRequestTopic(name="t", partition_data=rows)]
    response = await wire.call(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics))
    answered = [(row.index, row.error_code, row.base_offset) for row in response.responses[0].partition_responses]
    assert answered == [(0, 0, 0), (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1), (1, 0, 0)]


# --- refused -------------------------------------------------------------------------------------------------


def broken(at: int, value: bytes, *, sealed: bool = True) -> bytes:
    """A batch with some header bytes overwritten and its CRC recomputed."""
    data = bytearray(batch(b"x", b"y"))
    data[at : at + len(value)] = value
    if sealed:
        seal(data)
    return bytes(data)


OLD_MESSAGE_SET = bytes(8) + (14).to_bytes(4, "big") + bytes(4) + b"\x01" + bytes(60)
BAD_BATCHES: dict[str, tuple[Any, ErrorCode]] = {
    "null": (None, ErrorCode.INVALID_RECORD),
    "empty": (b"", ErrorCode.INVALID_RECORD),
    "two batches": (batch(b"x") + batch(b"y"), ErrorCode.INVALID_RECORD),
    "shorter than a header": (batch(b"x")[:40], ErrorCode.CORRUPT_MESSAGE),
    "cut short": (batch(b"x" * 100)[:-1], ErrorCode.CORRUPT_MESSAGE),
    "length that lies low": (broken(8, (20).to_bytes(4, "big"), sealed=False), ErrorCode.CORRUPT_MESSAGE),
    "length that lies high": (broken(8, (2**31 - 1).to_bytes(4, "big"), sealed=False), ErrorCode.CORRUPT_MESSAGE),
    "negative length": (broken(8, b"\xff\xff\xff\xff", sealed=False), ErrorCode.CORRUPT_MESSAGE),
    "magic 0": (bytes(16) + b"\x00" + bytes(60), ErrorCode.INVALID_RECORD),
    "magic 1": (OLD_MESSAGE_SET, ErrorCode.INVALID_RECORD),
    "wrong crc": (broken(17, b"\x00\x00\x00\x00", sealed=False), ErrorCode.CORRUPT_MESSAGE),
    "flipped bit": (batch(b"x")[:-1] + b"\x01", ErrorCode.CORRUPT_MESSAGE),
    "count that lies": (broken(57, (3).to_bytes(4, "big")), ErrorCode.INVALID_RECORD),
    "no records": (broken(57, bytes(4)), ErrorCode.INVALID_RECORD),
    "offset delta that lies": (broken(23, (9).to_bytes(4, "big")), ErrorCode.INVALID_RECORD),
    "unknown codec": (broken(21, b"\x00\x05"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "control batch": (broken(21, b"\x00\x20"), ErrorCode.INVALID_RECORD),
    "transactional without an id": (broken(21, b"\x00\x10"), ErrorCode.INVALID_RECORD),
    "delete horizon": (broken(21, b"\x00\x40"), ErrorCode.INVALID_RECORD),
    "producer id without epoch": (broken(43, bytes(8) + b"\xff\xff"), ErrorCode.INVALID_RECORD),
}


@pytest.mark.proves("invalid-batch")
@pytest.mark.parametrize("what", BAD_BATCHES)
async def test_an_invalid_batch_is_refused_and_not_appended(broker: Harness, what: str) -> None:
    records, code = BAD_BATCHES[what]
    wire = await broker.wire()
    await wire.create_topic("t", max_message_bytes="60000")
    row = await wire.produce("t", records)
    assert (ErrorCode(row.error_code), row.base_offset) == (code, -1)
    assert (await wire.produce("t", batch(b"good"))).base_offset == 0


async def test_zstd_needs_produce_v7(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("t")
    old = await wire.produce("t", batch(b"x", codec=4), version=6)
    assert old.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert (await wire.produce("t", batch(b"x", codec=4), version=7)).error_code == 0


@pytest.mark.parametrize("acks", [2, -2, 32767])
async def test_other_acks_are_refused(broker: Harness, acks: int) -> None:
    wire = await broker.wire()
    await wire.create_topic("t")
    assert (await wire.produce("t", batch(b"x"), acks=acks)).error_code == ErrorCode.INVALID_REQUIRED_ACKS


async def test_clients_do_not_write_to_internal_topics(broker: Harness) -> None:
    assert broker.node is not None
    await broker.node.broker.topics.ensure("__consumer_offsets")
    wire = await broker.wire()
    row = await wire.produce("__consumer_offsets", batch(b"x"))
    assert row.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_transactional_batch_of_an_unknown_transactional_id_is_refused(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("t")
    records = batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    request = produce_request("t", records)
    request.transactional_id = "tx"
    row = (await wire.call(request)).responses[0].partition_responses[0]
    assert row.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def test_a_compacted_topic_refuses_records_without_keys(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("t", cleanup_policy="compact")
    keyed = [Record(offset=i, timestamp=1, key=b"k", value=b"v", headers=()) for i in range(2)]
    keyless = [*keyed, Record(offset=2, timestamp=1, key=None, value=b"v", headers=())]
    assert (await wire.produce("t", build_batch(keyless, codec=1))).error_code == ErrorCode.INVALID_RECORD
    assert (await wire.produce("t", build_batch(keyed, codec=1))).error_code == 0


async def test_timestamps_too_far_off_are_refused(broker: Harness) -> None:
    assert broker.node is not None
    now_ms = broker.node.broker.world.now_ms()
    wire = await broker.wire()
    await wire.create_topic("t", message_timestamp_before_max_ms="60000", message_timestamp_after_max_ms="60000")
    for shift_ms in (-120_000, 120_000):
        row = await wire.produce("t", batch(b"x", timestamp=now_ms + shift_ms))
        assert row.error_code == ErrorCode.INVALID_TIMESTAMP
    assert (await wire.produce("t", batch(b"x", timestamp=now_ms))).error_code == 0


async def test_log_append_time_is_stamped_and_returned(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("t", message_timestamp_type="LogAppendTime")
    row = await wire.produce("t", batch(b"x", timestamp=1))
    assert row.log_append_time_ms > 1_700_000_000_000
    header = headers_of((await wire.fetch("t", 0)).records)[0]
    assert header.log_append_time
    assert header.max_timestamp == row.log_append_time_ms


# --- exactly once per partition ------------------------------------------------------------------------------


async def test_a_retry_is_answered_with_the_first_offset_and_not_appended_also_after_a_restart(
    either_broker: Harness,
) -> None:
    wire = await either_broker.wire()
    await wire.create_topic("t")
    producer_id = await wire.new_producer()
    batches = [idempotent(producer_id, i, b"%d" % i) for i in range(5)]
    assert [(await wire.produce("t", data)).base_offset for data in batches] == [0, 1, 2, 3, 4]
    assert [(await wire.produce("t", data)).base_offset for data in batches] == [0, 1, 2, 3, 4]
    await either_broker.restart()
    wire = await either_broker.wire()
    assert [(await wire.produce("t", data)).base_offset for data in batches] == [0, 1, 2, 3, 4]
    assert (await wire.produce("t", idempotent(producer_id, 5, b"5"))).base_offset == 5
    assert await wire.values("t") == [b"0", b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.proves("first-sequence-of-an-epoch")
async def test_gaps_old_epochs_and_new_epochs_that_do_not_start_at_0_are_refused(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("t")
    producer_id = await wire.new_producer()
    assert (await wire.produce("t", idempotent(producer_id, 0, b"a", epoch=1))).error_code == 0
    for sequence, epoch, code in (
        (2, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (1, 0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, 2, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ):
        row = await wire.produce("t", idempotent(producer_id, sequence, b"x", epoch=epoch))
        assert row.error_code == code
    assert (await wire.produce("t", idempotent(producer_id, 0, b"b", epoch=2))).error_code == 0
    assert await wire.values("t") == [b"a", b"b"]


@pytest.mark.proves("batch-before-its-predecessor")
@pytest.mark.parametrize("partition", [0, 1])
async def test_later_batches_do_not_overtake_a_temporarily_refused_batch(broker: Harness, partition: int) -> None:
    wire = await broker.wire()
    producer_id = await wire.new_producer()
    refused = await wire.produce("t", idempotent(producer_id, 0, b"a"), partition=partition)
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await wire.create_topic("t", partitions=2)
    early = await wire.produce("t", idempotent(producer_id, 1, b"b"), partition=partition)
    assert early.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "as if the log knew that one is missing"
    other = await wire.produce("t", idempotent(producer_id, 7, b"c"), partition=1 - partition)
    assert other.error_code == 0, "nothing was refused there: its producer may have been forgotten (KIP-360)"
    for sequence, value in enumerate((b"a", b"b")):
        row = await wire.produce("t", idempotent(producer_id, sequence, value), partition=partition)
        assert (row.error_code, row.base_offset) == (0, sequence)


async def test_pipelined_produces_are_answered_in_order_and_appended_in_order(either_broker: Harness) -> None:
    wire = await either_broker.wire()
    await wire.create_topic("t")
    producer_id = await wire.new_producer()
    for i in range(100):
        wire.send(produce_request("t", idempotent(producer_id, i, b"%d" % i)))
    for i in range(100):
        response = await wire.receive()
        assert response.responses[0].partition_responses[0].base_offset == i


async def test_producer_ids_are_never_handed_out_twice(broker: Harness) -> None:
    wire = await broker.wire()
    ids = [await wire.new_producer() for _ in range(5)]
    others = [await broker.wire() for _ in range(5)]
    ids += await asyncio.gather(*(other.new_producer() for other in others))
    await broker.restart()
    ids += [await (await broker.wire()).new_producer() for _ in range(5)]
    assert len(set(ids)) == len(ids) == 15


async def test_init_producer_id_refuses_invalid_requests(broker: Harness) -> None:
    wire = await broker.wire()
    for fields, code in (
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None, "producer_id": 4}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "t"}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ):
        response = await wire.call(InitProducerIdRequest(transaction_timeout_ms=2147483647, **fields))  # type: ignore[arg-type]
        assert (ErrorCode(response.error_code), response.producer_id) == (code, -1)


async def test_producer_ids_come_from_durable_blocks(start_broker: StartBroker) -> None:
    broker = await start_broker(durability="os")
    assert broker.node is not None
    producer_ids = broker.node.broker.producer_ids
    first = await producer_ids.next("principal User:a")
    entry = await broker.node.broker.store.get(PRODUCER_NUMBERS)
    assert entry is not None
    assert int(entry.value) > first % NUMBERS  # after a crash the ids begin above all allocated ones


@pytest.mark.parametrize("codec", range(5))
async def test_a_compacted_topic_refuses_records_that_cannot_be_read(broker: Harness, codec: int) -> None:
    wire = await broker.wire()
    await wire.create_topic("t", cleanup_policy="compact")
    garbled = bytearray(build_batch([Record(offset=0, timestamp=1, key=b"k", value=b"v" * 200, headers=())]))
    garbled[61:] = b"\xff\x7f\x00" * len(garbled[61:])
    garbled[8:12] = (len(garbled) - 12).to_bytes(4, "big")
    garbled[22] = codec
    seal(garbled)
    row = await wire.produce("t", bytes(garbled))
    assert row.error_code in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
    assert broker.log.of("request_failed") == []


@pytest.mark.proves("decompression-bomb")
async def test_a_compacted_topic_refuses_a_decompression_bomb(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("t", cleanup_policy="compact")
    bomb = build_batch([Record(offset=0, timestamp=1, key=b"k", value=bytes(120 << 20), headers=())], codec=4)
    assert len(bomb) < 1 << 20
    row = await wire.produce("t", bomb)
    assert row.error_code in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)
    assert broker.log.of("request_failed") == []


async def test_a_producer_that_disconnects_during_commits_leaves_no_waiter() -> None:
    """The exceptions of its futures are consumed: asyncio does not log them as never retrieved."""
    loop = asyncio.get_running_loop()
    unseen: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: unseen.append(context))
    waiters = [OffsetWaiters() for _ in range(3)]
    partitions = [
        SimpleNamespace(topic="t", index=index, committing=lambda offset, each=each: each.wait_for(offset, loop))
        for index, each in enumerate(waiters)
    ]
    waiting = loop.create_task(
        k00_appends._when_committed(
            ProduceResponse(), [(partition, 1) for partition in partitions], 10_000, cast("Any", None)
        )
    )
    await asyncio.sleep(0)
    waiters[2].fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads it"))
    waiting.cancel()
    await asyncio.wait([waiting])
    for each in waiters:
        each.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads it"))
    del waiting, waiters, partitions
    gc.collect()
    assert unseen == []
