"""The BatchReader: every committed batch of a range and no other, whatever happens to leaders and logs meanwhile."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from broker.harness import Harness
from client.consuming import produce, tp, until
from client.moving_cluster import FETCH, MovingCluster
from semel import Admin, BatchReader, Consumer, NewTopic, Producer, RecordsToDelete
from semel.batch_reader import BatchReaderConfig, Bounds
from semel.errors import (
    CorruptRecordException,
    IllegalStateError,
    KafkaConfigurationError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from semel_protocol.batch import iterate
from semel_protocol.records import Record, build_batch, decode_batch, rebuild_batch
from support.against import wait_for_leaders


def reader(bootstrap: str, **settings: Any) -> BatchReader:
    return BatchReader(bootstrap_servers=bootstrap, retry_backoff_ms=5, retry_backoff_max_ms=20, **settings)


async def values(reader: BatchReader, start: int, end: int, topic: str = "t") -> list[bytes | None]:
    """The values of the range, by the protocol's decoder."""
    found = []
    seen = start
    async for fetched in reader.read(tp(0, topic), start, end):
        assert fetched.topic_partition == tp(0, topic)
        assert fetched.next_offset > seen
        seen = fetched.next_offset
        for header, at in fetched.batches:
            rows = decode_batch(memoryview(fetched.data)[at : at + header.size], header)
            found += [row.value for row in rows if start <= row.offset < end]
    return found


def numbered(first: int, after: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, after)]


# Against a real broker


async def fill(bootstrap: str, count: int, **settings: Any) -> None:
    async with Producer(bootstrap_servers=bootstrap, linger_ms=1, **settings) as producer:
        for value in numbered(0, count):
            await producer.send("t", value, partition=0)
        await producer.flush()


async def test_any_range_gives_its_records(bootstrap: str) -> None:
    await fill(bootstrap, 1000, max_batch_size=300)
    async with reader(bootstrap) as one:
        assert await values(one, 0, 1000) == numbered(0, 1000)
        assert await values(one, 313, 314) == numbered(313, 314)
        assert await values(one, 313, 777) == numbered(313, 777)
        assert await values(one, 5, 5) == []


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_compressed_batches_stay_compressed(bootstrap: str, codec: Any) -> None:
    await fill(bootstrap, 300, compression_type=codec)
    async with reader(bootstrap) as one:
        codecs = {header.codec async for fetched in one.read(tp(0), 0, 300) for header, _ in fetched.batches}
        assert len(codecs) == 1
        assert 0 not in codecs
        assert await values(one, 0, 300) == numbered(0, 300)


async def test_a_long_range_takes_many_fetches_of_bounded_size(bootstrap: str) -> None:
    await fill(bootstrap, 500, max_batch_size=500)
    async with reader(bootstrap, max_partition_fetch_bytes=1000) as one:
        sizes = [len(fetched.data) async for fetched in one.read(tp(0), 0, 500)]
        assert len(sizes) > 5
        assert max(sizes) <= 1000
        assert await values(one, 0, 500) == numbered(0, 500)


async def transaction(producer: Producer, values: list[bytes], *, commit: bool) -> None:
    await producer.begin_transaction()
    for value in values:
        await producer.send("t", value, partition=0)
    if commit:
        await producer.commit_transaction()
    else:
        await producer.flush()
        await producer.abort_transaction()


async def test_aborted_transactions_and_markers_are_left_out(bootstrap: str) -> None:
    async with Producer(bootstrap_servers=bootstrap, transactional_id="x") as producer:
        for n in range(6):
            await transaction(producer, [b"%d-%d" % (n, i) for i in range(3)], commit=n % 2 == 0)
    async with reader(bootstrap) as one:
        (bounds,) = (await one.bounds([tp(0)])).values()
        assert bounds == Bounds(0, 24)
        assert await values(one, 0, 24) == [b"%d-%d" % (n, i) for n in (0, 2, 4) for i in range(3)]
        assert await values(one, 4, 8) == [], "an aborted transaction and its marker"
    async with reader(bootstrap, isolation_level="read_uncommitted") as one:
        assert len(await values(one, 0, 24)) == 18


async def test_an_open_transaction_holds_the_latest_offset_back_and_reading_on_waits_for_it(bootstrap: str) -> None:
    async with Producer(bootstrap_servers=bootstrap, transactional_id="x") as producer, reader(bootstrap) as one:
        await transaction(producer, [b"0"], commit=True)
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"1", partition=0)
        assert await one.latest([tp(0)]) == {tp(0): 2}
        reading = asyncio.create_task(values(one, 0, 3))
        await asyncio.sleep(0.05)
        assert not reading.done()
        await producer.commit_transaction()
        assert await reading == [b"0", b"1"]


async def test_a_read_past_the_readable_end_times_out(bootstrap: str) -> None:
    await produce(bootstrap, numbered(0, 3))
    async with reader(bootstrap, default_api_timeout_ms=300, fetch_max_wait_ms=50) as one:
        with pytest.raises(
            KafkaTimeoutError, match=r"no records from offset 3 to 4 yet: t-0 is readable up to offset 3"
        ):
            await values(one, 0, 4)


async def test_a_deleted_offset_is_an_error_with_the_remaining_range(bootstrap: str) -> None:
    await fill(bootstrap, 100, max_batch_size=200)
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.delete_records({tp(0): RecordsToDelete(40)})
    async with reader(bootstrap) as one:
        with pytest.raises(OffsetOutOfRangeError, match="t-0 holds offsets 40 to 100; 39 is gone"):
            await values(one, 39, 100)
        assert await values(one, 40, 100) == numbered(40, 100)
        assert await one.bounds([tp(0)]) == {tp(0): Bounds(40, 100)}


async def test_a_missing_topic_is_an_error_within_the_timeout(bootstrap: str) -> None:
    async with reader(bootstrap) as one, asyncio.timeout(10):
        with pytest.raises(UnknownTopicOrPartitionError):
            await values(one, 0, 1, topic="absent")
        assert await one.partitions_of(["absent"]) == []
    async with Admin(bootstrap_servers=bootstrap) as admin:
        assert "absent" not in await admin.list_topics(), "reading creates no topics"


async def test_partitions_are_found_by_name_and_by_pattern(bootstrap: str) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin, reader(bootstrap) as one:
        await admin.create_topics([NewTopic("a-1", 2), NewTopic("a-2", 1), NewTopic("b", 1)])
        await wait_for_leaders(admin, tp(0, "a-1"), tp(1, "a-1"), tp(0, "a-2"), tp(0, "b"))
        assert await one.partitions_of(["b", "a-1"]) == [tp(0, "b"), tp(0, "a-1"), tp(1, "a-1")]
        assert await one.partitions_of(re.compile(r"a-\d")) == [tp(0, "a-1"), tp(1, "a-1"), tp(0, "a-2")]
        async with Consumer("b", bootstrap_servers=bootstrap, group_id="g"):
            assert await one.partitions_of(re.compile(".*-.*")) == [tp(0, "a-1"), tp(1, "a-1"), tp(0, "a-2")]
        await admin.create_topics([NewTopic("a-3", 1)])

        async def has_four() -> bool:  # Kafka's broker follows its controller
            return len(await one.partitions_of(re.compile(r"a-\d"))) == 4

        await until(has_four)


async def test_offsets_are_found_by_time(bootstrap: str) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for n in range(3):
            await producer.send_and_wait("t", b"v", partition=0, timestamp_ms=1000 + 10 * n)
    async with reader(bootstrap) as one:
        found = (await one.offsets_for_times({tp(0): 1005}))[tp(0)]
        assert found is not None
        assert (found.offset, found.timestamp) == (1, 1010)
        assert await one.offsets_for_times({tp(0): 1021}) == {tp(0): None}


async def test_it_must_be_running(bootstrap: str) -> None:
    one = reader(bootstrap)
    with pytest.raises(IllegalStateError, match="not started"):
        await one.latest([tp(0)])
    with pytest.raises(IllegalStateError, match="not started"):
        await values(one, 0, 1)


def test_settings_are_checked_as_a_consumers() -> None:
    with pytest.raises(KafkaConfigurationError, match="fetch_max_wait_ms=40000"):
        BatchReaderConfig(fetch_max_wait_ms=40_000)


async def test_a_reader_outlives_a_restart_of_the_broker(broker: Harness) -> None:
    broker.settings["port"] = str(broker.port)
    bootstrap = f"127.0.0.1:{broker.port}"
    await fill(bootstrap, 200, max_batch_size=200)
    async with reader(bootstrap, max_partition_fetch_bytes=500) as one:
        found = one.read(tp(0), 0, 200)
        first = await anext(found)
        await broker.restart()
        offsets = [first.next_offset] + [fetched.next_offset async for fetched in found]
        assert offsets == sorted(offsets)
        assert offsets[-1] == 200
        assert await values(one, 0, 200) == numbered(0, 200)


# Against brokers that act


@pytest.fixture
async def cluster() -> AsyncIterator[MovingCluster]:
    async with MovingCluster(3) as cluster:
        yield cluster


async def test_it_follows_the_leader(cluster: MovingCluster) -> None:
    for n in range(10):
        cluster.truth().put(b"%d" % n)
    async with reader(cluster.bootstrap) as one:
        assert await values(one, 0, 10) == numbered(0, 10)
        cluster.move(1)
        assert await values(one, 0, 10) == numbered(0, 10)
        await cluster.brokers[1].close()
        cluster.move(2)
        assert await values(one, 3, 10) == numbered(3, 10)


async def test_a_leader_that_has_not_caught_up_is_waited_for(cluster: MovingCluster) -> None:
    cluster.truth().put(*numbered(0, 5))
    late = cluster.truth().batches[-1]
    async with reader(cluster.bootstrap) as one:
        cluster.truth().batches.clear()
        cluster.truth().put(b"0", b"1")
        reading = asyncio.create_task(values(one, 3, 5))
        while len(cluster.seen(FETCH)) < 3:
            await asyncio.sleep(0.005)
        cluster.truth().batches[:] = [late]
        assert await reading == [b"3", b"4"]


async def test_a_range_whose_records_were_compacted_away_ends(cluster: MovingCluster) -> None:
    batch = build_batch([Record(0, 0, b"k", b"%d" % n) for n in range(6)], base_offset=0)
    header, view = next(iter(iterate(batch)))
    thin = rebuild_batch(header, [row for row in decode_batch(view, header) if row.offset in (1, 4)])
    cluster.truth().batches.append((0, 6, 0, thin))
    async with reader(cluster.bootstrap) as one:
        assert await values(one, 0, 6) == [b"1", b"4"]
        assert await values(one, 2, 4) == []


async def test_a_range_whose_last_offsets_have_no_records_ends(cluster: MovingCluster) -> None:
    """The leader's end is beyond it, and there are no bytes."""
    truth = cluster.truth()
    truth.put(b"0", b"1")
    truth.batches.append((2, 9, 0, b""))
    async with reader(cluster.bootstrap) as one:
        assert await values(one, 0, 9) == [b"0", b"1"]


async def test_a_damaged_batch_is_an_error_unless_crcs_are_not_looked_at(cluster: MovingCluster) -> None:
    cluster.truth().put(b"good")
    cluster.truth().put(b"evil")
    base, end, epoch, batch = cluster.truth().batches[1]
    cluster.truth().batches[1] = (base, end, epoch, batch.replace(b"evil", b"EVIL"))
    async with reader(cluster.bootstrap) as one:
        with pytest.raises(CorruptRecordException, match=r"t-0 at offset 1: the CRC of the batch at offset 1"):
            await values(one, 0, 2)
        assert await values(one, 0, 1) == [b"good"]
    async with reader(cluster.bootstrap, check_crcs=False) as one:
        assert await values(one, 0, 2) == [b"good", b"EVIL"]


async def test_the_next_fetch_is_in_flight_while_the_last_one_is_processed(cluster: MovingCluster) -> None:
    cluster.truth().put(b"0")
    async with reader(cluster.bootstrap) as one:
        found = one.read(tp(0), 0, 2)
        await anext(found)
        async with asyncio.timeout(5):
            while len(cluster.seen(FETCH)) < 2:
                await asyncio.sleep(0.005)
        await found.aclose()


async def test_a_reader_that_stops_early_leaves_nothing_behind(cluster: MovingCluster) -> None:
    cluster.truth().put(b"0")
    async with reader(cluster.bootstrap) as one:
        before = asyncio.all_tasks()
        async for _ in one.read(tp(0), 0, 5):
            break
        await asyncio.sleep(0.05)
        assert [task for task in asyncio.all_tasks() - before if "fetch t" in task.get_name()] == []
