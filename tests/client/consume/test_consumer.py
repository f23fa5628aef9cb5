"""The Consumer against a real broker: records, positions, commits, pauses, and the end of a consumer."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from broker.harness import Harness
from client.consuming import produce, take, tp, until
from semel import Producer
from semel.consumer import Consumer
from semel.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    IllegalOperation,
    IllegalStateError,
    KafkaConfigurationError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
)
from semel.serializers import NotReady
from semel.structs import OffsetAndMetadata


def consumer_of(bootstrap: str, *topics: str, **settings: object) -> Consumer:
    merged = {"auto_offset_reset": "earliest", "auto_commit_interval_ms": 60_000, **settings}
    return Consumer(*topics, bootstrap_servers=bootstrap, **merged)  # type: ignore[arg-type]


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % n for n in range(start, end)]


async def test_records_carry_all_that_was_sent(bootstrap: str) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await producer.send("t", b"v", key=b"k", headers=[("h", b"1"), ("n", None)], timestamp_ms=1_700_000_000_000)
        await producer.send("t", None, key=b"k")
    async with consumer_of(bootstrap, "t") as consumer:
        first, second = await take(consumer, 2)
    assert (first.topic, first.key, first.value, first.timestamp) == ("t", b"k", b"v", 1_700_000_000_000)
    assert (first.timestamp_type, first.checksum, first.headers) == (0, None, (("h", b"1"), ("n", None)))
    assert (first.serialized_key_size, first.serialized_value_size) == (1, 1)
    assert (second.offset, second.value, second.serialized_value_size) == (first.offset + 1, None, -1)


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_every_codec_is_read(bootstrap: str, codec: str | None) -> None:
    async with Producer(bootstrap_servers=bootstrap, compression_type=codec) as producer:  # type: ignore[arg-type]
        for value in numbers(0, 300):
            await producer.send("t", value)
    async with consumer_of(bootstrap, "t") as consumer:
        assert [record.value for record in await take(consumer, 300)] == numbers(0, 300)


async def test_iteration_getone_and_getmany_share_one_position(bootstrap: str) -> None:
    await produce(bootstrap, numbers(0, 100))
    async with consumer_of(bootstrap, "t") as consumer:
        seen = [(await consumer.getone()).value for _ in range(10)]
        async for record in consumer:
            seen.append(record.value)
            if len(seen) == 50:
                break
        assert await consumer.position(tp(0)) == 50
        seen += [record.value for record in await take(consumer, 50)]
    assert seen == numbers(0, 100)


async def test_iteration_ends_when_the_consumer_is_stopped(bootstrap: str) -> None:
    await produce(bootstrap, numbers(0, 3))
    consumer = consumer_of(bootstrap, "t")
    await consumer.start()
    seen = []

    async def read() -> None:
        async for record in consumer:
            seen.append(record.value)

    reading = asyncio.create_task(read())
    await until(lambda: len(seen) == 3)
    await consumer.stop()
    await asyncio.wait_for(reading, 5)
    with pytest.raises(ConsumerStoppedError):
        await consumer.getmany()
    await consumer.stop()


async def test_getmany_returns_at_most_max_records_within_its_timeout(bootstrap: str) -> None:
    await produce(bootstrap, numbers(0, 40))
    async with consumer_of(bootstrap, "t", max_poll_records=15) as consumer:
        assert [len(r) for r in (await consumer.getmany(timeout_ms=5000)).values()] == [15]
        assert [len(r) for r in (await consumer.getmany(timeout_ms=5000, max_records=5)).values()] == [5]
        await take(consumer, 20)
        before = asyncio.get_running_loop().time()
        assert await consumer.getmany(timeout_ms=100) == {}
        assert await consumer.getmany() == {}
        assert asyncio.get_running_loop().time() - before < 2


async def test_only_the_named_partitions_are_read_from(bootstrap: str, broker: Harness) -> None:
    await produce(bootstrap, numbers(0, 5), partition=0)
    await grow(bootstrap, 2)
    await produce(bootstrap, numbers(5, 10), partition=1)
    async with consumer_of(bootstrap) as consumer:
        consumer.assign([tp(0), tp(1)])
        assert (await consumer.getone(tp(1))).value == b"5"
        assert set(await consumer.getmany(tp(0), timeout_ms=5000)) == {tp(0)}


async def grow(bootstrap: str, count: int, topic: str = "t") -> None:
    """More partitions for a topic."""
    from semel_protocol.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsRequestTopic

    async with Producer(bootstrap_servers=bootstrap) as producer:
        connection = await producer._cluster.controller_connection()
        answer = await connection.request(
            CreatePartitionsRequest(
                topics=[CreatePartitionsRequestTopic(name=topic, count=count, assignments=None)],
                timeout_ms=5000,
                validate_only=False,
            ),
            timeout_ms=5000,
        )
    assert [row.error_code for row in answer.results] == [0]


async def test_seek_drops_what_was_fetched_before(bootstrap: str) -> None:
    await produce(bootstrap, numbers(0, 50))
    async with consumer_of(bootstrap, "t") as consumer:
        await take(consumer, 10)
        consumer.seek(tp(0), 45)
        assert [record.offset for record in await take(consumer, 5)] == [45, 46, 47, 48, 49]
        await consumer.seek_to_beginning()
        assert (await consumer.getone()).offset == 0
        await consumer.seek_to_end(tp(0))
        assert await consumer.position(tp(0)) == 50
        assert await consumer.getmany(timeout_ms=100) == {}


async def test_seek_in_the_middle_of_an_iteration_is_obeyed(bootstrap: str) -> None:
    await produce(bootstrap, numbers(0, 20))
    offsets = []
    async with consumer_of(bootstrap, "t") as consumer:
        async for record in consumer:
            offsets.append(record.offset)
            if offsets == [0, 1, 2]:
                consumer.seek(tp(0), 18)
            if record.offset == 19:
                break
    assert offsets == [0, 1, 2, 18, 19]


async def test_pause_stops_at_once_and_resume_loses_nothing(bootstrap: str) -> None:
    await produce(bootstrap, numbers(0, 20))
    async with consumer_of(bootstrap, "t") as consumer:
        assert (await consumer.getone()).offset == 0
        consumer.pause(tp(0))
        assert consumer.paused() == {tp(0)}
        assert await consumer.getmany(timeout_ms=150) == {}
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.getone(), 0.1)
        consumer.resume(tp(0))
        assert [record.offset for record in await take(consumer, 19)] == list(range(1, 20))


async def test_a_cancelled_getone_loses_no_record(bootstrap: str) -> None:
    async with consumer_of(bootstrap, "t") as consumer:
        seen = []
        sending = asyncio.create_task(produce(bootstrap, numbers(0, 200)))
        while len(seen) < 200:
            try:
                seen.append((await asyncio.wait_for(consumer.getone(), 0.002)).offset)
            except TimeoutError:
                pass
        await sending
    assert seen == list(range(200))


async def test_positions_watermarks_and_times(bootstrap: str) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for n in range(10):
            await producer.send("t", b"v", partition=0, timestamp_ms=1_000_000 + n)
    async with consumer_of(bootstrap, "t") as consumer:
        await take(consumer, 10)
        assert consumer.highwater(tp(0)) == consumer.last_stable_offset(tp(0)) == 10
        assert (consumer.last_poll_timestamp(tp(0)) or 0) > 1_000_000
        assert await consumer.beginning_offsets([tp(0)]) == {tp(0): 0}
        assert await consumer.end_offsets([tp(0)]) == {tp(0): 10}
        assert await consumer.offsets_for_times({tp(0): 1_000_004}) == {tp(0): (4, 1_000_004)}
        assert await consumer.offsets_for_times({tp(0): 2_000_000}) == {tp(0): None}
        assert "t" in await consumer.topics()
        assert consumer.partitions_for_topic("t") == await consumer.fetch_partitions("t") == {0}
        assert consumer.partitions_for_topic("nowhere") is None


async def test_latest_starts_after_the_stored_records(bootstrap: str) -> None:
    await produce(bootstrap, numbers(0, 5))
    async with consumer_of(bootstrap, "t", auto_offset_reset="latest") as consumer:
        assert await consumer.position(tp(0)) == 5
        await produce(bootstrap, numbers(5, 6))
        assert (await consumer.getone()).value == b"5"


async def test_without_a_reset_policy_a_missing_offset_is_an_error_until_a_seek(bootstrap: str) -> None:
    await produce(bootstrap, numbers(0, 5))
    async with consumer_of(bootstrap, "t", group_id="g", auto_offset_reset="none") as consumer:
        for _ in range(2):
            with pytest.raises(NoOffsetForPartitionError, match="Seek to an offset"):
                await consumer.getmany(timeout_ms=5000)
        consumer.seek(tp(0), 3)
        assert (await consumer.getone()).offset == 3


async def test_an_offset_out_of_range_follows_the_reset_policy(bootstrap: str) -> None:
    await produce(bootstrap, numbers(0, 5))
    async with consumer_of(bootstrap, "t") as consumer:
        consumer.seek(tp(0), 1000)
        assert (await consumer.getone()).offset == 0
    async with consumer_of(bootstrap, auto_offset_reset="none") as strict:
        strict.assign([tp(0)])
        strict.seek(tp(0), 1000)
        with pytest.raises(OffsetOutOfRangeError, match="t-0 has no offset 1000"):
            await strict.getone()
        strict.seek(tp(0), 4)
        assert (await strict.getone()).offset == 4


async def test_assigning_again_keeps_the_positions_of_what_stays(bootstrap: str) -> None:
    await produce(bootstrap, numbers(0, 10))
    async with consumer_of(bootstrap) as consumer:
        consumer.assign([tp(0)])
        await take(consumer, 4)
        consumer.assign([tp(0), tp(0, "u")])
        assert await consumer.position(tp(0)) == 4
        consumer.assign([])
        assert consumer.assignment() == frozenset()
        assert await consumer.getmany(timeout_ms=50) == {}


async def test_a_topic_that_appears_later_is_read_from_its_start(bootstrap: str) -> None:
    async with consumer_of(bootstrap, "later", allow_auto_create_topics=False) as consumer:
        assert consumer.assignment() == frozenset()
        await produce(bootstrap, numbers(0, 3), topic="later")
        assert [record.value for record in await take(consumer, 3)] == numbers(0, 3)


async def test_a_pattern_finds_topics_now_and_later_but_not_internal_ones(bootstrap: str) -> None:
    await produce(bootstrap, [b"1"], topic="in.a")
    await produce(bootstrap, [b"x"], topic="out")
    async with consumer_of(bootstrap, metadata_max_age_ms=200) as consumer:
        consumer.subscribe(pattern=re.compile(r"in\.|__"))
        assert [record.value for record in await take(consumer, 1)] == [b"1"]
        await produce(bootstrap, [b"2"], topic="in.b")
        assert [record.value for record in await take(consumer, 1)] == [b"2"]
        assert consumer.subscription() == {"in.a", "in.b"}


async def test_ways_to_get_partitions_exclude_each_other(bootstrap: str) -> None:
    consumer = consumer_of(bootstrap, "t")
    with pytest.raises(IllegalStateError, match="unsubscribe"):
        consumer.assign([tp(0)])
    consumer.unsubscribe()
    consumer.assign([tp(0)])
    with pytest.raises(IllegalStateError, match="unsubscribe"):
        consumer.subscribe(["t"])
    with pytest.raises(TypeError, match="either"):
        consumer.subscribe(["t"], pattern="t")
    with pytest.raises(IllegalStateError, match="not started"):
        await consumer.getone()
    with pytest.raises(IllegalStateError, match="not assigned"):
        consumer.seek(tp(7), 0)


# Commits


async def test_commit_stores_the_positions_and_the_next_consumer_continues_from_there(bootstrap: str) -> None:
    await produce(bootstrap, numbers(0, 10))
    async with consumer_of(bootstrap, "t", group_id="g", enable_auto_commit=False) as consumer:
        assert await consumer.committed(tp(0)) is None
        await take(consumer, 4)
        await consumer.commit()
        assert await consumer.committed(tp(0)) == 4
        await take(consumer, 3)
    async with consumer_of(bootstrap, "t", group_id="g", enable_auto_commit=False) as consumer:
        assert (await consumer.getone()).offset == 4
        await consumer.commit({tp(0): OffsetAndMetadata(8, "note")})
        assert await consumer.seek_to_committed() == {tp(0): 8}
        assert (await consumer.getone()).offset == 8


async def test_assigned_partitions_may_be_committed_for_a_group_without_members(bootstrap: str) -> None:
    await produce(bootstrap, numbers(0, 10))
    async with consumer_of(bootstrap, group_id="g") as consumer:
        consumer.assign([tp(0)])
        await take(consumer, 5)
        await consumer.commit()
    async with consumer_of(bootstrap, group_id="g") as consumer:
        consumer.assign([tp(0)])
        assert (await consumer.getone()).offset == 5


async def test_impossible_commits_are_refused_with_a_reason(bootstrap: str) -> None:
    await produce(bootstrap, numbers(0, 1))
    async with consumer_of(bootstrap, "t") as consumer:
        with pytest.raises(IllegalOperation, match="group_id"):
            await consumer.commit()
    async with consumer_of(bootstrap, "t", group_id="g") as consumer:
        with pytest.raises(CommitFailedError, match="t-9"):
            await consumer.commit({tp(9): 3})
        with pytest.raises(ValueError, match="offset=-1"):
            await consumer.commit({tp(0): -1})
        async with consumer_of(bootstrap, group_id="g") as stranger:
            stranger.assign([tp(0)])
            with pytest.raises(CommitFailedError, match="has members, and this consumer is none"):
                await stranger.commit({tp(0): 1})


async def test_auto_commit_commits_only_consumed_records(bootstrap: str) -> None:
    await produce(bootstrap, numbers(0, 30))
    async with consumer_of(bootstrap, "t", group_id="g", auto_commit_interval_ms=30) as consumer:
        await take(consumer, 10)
        await asyncio.sleep(0.15)
        assert await consumer.committed(tp(0)) in (None, 0), "these ten are being processed"
        await consumer.getmany(timeout_ms=1000, max_records=5)
        await until(lambda: committed_is(consumer, 10))
        await asyncio.sleep(0.1)
        assert await consumer.committed(tp(0)) == 10


async def committed_is(consumer: Consumer, offset: int) -> bool:
    return await consumer.committed(tp(0)) == offset


async def test_auto_commit_while_iterating_leaves_out_the_record_in_hand(bootstrap: str) -> None:
    await produce(bootstrap, numbers(0, 30))
    async with consumer_of(bootstrap, "t", group_id="g", auto_commit_interval_ms=20) as consumer:
        async for record in consumer:
            if record.offset == 7:
                await asyncio.sleep(0.15)
                assert await consumer.committed(tp(0)) == 7
                break


async def test_stop_commits_what_was_handed_out(bootstrap: str) -> None:
    await produce(bootstrap, numbers(0, 30))
    async with consumer_of(bootstrap, "t", group_id="g") as consumer:
        await take(consumer, 12)
    async with consumer_of(bootstrap, "t", group_id="g") as consumer:
        assert (await consumer.getone()).offset == 12


async def test_leaving_by_an_exception_does_not_commit_the_records_in_hand(bootstrap: str) -> None:
    await produce(bootstrap, numbers(0, 30))

    async def fail_at_seven() -> None:
        async with consumer_of(bootstrap, "t", group_id="g") as consumer:
            async for record in consumer:
                assert 12 // (7 - record.offset)

    with pytest.raises(ZeroDivisionError):
        await fail_at_seven()
    async with consumer_of(bootstrap, "t", group_id="g") as consumer:
        assert (await consumer.getone()).offset == 7


# Deserializers


async def test_deserializers_see_bytes_and_a_refused_record_stays_in_front(bootstrap: str) -> None:
    await produce(bootstrap, [b"1", b"2", b"three", b"4"])
    async with consumer_of(bootstrap, "t", value_deserializer=int) as consumer:
        assert [record.value for record in await take(consumer, 2)] == [1, 2]
        for _ in range(2):
            with pytest.raises(
                RecordDeserializationError, match=r"t-0 at offset 2: the value .*three.*seek\(3\)"
            ) as caught:
                await consumer.getmany(timeout_ms=1000)
            assert isinstance(caught.value.__cause__, ValueError)
            assert caught.value.record.value == b"three"
        consumer.seek(caught.value.topic_partition, caught.value.record.offset + 1)
        assert (await consumer.getone()).value == 4


async def test_the_field_that_is_refused_is_named(bootstrap: str) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait("t", b"1", key=b"one", headers=[("from", b"here")], partition=0)
    async with consumer_of(bootstrap, "t", key_deserializer=int, value_deserializer=int) as consumer:
        with pytest.raises(RecordDeserializationError) as caught:
            await consumer.getone()
    assert caught.value.field == "key"
    assert (caught.value.record.key, caught.value.record.headers) == (b"one", (("from", b"here"),))


class LoadsFirst:
    """A deserializer that loads once, when the test lets it."""

    def __init__(self) -> None:
        self.loading: asyncio.Future[None] | None = None
        self.loads = 0

    def __call__(self, data: bytes | None) -> int:
        if self.loading is None or not self.loading.done() or self.loading.exception():
            raise NotReady(self.load)
        return int(data or b"")

    def load(self) -> asyncio.Future[None]:
        if self.loading is None or self.loading.done():
            self.loading = asyncio.get_running_loop().create_future()
            self.loads += 1
        return self.loading


async def test_a_deserializer_that_loads_first_is_waited_for(bootstrap: str) -> None:
    await produce(bootstrap, [b"1", b"2"])
    slow = LoadsFirst()
    async with consumer_of(bootstrap, "t", value_deserializer=slow) as consumer:
        asked = asyncio.create_task(consumer.getone())
        await until(lambda: slow.loading is not None)
        assert not asked.done()
        slow.load().set_result(None)
        assert (await asked).value == 1
        assert (await consumer.getone()).value == 2
    assert slow.loads == 1


async def test_a_load_outlives_the_call_that_waits_for_it(bootstrap: str) -> None:
    await produce(bootstrap, [b"1"])
    slow = LoadsFirst()
    async with consumer_of(bootstrap, "t", value_deserializer=slow) as consumer:
        assert await consumer.getmany(timeout_ms=500) == {}
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await consumer.getone()
        assert await consumer.getmany(timeout_ms=0) == {}
        slow.load().set_result(None)
        assert (await consumer.getone()).value == 1
    assert slow.loads == 1


async def test_a_load_that_fails_is_raised_and_tried_again(bootstrap: str) -> None:
    await produce(bootstrap, [b"1"])
    slow = LoadsFirst()
    async with consumer_of(bootstrap, "t", value_deserializer=slow) as consumer:
        for _ in range(2):
            asked = asyncio.create_task(consumer.getone())
            await until(lambda: slow.loading is not None and not slow.loading.done())
            slow.load().set_exception(ConnectionError("no registry"))
            with pytest.raises(ConnectionError, match="no registry"):
                await asked
        asked = asyncio.create_task(consumer.getone())
        await until(lambda: slow.loads == 3)
        slow.load().set_result(None)
        assert (await asked).value == 1


# Broker trouble


async def test_a_broker_restart_is_survived_without_a_gap_or_a_double(bootstrap: str, broker: Harness) -> None:
    broker.settings["port"] = str(broker.port)
    await produce(bootstrap, numbers(0, 50))
    async with consumer_of(bootstrap, "t", group_id="g", heartbeat_interval_ms=200) as consumer:
        first = await take(consumer, 20)
        await broker.restart()
        await produce(bootstrap, numbers(50, 100))
        rest = await take(consumer, 80, timeout_ms=20_000)
        await consumer.commit()
        assert await consumer.committed(tp(0)) == 100
    assert [record.value for record in first + rest] == numbers(0, 100)


async def test_calls_give_up_after_their_timeout_and_say_why(bootstrap: str, broker: Harness) -> None:
    await produce(bootstrap, numbers(0, 1))
    async with consumer_of(bootstrap, "t", default_api_timeout_ms=300) as consumer:
        await broker.stop()
        with pytest.raises(KafkaTimeoutError, match="300 ms"):
            await consumer.end_offsets([tp(0)])
        assert await consumer.getmany(timeout_ms=50) is not None


# Settings


@pytest.mark.parametrize("topics", [(["a", "b"],), (7,), (b"a",), (None,)])
def test_a_topic_that_is_no_str_is_named(topics: Any) -> None:
    with pytest.raises(TypeError, match=r"topic .* is \w+, not str: give names, as in 'a', 'b'"):
        Consumer(*topics)


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"heartbeat_interval_ms": 45_000}, ["heartbeat_interval_ms", "session_timeout_ms"]),
        ({"fetch_buffer_bytes": 1000}, ["fetch_buffer_bytes", "max_partition_fetch_bytes"]),
        ({"fetch_max_wait_ms": 30_000}, ["fetch_max_wait_ms", "request_timeout_ms"]),
        ({"group_id": ""}, ["group_id"]),
        ({"group_instance_id": "i"}, ["group_instance_id", "group_id"]),
        ({"auto_offset_reset": "oldest"}, ["auto_offset_reset", "oldest"]),
        ({"partition_assignment_strategy": ["nearest"]}, ["partition_assignment_strategy", "nearest"]),
        ({"max_poll_records": 0}, ["max_poll_records"]),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(settings: dict[str, object], names: list[str]) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        Consumer("t", **settings)  # type: ignore[arg-type]
    assert all(name in str(caught.value) for name in names)


def test_an_unknown_setting_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="bootstrap_server"):
        Consumer("t", bootstrap_server="localhost")  # type: ignore[call-arg]


async def test_wrong_arguments_are_refused_where_they_are_given(bootstrap: str) -> None:
    await produce(bootstrap, [b"a"])
    async with Consumer("t", bootstrap_servers=bootstrap) as consumer:
        for offset in (-1, "", 1.5):
            with pytest.raises(ValueError, match="offsets start at 0"):
                consumer.seek(tp(0), offset)  # type: ignore[arg-type]
        for call in (consumer.seek_to_beginning, consumer.seek_to_end, consumer.position):
            with pytest.raises(TypeError, match="is not a TopicPartition"):
                await call(1)  # type: ignore[operator]
        with pytest.raises(TypeError, match="on_partitions_revoked"):
            consumer.subscribe(["t"], listener=object())  # type: ignore[arg-type]
