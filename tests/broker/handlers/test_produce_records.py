"""The record checks of Produce: every record is checked before its append, and other clients are not delayed."""

import asyncio
import os

import pytest
from broker.conftest import StartBroker
from broker.harness import Harness, Wire, batch, headers_of, produce_request
from msgspec.structs import replace
from semel_broker.config.limits import MIB, Limits
from semel_protocol.batch import HEADER_BYTES, LOG_APPEND_TIME, pack_batch, read_header
from semel_protocol.compression import compress
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from semel_protocol.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from semel_protocol.messages.k12_heartbeat import HeartbeatRequest
from semel_protocol.records import Record, build_batch

NOW = 1_700_000_000_000
CODECS = pytest.mark.parametrize("codec", range(5))


def altered(data: bytes, body: bytes | None = None, **fields: int) -> bytes:
    """The batch with replaced header fields, and perhaps records, and a valid CRC."""
    return pack_batch(replace(read_header(data), **fields), data[HEADER_BYTES:] if body is None else body)


@pytest.mark.proves("unreadable-batch")
@CODECS
async def test_random_bytes_under_a_good_crc_are_not_stored(wire: Wire, codec: int) -> None:
    await wire.create_topic("t")
    for body in (os.urandom(50), compress(codec, os.urandom(50))):
        row = await wire.produce("t", altered(batch(b"x", codec=codec), body))
        assert (row.error_code, row.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert (await wire.produce("t", batch(b"good", codec=codec))).base_offset == 0


@pytest.mark.proves("invalid-batch")
@CODECS
async def test_two_billion_records_in_eight_bytes_are_not_stored(wire: Wire, codec: int) -> None:
    await wire.create_topic("t")
    body = compress(codec, batch(b"x")[HEADER_BYTES:])
    lie = altered(batch(b"x", codec=codec), body, record_count=2**31 - 1, last_offset_delta=2**31 - 2)
    assert (await wire.produce("t", lie)).error_code == ErrorCode.INVALID_RECORD
    assert (await wire.produce("t", batch(b"good"))).base_offset == 0


@pytest.mark.proves("invalid-values")
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"max_timestamp": NOW - 1}, ErrorCode.INVALID_TIMESTAMP),
        ({"max_timestamp": -2}, ErrorCode.INVALID_TIMESTAMP),
        ({"attributes": LOG_APPEND_TIME}, ErrorCode.INVALID_TIMESTAMP),
        ({"producer_id": -2}, ErrorCode.INVALID_RECORD),
        ({"producer_id": -(2**63)}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 5, "producer_epoch": -1, "base_sequence": 0}, ErrorCode.INVALID_RECORD),
    ],
)
async def test_invalid_batch_headers_are_refused(wire: Wire, fields: dict[str, int], code: ErrorCode) -> None:
    await wire.create_topic("t")
    row = await wire.produce("t", altered(batch(b"x", timestamp=NOW), **fields))
    assert (ErrorCode(row.error_code), row.base_offset) == (code, -1)


@pytest.mark.proves("invalid-values")
@CODECS
async def test_a_missing_max_timestamp_is_computed(wire: Wire, codec: int) -> None:
    """As in Kafka: sarama below 1.45.1 sets none, and lookups by time need it."""
    await wire.create_topic("t")
    records = [Record(n, NOW + (7, 30, 3)[n], b"k", b"v") for n in range(3)]
    for stated in (-1, NOW + 7, NOW + 5000):
        row = await wire.produce("t", altered(build_batch(records, codec=codec), max_timestamp=stated))
        assert row.error_code == 0
    stored = headers_of((await wire.fetch("t", 0)).records)
    assert [header.max_timestamp for header in stored] == [NOW + 30] * 3
    asked = ListOffsetsRequestTopic(
        name="t", partitions=[ListOffsetsRequestPartition(partition_index=0, timestamp=NOW + 20)]
    )
    answer = await wire.call(ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[asked]))
    assert (answer.topics[0].partitions[0].offset, answer.topics[0].partitions[0].timestamp) == (1, NOW + 30)


@pytest.mark.proves("invalid-values")
async def test_each_records_timestamp_has_to_be_within_bounds(wire: Wire) -> None:
    """Also the timestamps of single records, not only those in the header."""
    await wire.create_topic("t", message_timestamp_after_max_ms="1000", message_timestamp_before_max_ms=str(10**15))
    now_ms = 4_000_000_000_000
    lie = altered(build_batch([Record(0, NOW), Record(1, now_ms)]), max_timestamp=NOW)
    assert (await wire.produce("t", lie)).error_code == ErrorCode.INVALID_TIMESTAMP


BEFORE = {"message_timestamp_before_max_ms": "1000"}


@CODECS
@pytest.mark.parametrize(
    ("timestamps", "settings", "code", "stated"),
    [
        ([-1], {}, 0, -1),
        ([-5], {}, 0, -1),
        ([-2, -9], {}, 0, -1),
        ([-5, NOW, -7], {}, 0, NOW),
        ([-1, NOW, -1], {}, 0, NOW),
        ([NOW, -1], {}, 0, NOW),
        ([-1, -1], BEFORE, 0, -1),
        ([-5], BEFORE, ErrorCode.INVALID_TIMESTAMP, None),
        ([-1, -2], BEFORE, ErrorCode.INVALID_TIMESTAMP, None),
        ([-1, NOW], BEFORE, ErrorCode.INVALID_TIMESTAMP, None),
        ([-1, 4_000_000_000_000], {}, ErrorCode.INVALID_TIMESTAMP, None),
        ([-1, 4_000_000_000_000], {"message_timestamp_type": "LogAppendTime"}, 0, None),
        ([-5, NOW], BEFORE | {"message_timestamp_type": "LogAppendTime"}, 0, None),
    ],
)
async def test_timestamps_below_zero_are_taken_as_in_kafka(
    wire: Wire, codec: int, timestamps: list[int], settings: dict[str, str], code: int, stated: int | None
) -> None:
    """Measured on Kafka 4.3.1: -1 is no timestamp and has no bounds; others below 0 have the bounds of each timestamp,
    and the stored maximum is at least -1."""
    await wire.create_topic("t", **settings)
    data = build_batch([Record(n, timestamp, None, b"v") for n, timestamp in enumerate(timestamps)], codec=codec)
    for maximum in (None, -1, max(timestamps), NOW + 10**6):
        row = await wire.produce("t", data if maximum is None else altered(data, max_timestamp=maximum))
        assert (ErrorCode(row.error_code), row.base_offset >= 0) == (ErrorCode(code), code == 0), maximum
    if stated is not None:
        stored = headers_of((await wire.fetch("t", 0)).records)
        assert [header.max_timestamp for header in stored] == [stated] * 4


async def test_one_undated_record_does_not_hide_a_record_out_of_bounds(wire: Wire) -> None:
    """Also among records of one layout, which are compared by columns, with deltas of two bytes."""
    await wire.create_topic("t", message_timestamp_before_max_ms="1000")
    records = [Record(n, -1 if n % 3 else 3000 + n, None, b"v") for n in range(100)]
    assert (await wire.produce("t", build_batch(records))).error_code == ErrorCode.INVALID_TIMESTAMP
    records = [Record(n, -1, None, b"v") for n in range(100)]
    assert (await wire.produce("t", build_batch(records))).error_code == 0


# --- long work -----------------------------------------------------------------------------------------------


def heavy(producer_id: int = -1, sequence: int = -1, rows: int = 6000) -> bytes:
    """A batch of records of many sizes whose check takes several turns (see `slow`)."""
    epoch = -1 if producer_id < 0 else 0
    records = [Record(n, NOW, None, b"v" * (n % 7)) for n in range(rows)]
    return build_batch(records, codec=3, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


@pytest.fixture
async def slow(start_broker: StartBroker) -> Harness:
    """A broker that does little work on records in one turn."""
    broker = await start_broker(durability="os")
    assert broker.node is not None
    broker.node.broker.work_turns._turn_cost = broker.node.broker.work_turns._left = 20_000
    return broker


@pytest.mark.proves("checks-block")
async def test_batches_keep_their_order_when_some_checks_are_long(slow: Harness) -> None:
    wire = await slow.wire()
    await wire.create_topic("t")
    ours = await wire.new_producer()
    light = batch(b"light", producer_id=ours, producer_epoch=0, base_sequence=6000)
    batches = [heavy(ours, 0), light, heavy(ours, 6001)]
    for data in batches:
        wire.send(produce_request("t", data))
    rows = [(await wire.receive()).responses[0].partition_responses[0] for _ in batches]
    assert [(row.error_code, row.base_offset) for row in rows] == [(0, 0), (0, 6000), (0, 6001)]
    again = await wire.produce("t", heavy(ours, 6001))
    assert (again.error_code, again.base_offset) == (0, 6001)


@pytest.mark.proves("checks-block")
async def test_other_connections_are_served_during_record_checks(slow: Harness) -> None:
    """Some 200 slices of checks are queued."""
    busy = [await slow.wire() for _ in range(5)]
    await busy[0].create_topic("t")
    bystander = await slow.wire()
    for wire in busy:
        for _ in range(4):
            wire.send(produce_request("t", heavy()))
        await wire.writer.drain()
    answered = 0

    async def answers(wire: Wire) -> list[ErrorCode]:
        return [(await wire.receive()).responses[0].partition_responses[0].error_code for _ in range(4)]

    done = asyncio.gather(*map(answers, busy))
    while not done.done():
        await bystander.call(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))
        answered += 1
    assert done.result() == [[0] * 4] * 5
    assert answered > 40


async def test_a_checked_batch_is_refused_if_its_topic_was_deleted(slow: Harness) -> None:
    wire = await slow.wire()
    await wire.create_topic("t")
    assert slow.node is not None
    lock = slow.node.broker.work_turns._lock
    async with lock:  # the rest of the check cannot begin before the topic is deleted
        wire.send(produce_request("t", heavy()))
        await wire.writer.drain()
        while not lock._waiters:
            await asyncio.sleep(0)
        await slow.node.broker.topics.delete("t")
    row = (await wire.receive()).responses[0].partition_responses[0]
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_long_check_refuses_only_its_own_batch(slow: Harness) -> None:
    wire = await slow.wire()
    await wire.create_topic("t", partitions=3)
    broken = altered(heavy(), record_count=6001, last_offset_delta=6000)
    rows = [ProduceRequestPartition(index=i, records=data) for i, data in enumerate((heavy(), broken, batch(b"x")))]
    topics = [ProduceRequestTopic(name="t", partition_data=rows)]
    answer = await wire.call(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics))
    codes = [row.error_code for row in answer.responses[0].partition_responses]
    assert codes == [0, ErrorCode.INVALID_RECORD, 0]


async def test_a_decompression_bomb_is_refused_and_the_next_batch_appended(wire: Wire) -> None:
    await wire.create_topic("t")
    bomb = build_batch([Record(0, NOW, b"k", bytes(Limits().inflated_batch_bytes_max + MIB))], codec=4)
    assert (await wire.produce("t", bomb)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (await wire.produce("t", batch(b"x"))).base_offset == 0
