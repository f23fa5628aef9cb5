"""Fetching: how the bytes of a partition are processed, and how the fetcher requests them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import pytest
from client.consuming import take, tp, until
from client.fake_broker import NO_LEADER, FakeBroker
from semel._consume.records import Record
from semel._group.offsets import EARLIEST_TIMESTAMP
from semel._subscription.fetch_buffer import Decoding, FetchBuffer
from semel.consumer import Consumer
from semel.errors import (
    CorruptRecordException,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    TopicAuthorizationFailedError,
)
from semel_protocol.batch import HEADER_BYTES, iterate, read_header, seal
from semel_protocol.control import ControlType, EndTxnMarker, build_marker
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k01_fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponseAbortedTransaction,
    FetchResponsePartition,
    FetchResponseTopic,
)
from semel_protocol.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from semel_protocol.records import Record as Stored
from semel_protocol.records import build_batch, decode_batch, rebuild_batch

DECODING = Decoding()


def batch(base: int, *values: bytes, **settings: Any) -> bytes:
    records = [Stored(at, 1000 + at, b"k", value) for at, value in enumerate(values, start=base)]
    return build_batch(records, base_offset=base, **settings)


def compacted(data: bytes, *kept: int) -> bytes:
    """The batch as compaction leaves it: the records at these offsets, the header's span unchanged."""
    return rebuild_batch(read_header(data), [record for record in decode_batch(data) if record.offset in kept])


def marker(base: int, producer_id: int, kind: ControlType) -> bytes:
    return build_marker(
        EndTxnMarker(kind, 0), producer_id=producer_id, producer_epoch=0, base_offset=base, timestamp_ms=1
    )


def transactional(base: int, producer_id: int, *values: bytes) -> bytes:
    return batch(base, *values, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)


def buffer_at(offset: int) -> FetchBuffer:
    buffer = FetchBuffer(tp(0))
    buffer.restart(offset)
    return buffer


def taken(buffer: FetchBuffer, count: int = 1000) -> list[Record]:
    buffer.fill(DECODING, count)
    return buffer.take(count)


def values(records: list[Record]) -> list[bytes]:
    return [record.value for record in records]


# The buffer


def test_records_below_the_position_are_skipped() -> None:
    buffer = buffer_at(12)
    buffer.add(batch(10, b"a", b"b", b"c", b"d") + batch(14, b"e"))
    assert [(record.offset, record.value) for record in taken(buffer)] == [(12, b"c"), (13, b"d"), (14, b"e")]
    assert buffer.next_offset == buffer.fetch_offset == 15


def test_a_partial_batch_at_the_end_is_left_for_the_next_fetch() -> None:
    second = batch(1, b"b")
    for cut in range(len(second)):
        buffer = buffer_at(0)
        assert buffer.add(batch(0, b"a") + second[:cut])
        assert values(taken(buffer)) == [b"a"]
        assert buffer.fetch_offset == 1
    assert not buffer_at(0).add(second[:-1])


def test_gaps_of_compaction_and_emptied_batches_move_the_position() -> None:
    buffer = buffer_at(0)
    emptied = bytes.fromhex(
        "0000000000000009000000310000000002e0675809000000000002ffffffffffffffff"
        "0000018bcfe5680700000000000004d200020000000500000000"
    )
    buffer.add(compacted(batch(0, b"a", b"b", b"c", b"d", b"e"), 0, 3) + batch(6, b"g") + emptied)
    assert [record.offset for record in taken(buffer)] == [0, 3, 6]
    assert buffer.next_offset == 12
    assert buffer.size_bytes == 0


def test_control_batches_are_not_handed_out() -> None:
    buffer = buffer_at(0)
    buffer.add(transactional(0, 7, b"a") + marker(1, 7, ControlType.COMMIT))
    assert values(taken(buffer)) == [b"a"]
    assert buffer.next_offset == 2


def test_read_committed_leaves_out_aborted_transactions_by_the_list() -> None:
    log = (
        transactional(0, 7, b"aborted")
        + transactional(1, 8, b"kept")
        + batch(2, b"plain")
        + transactional(3, 7, b"aborted too")
        + marker(4, 7, ControlType.ABORT)
        + transactional(5, 7, b"next transaction of the same producer")
        + marker(6, 7, ControlType.COMMIT)
        + marker(7, 8, ControlType.COMMIT)
        + transactional(8, 7, b"aborted again")
        + marker(9, 7, ControlType.ABORT)
    )
    committed = buffer_at(0)
    committed.add(log, aborted=[(8, 7), (0, 7)])
    assert values(taken(committed)) == [b"kept", b"plain", b"next transaction of the same producer"]
    assert committed.next_offset == 10
    uncommitted = buffer_at(0)
    uncommitted.add(log)
    assert len(taken(uncommitted)) == 6


def test_an_aborted_transaction_that_began_before_the_fetch_is_left_out() -> None:
    buffer = buffer_at(5)
    buffer.add(transactional(5, 7, b"aborted") + marker(6, 7, ControlType.ABORT), aborted=[(0, 7)])
    assert taken(buffer) == []
    assert buffer.next_offset == 7


@pytest.mark.parametrize("codec", range(5))
def test_batches_of_every_codec_are_held_as_they_came(codec: int) -> None:
    data = batch(0, *[b"x" * 100] * 50, codec=codec)
    buffer = buffer_at(0)
    buffer.add(data)
    assert buffer.size_bytes == len(data)
    assert len(taken(buffer)) == 50


def test_only_as_many_batches_are_decoded_as_are_needed() -> None:
    buffer = buffer_at(0)
    buffer.add(b"".join(batch(n * 10, *[b"v"] * 10) for n in range(10)))
    before = buffer.size_bytes
    assert len(taken(buffer, 15)) == 15
    assert len(buffer.records) - buffer.at == 5
    assert buffer.size_bytes == before * 8 // 10
    assert [record.offset for record in taken(buffer, 7)] == list(range(15, 22))


def test_a_damaged_batch_is_an_error_once_the_records_before_it_are_taken() -> None:
    good, bad = batch(0, b"a"), bytearray(batch(1, b"b"))
    bad[-2] ^= 1
    buffer = buffer_at(0)
    buffer.add(good + bytes(bad))
    assert values(taken(buffer)) == [b"a"]
    for _ in range(2):
        with pytest.raises(
            CorruptRecordException, match=r"t-0 at offset 1: the batch at offset 1 .*CRC.*seek\(2\) continues after it"
        ):
            taken(buffer)
    unchecked = buffer_at(0)
    unchecked.add(good + bytes(bad))
    unchecked.fill(Decoding(check_crcs=False), 10)
    assert len(unchecked.take(10)) == 2


@pytest.mark.proves("unreadable-batch")
def test_an_unreadable_batch_is_named_with_the_offset_after_it() -> None:
    """The log holds a batch that no reader can decode."""
    lie = bytearray(batch(1, b"b", b"b", b"b"))
    lie[HEADER_BYTES:] = b"\xff" * (len(lie) - HEADER_BYTES)
    seal(lie)
    words = r"t-0 at offset 1: the batch at offset 1 cannot be read: .*seek\(4\) continues after it"
    for behind in (b"", batch(4, b"e")):
        buffer = buffer_at(0)
        buffer.add(batch(0, b"a") + bytes(lie) + behind)
        assert values(taken(buffer)) == [b"a"]
        with pytest.raises(CorruptRecordException, match=words):
            taken(buffer)
    in_two_answers = buffer_at(1)
    in_two_answers.add(bytes(lie))
    in_two_answers.add(batch(4, b"e"))
    with pytest.raises(CorruptRecordException, match=words):
        taken(in_two_answers)


@pytest.mark.proves("crc-of-skipped-batches")
@pytest.mark.parametrize("at", [22, 23, 25, 26, 50])
@pytest.mark.parametrize(
    "skipped",
    [
        marker(1, 7, ControlType.ABORT),
        transactional(1, 7, b"never committed"),
        batch(1, b"seems to be a marker when bit 5 of byte 22 is set"),
    ],
    ids=["marker", "aborted", "data"],
)
def test_a_damaged_batch_is_an_error_even_if_its_header_would_skip_it(skipped: bytes, at: int) -> None:
    """A batch with a marker or aborted records moves the position past it without a look at its records."""
    bad = bytearray(skipped)
    bad[at] ^= 0x80 if at == 23 else 0x20
    buffer = buffer_at(0)
    buffer.add(batch(0, b"a") + bytes(bad) + batch(2, b"c"), [(1, 7)])
    assert values(taken(buffer)) == [b"a"]
    with pytest.raises(CorruptRecordException, match="t-0 at offset 1"):
        taken(buffer)


def test_bytes_that_are_no_batches_are_an_error() -> None:
    with pytest.raises(CorruptRecordException, match="batch length 0"):
        buffer_at(0).add(bytes(100))


def test_timestamps_and_their_type_come_from_the_batch() -> None:
    buffer = buffer_at(0)
    buffer.add(batch(0, b"a"))
    (record,) = taken(buffer)
    assert (record.timestamp, record.timestamp_type) == (1000, 0)


# The fetcher


class FetchBroker(FakeBroker):
    """Answers Fetch from `log` (the batches of each partition), or with the faults queued in `refusals`."""

    def __init__(self, partitions: int = 1) -> None:
        super().__init__({"t": partitions})
        self.log_of: dict[int, bytes] = {}
        self.ends: dict[int, int] = {}
        self.refusals: deque[int] = deque()
        self.aborted: list[FetchResponseAbortedTransaction] = []
        self.in_flight = self.in_flight_max = 0
        self.hold = asyncio.Event()
        self.hold.set()
        self.answers[1] = self.fetch
        self.answers[2] = self.list_offsets

    def put(self, partition: int, *batches: bytes, end: int) -> None:
        self.log_of[partition] = b"".join(batches)
        self.ends[partition] = end

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        rows = []
        room = request.max_bytes
        await self.hold.wait()
        for row in request.topics[0].partitions:
            end = self.ends.get(row.partition, 0)
            answer = FetchResponsePartition(partition_index=row.partition, high_watermark=end, last_stable_offset=end)
            if self.refusals and (code := self.refusals.popleft()):
                answer.error_code = code
            elif row.fetch_offset > end:
                answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            elif row.fetch_offset < end:
                answer.records = self._from(row.partition, row.fetch_offset, min(row.partition_max_bytes, room))
                answer.aborted_transactions = self.aborted if request.isolation_level else None
                room = max(room - len(answer.records), 0)
            rows.append(answer)
        if not any(row.records or row.error_code for row in rows):
            await asyncio.sleep(request.max_wait_ms / 1000)
        self.in_flight -= 1
        return FetchResponse(responses=[FetchResponseTopic(topic="t", partitions=rows)])

    def _from(self, partition: int, offset: int, bytes_max: int) -> bytes:
        out = b""
        for header, view in iterate(self.log_of[partition]):
            if header.next_offset > offset and (not out or len(out) + header.size <= bytes_max):
                out += bytes(view)
        return out

    async def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        rows = [
            ListOffsetsResponsePartition(
                partition_index=row.partition_index,
                offset=0 if row.timestamp == -2 else self.ends.get(row.partition_index, 0),
            )
            for row in request.topics[0].partitions
        ]
        return ListOffsetsResponse(topics=[ListOffsetsResponseTopic(name="t", partitions=rows)])


@pytest.fixture
async def fetched() -> AsyncIterator[FetchBroker]:
    async with FetchBroker(3) as broker:
        yield broker


def consumer_of(broker: FakeBroker, **settings: Any) -> Consumer:
    merged = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50, "retry_backoff_ms": 10, **settings}
    return Consumer("t", bootstrap_servers=broker.address, **merged)


def batches(count: int, size: int = 100) -> list[bytes]:
    return [batch(n, b"%0*d" % (size, n)) for n in range(count)]


async def test_one_fetch_is_in_flight_per_broker_and_all_partitions_come_in_turn(fetched: FetchBroker) -> None:
    for partition in range(3):
        fetched.put(partition, *batches(50), end=50)
    async with consumer_of(fetched, max_poll_records=10) as consumer:
        turns: list[int] = []
        while len(turns) < 15:
            for partition, rows in (await consumer.getmany(timeout_ms=2000)).items():
                assert len(rows) == 10
                turns.append(partition.partition)
    assert fetched.in_flight_max == 1
    assert turns == [0, 1, 2] * 5


async def test_fetched_bytes_stay_within_the_bound(fetched: FetchBroker) -> None:
    for partition in range(3):
        fetched.put(partition, *batches(500, 1000), end=500)
    settings = {"fetch_buffer_bytes": 100_000, "max_partition_fetch_bytes": 40_000, "fetch_max_bytes": 60_000}
    async with consumer_of(fetched, **settings) as consumer:
        fetcher = consumer._fetcher
        await until(lambda: fetcher.buffered_bytes > 75_000)
        await asyncio.sleep(0.2)
        assert fetcher.buffered_bytes <= 100_000 + 3 * 1100
        asked = len(fetched.seen(1))
        await asyncio.sleep(0.2)
        assert len(fetched.seen(1)) == asked, "a full buffer asks for nothing"
        assert len(await take(consumer, 1500)) == 1500
        assert fetcher.buffered_bytes == 0


async def test_fetching_continues_while_the_application_works(fetched: FetchBroker) -> None:
    fetched.put(0, *batches(100, 1000), end=100)
    async with consumer_of(fetched, max_partition_fetch_bytes=20_000) as consumer:
        await take(consumer, 1)
        await until(lambda: len(fetched.seen(1)) >= 2)


async def test_an_answer_to_a_request_from_before_a_seek_is_dropped(fetched: FetchBroker) -> None:
    fetched.put(0, *batches(20), end=20)
    async with consumer_of(fetched) as consumer:
        fetched.hold.clear()
        consumer.seek(tp(0), 3)
        await until(lambda: fetched.in_flight == 1)
        consumer.seek(tp(0), 15)
        fetched.hold.set()
        assert (await consumer.getone()).offset == 15


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
async def test_stale_metadata_is_refreshed_and_the_fetch_repeated(fetched: FetchBroker, code: ErrorCode) -> None:
    fetched.put(0, *batches(5), end=5)
    fetched.refusals.extend([code, code, code])
    async with consumer_of(fetched) as consumer:
        before = len(fetched.seen(3))
        assert len(await take(consumer, 5)) == 5
        assert len(fetched.seen(3)) > before


async def test_a_final_error_of_one_partition_does_not_stop_the_others(fetched: FetchBroker) -> None:
    fetched.put(1, *batches(5), end=5)
    fetched.refusals.extend([ErrorCode.TOPIC_AUTHORIZATION_FAILED])
    async with consumer_of(fetched) as consumer:
        outcomes: list[Any] = []
        while len(outcomes) < 6:
            try:
                outcomes += [r.offset for rows in (await consumer.getmany(timeout_ms=500)).values() for r in rows]
            except TopicAuthorizationFailedError as error:
                outcomes.append(str(error))
    assert [outcome for outcome in outcomes if isinstance(outcome, int)] == [0, 1, 2, 3, 4]
    assert any("t-0" in outcome for outcome in outcomes if isinstance(outcome, str))


async def test_out_of_range_is_raised_after_the_records_before_it(fetched: FetchBroker) -> None:
    fetched.put(0, *batches(5), end=5)
    async with consumer_of(fetched, auto_offset_reset="none") as consumer:
        consumer.unsubscribe()
        consumer.assign([tp(0)])
        consumer.seek(tp(0), 0)
        assert len(await take(consumer, 5)) == 5
        fetched.ends[0] = 2  # an unclean truncation
        with pytest.raises(OffsetOutOfRangeError, match="no offset 5"):
            await asyncio.wait_for(consumer.getone(), 5)


@pytest.mark.proves("reset-asked-twice")
async def test_a_reset_takes_the_start_that_showed_that_the_position_is_gone(fetched: FetchBroker) -> None:
    """The next leader may have a lower log start.

    A second ListOffsets request led back to records that the application already had.
    """
    fetched.put(0, *batches(10), end=10)
    fetched.refusals.append(ErrorCode.OFFSET_OUT_OF_RANGE)
    starts = deque([8, 2])

    async def list_offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
        (row,) = request.topics[0].partitions
        offset = starts.popleft() if row.timestamp == EARLIEST_TIMESTAMP else 10
        answer = ListOffsetsResponsePartition(partition_index=0, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsResponseTopic(name="t", partitions=[answer])])

    fetched.answers[2] = list_offsets
    async with Consumer(bootstrap_servers=fetched.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([tp(0)])
        consumer.seek(tp(0), 5)
        assert [record.offset for record in await take(consumer, 2)] == [8, 9]


async def test_a_record_above_max_request_size_is_refused_by_size(fetched: FetchBroker) -> None:
    fetched.put(0, batch(0, b"x" * 500)[:-10], end=1)
    fetched._from = lambda *_: fetched.log_of[0]  # type: ignore[method-assign]
    async with consumer_of(fetched) as consumer:
        with pytest.raises(RecordTooLargeError, match="max_partition_fetch_bytes"):
            await consumer.getmany(timeout_ms=2000)


async def test_isolation_level_travels_and_aborted_transactions_are_left_out(fetched: FetchBroker) -> None:
    log = [transactional(0, 7, b"aborted"), marker(1, 7, ControlType.ABORT), batch(2, b"plain")]
    fetched.put(0, *log, end=3)
    fetched.aborted = [FetchResponseAbortedTransaction(producer_id=7, first_offset=0)]
    async with consumer_of(fetched, isolation_level="read_committed") as consumer:
        assert values(await take(consumer, 1)) == [b"plain"]
        assert fetched.seen(1)[0].isolation_level == 1
        assert fetched.seen(2)[0].isolation_level == 1


async def test_a_lost_connection_is_opened_again_and_nothing_is_read_twice(fetched: FetchBroker) -> None:
    fetched.put(0, *batches(200, 1000), end=200)
    async with consumer_of(fetched, max_partition_fetch_bytes=20_000, reconnect_backoff_ms=5) as consumer:
        seen = []
        while len(seen) < 200:
            seen += [record.offset for record in await take(consumer, 40)]
            for writer in list(fetched.connections):
                writer.transport.abort()
    assert seen == list(range(200))


async def test_metadata_is_asked_for_at_intervals_while_a_partition_has_no_leader(fetched: FetchBroker) -> None:
    async with consumer_of(fetched, retry_backoff_ms=100) as consumer:
        await until(lambda: len(fetched.seen(1)) > 1)
        fetched.leader = NO_LEADER
        await consumer._cluster.refresh()
        before = len(fetched.seen(3))
        await asyncio.sleep(2)
        assert 10 <= len(fetched.seen(3)) - before <= 21
        fetched.leader = 0
        fetches = len(fetched.seen(1))
        await until(lambda: len(fetched.seen(1)) > fetches, 1)


async def test_metadata_is_asked_for_at_intervals_while_a_partition_without_a_position_has_no_leader(
    fetched: FetchBroker,
) -> None:
    fetched.leader = NO_LEADER
    async with consumer_of(fetched, retry_backoff_ms=100) as consumer:
        before = len(fetched.seen(3))
        await asyncio.sleep(2)
        assert 10 <= len(fetched.seen(3)) - before <= 21
        fetched.leader = 0
        assert await consumer.position(tp(0)) == 0
