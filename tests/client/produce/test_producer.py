"""The Producer against a scripted broker: each value is stored once and in order, whatever fails."""

from __future__ import annotations

import asyncio
import inspect
from itertools import pairwise
from typing import Any

import pytest
from client.fake_broker import ANSWER_LOST, DEPOSED, LATE, LOST, QUICK, SILENT, WORKS, FakeBroker
from hypothesis import given, settings
from hypothesis import strategies as st
from semel import Producer, TopicPartition
from semel._produce.sequences import EPOCH_MAX
from semel.errors import (
    ClusterAuthorizationFailedError,
    IllegalOperation,
    IllegalStateError,
    InvalidRecordError,
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    ProducerClosed,
    ProducerNotStarted,
    UnsupportedVersionError,
)
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k22_init_producer_id import InitProducerIdResponse


def producer(broker: FakeBroker, **settings: Any) -> Producer:
    return Producer(bootstrap_servers=broker.address, **{**QUICK, **settings})


FAULTS = [
    WORKS,
    LOST,
    ANSWER_LOST,
    LATE,
    DEPOSED,
    int(ErrorCode.NOT_LEADER_OR_FOLLOWER),
    int(ErrorCode.REQUEST_TIMED_OUT),
    int(ErrorCode.NOT_ENOUGH_REPLICAS),
]
REFUSALS = [
    int(ErrorCode.INVALID_RECORD),
    int(ErrorCode.UNKNOWN_PRODUCER_ID),
    int(ErrorCode.INVALID_PRODUCER_ID_MAPPING),
]


@settings(max_examples=60, deadline=None)
@given(
    faults=st.lists(st.sampled_from(FAULTS), max_size=25), partitions=st.integers(1, 3), linger=st.sampled_from([0, 1])
)
def test_each_value_is_stored_once_and_in_order_under_random_faults(
    faults: list[str | int], partitions: int, linger: int
) -> None:
    async def run() -> None:
        async with FakeBroker({"t": partitions}) as broker:
            broker.faults.extend(faults)
            async with producer(broker, max_batch_size=300, linger_ms=linger) as sender:
                futures = []
                for number in range(120):
                    futures.append(await sender.send("t", b"%d" % number, partition=number % partitions))
                    if number % 7 == 0:
                        await asyncio.sleep(0)
                results = await asyncio.gather(*futures)
            for partition in range(partitions):
                sent = [b"%d" % number for number in range(120) if number % partitions == partition]
                assert broker.log("t", partition).values == sent
                mine = [row for row in results if row.partition == partition]
                assert [row.offset for row in mine] == list(range(len(sent)))

    asyncio.run(run())


@settings(max_examples=60, deadline=None)
@given(faults=st.lists(st.sampled_from(FAULTS + REFUSALS), max_size=25))
def test_what_is_acknowledged_is_stored_once_and_in_order_when_other_batches_are_refused(
    faults: list[str | int],
) -> None:
    async def run() -> None:
        async with FakeBroker() as broker:
            async with producer(broker, max_batch_size=300) as sender:
                await sender.send_and_wait("t", b"known")  # from here on batches are pipelined
                broker.faults.extend(faults)
                futures = [await sender.send("t", b"%d" % number) for number in range(120)]
                outcomes = await asyncio.gather(*futures, return_exceptions=True)
            stored = broker.log().values
            assert len(stored) == len(set(stored))
            acknowledged = [b"%d" % n for n, outcome in enumerate(outcomes) if not isinstance(outcome, BaseException)]
            assert [value for value in stored if value in set(acknowledged)] == acknowledged

    asyncio.run(run())


async def test_metadata_of_a_record_tells_where_it_is(fake_broker: FakeBroker) -> None:
    async with producer(fake_broker) as sender:
        first = await sender.send_and_wait("t", b"a", timestamp_ms=1234)
        second = await sender.send_and_wait("t", b"b")
    assert (first.topic, first.partition, first.offset, first.timestamp, first.timestamp_type) == ("t", 0, 0, 1234, 0)
    assert first.topic_partition == TopicPartition("t", 0)
    assert second.offset == 1


async def test_a_lost_answer_is_not_stored_twice(fake_broker: FakeBroker) -> None:
    fake_broker.faults.append(ANSWER_LOST)
    async with producer(fake_broker) as sender:
        row = await sender.send_and_wait("t", b"a")
    assert row.offset == 0
    assert fake_broker.log().values == [b"a"]
    assert len(fake_broker.seen(0)) == 2


async def test_five_requests_are_in_flight_and_no_more(fake_broker: FakeBroker) -> None:
    async with producer(fake_broker, max_batch_size=100, request_timeout_ms=300, delivery_timeout_ms=2000) as sender:
        await sender.send_and_wait("t", b"known from now on")
        fake_broker.faults.extend([SILENT] * 5)
        futures = [await sender.send("t", b"x" * 50) for _ in range(20)]
        await asyncio.sleep(0.1)
        assert len(fake_broker.seen(0)) == 1 + 5
        await asyncio.gather(*futures)
    assert len(fake_broker.log().values) == 21


async def test_a_broker_that_becomes_leader_with_the_third_request_stores_the_batches_in_order(
    fake_broker: FakeBroker,
) -> None:
    fake_broker.faults.extend([int(ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 2)
    async with producer(fake_broker, max_batch_size=100) as sender:
        futures = [await sender.send("t", b"%d" % number + b"x" * 50) for number in range(5)]
        await asyncio.gather(*futures)
    assert [value[:1] for value in fake_broker.log().values if value] == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_request_without_answer_is_sent_again_on_a_new_connection(fake_broker: FakeBroker) -> None:
    fake_broker.faults.append(SILENT)
    async with producer(fake_broker, request_timeout_ms=50, delivery_timeout_ms=2000) as sender:
        await sender.send_and_wait("t", b"a")
    assert fake_broker.log().values == [b"a"]


async def test_an_id_that_the_broker_gives_to_another_is_replaced_by_a_new_one(fake_broker: FakeBroker) -> None:
    """As after the cluster's secret was replaced: the records are stored under a new producer id, in order."""
    async with producer(fake_broker) as sender:
        await sender.send_and_wait("t", b"a")
        fake_broker.faults.append(int(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        futures = [await sender.send("t", value) for value in (b"b", b"c")]
        await asyncio.gather(*futures)
    assert fake_broker.log().values == [b"a", b"b", b"c"]
    assert fake_broker.next_producer_id == 1002, "one new id"


async def test_lost_producer_state_makes_a_new_epoch(fake_broker: FakeBroker) -> None:
    async with producer(fake_broker) as sender:
        await sender.send_and_wait("t", b"a")
        fake_broker.log().forget_producers()
        await sender.send_and_wait("t", b"b")
    assert fake_broker.log().values == [b"a", b"b"]
    assert [epoch for epoch, _, _ in fake_broker.log().producers.values()] == [1]
    assert len(fake_broker.seen(22)) == 1


async def test_duplicate_sequence_number_counts_as_stored(fake_broker: FakeBroker) -> None:
    fake_broker.faults.append(int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
    async with producer(fake_broker) as sender:
        row = await sender.send_and_wait("t", b"a")
    assert row.offset == -1


async def test_a_refused_record_fails_alone(fake_broker: FakeBroker) -> None:
    fake_broker.faults.append(int(ErrorCode.INVALID_RECORD))
    async with producer(fake_broker) as sender:
        with pytest.raises(InvalidRecordError):
            await sender.send_and_wait("t", b"a")
        await sender.send_and_wait("t", b"b")
    assert fake_broker.log().values == [b"b"]


@pytest.mark.parametrize(("codec", "limit"), [("none", 400), ("gzip", 130)])
async def test_a_batch_too_large_for_the_broker_is_sent_in_halves(
    fake_broker: FakeBroker, codec: Any, limit: int
) -> None:
    fake_broker.max_batch_bytes = limit
    async with producer(fake_broker, compression_type=codec) as sender:
        futures = [await sender.send("t", b"%03d" % number + bytes(60)) for number in range(40)]
        rows = await asyncio.gather(*futures)
    assert [row.offset for row in rows] == list(range(40))
    assert [value[:3] for value in fake_broker.log().values if value] == [b"%03d" % number for number in range(40)]


async def test_a_record_too_large_for_the_broker_fails(fake_broker: FakeBroker) -> None:
    fake_broker.max_batch_bytes = 400
    async with producer(fake_broker) as sender:
        with pytest.raises(MessageSizeTooLargeError):
            await sender.send_and_wait("t", bytes(1000))
        await sender.send_and_wait("t", b"b")


async def test_a_batch_fails_after_delivery_timeout(fake_broker: FakeBroker) -> None:
    fake_broker.faults.extend([int(ErrorCode.NOT_ENOUGH_REPLICAS)] * 1000)
    async with producer(fake_broker, request_timeout_ms=50, delivery_timeout_ms=100) as sender:
        with pytest.raises(KafkaTimeoutError, match="delivery_timeout_ms"):
            await sender.send_and_wait("t", b"a")
        fake_broker.faults.clear()
        await sender.send_and_wait("t", b"b")
    assert fake_broker.log().values == [b"b"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, r"\(not stored\)"),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, r"\(may or may not be stored\)"),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, r"\(may or may not be stored\)"),  # no leader any more: it may have appended
    ],
)
async def test_a_timeout_says_not_stored_only_if_that_is_certain(
    fake_broker: FakeBroker, code: ErrorCode, words: str
) -> None:
    fake_broker.faults.append(int(code))
    one_try = {"retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000}  # none is under way when time is up
    async with producer(fake_broker, request_timeout_ms=2_000, delivery_timeout_ms=2_000, **one_try) as sender:
        with pytest.raises(KafkaTimeoutError, match=words):
            await sender.send_and_wait("t", b"a")


async def test_a_failed_batch_of_unknown_outcome_never_makes_a_duplicate(fake_broker: FakeBroker) -> None:
    async with producer(fake_broker, request_timeout_ms=60, delivery_timeout_ms=80, max_batch_size=100) as sender:
        fake_broker.faults.extend([SILENT, SILENT])
        futures = [await sender.send("t", b"%d" % n + bytes(60)) for n in range(2)]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        await sender.send_and_wait("t", b"last")
    values = fake_broker.log().values
    assert len(values) == len(set(values))
    assert values[-1] == b"last"
    assert any(isinstance(outcome, KafkaTimeoutError) for outcome in outcomes)


@pytest.mark.proves("new-epoch-over-an-unsettled-batch")
async def test_a_batch_that_may_be_stored_is_settled_before_one_refused_behind_it_makes_a_new_epoch(
    fake_broker: FakeBroker,
) -> None:
    async with producer(fake_broker, max_batch_size=100) as sender:
        await sender.send_and_wait("t", b"known")  # from here on batches are pipelined
        fake_broker.faults.extend([DEPOSED, DEPOSED, int(ErrorCode.RECORD_LIST_TOO_LARGE)])
        futures = [await sender.send("t", b"%d" % n + bytes(60)) for n in range(4)]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(outcome).__name__ for outcome in outcomes] == [
        "RecordMetadata", "RecordMetadata", "RecordListTooLargeError", "RecordMetadata",
    ]  # fmt: skip
    assert [value[:1] for value in fake_broker.log().values if value] == [b"k", b"0", b"1", b"3"]


async def test_full_memory_makes_send_wait_and_then_fail(fake_broker: FakeBroker) -> None:
    fake_broker.faults.extend([SILENT] * 2)
    settings: dict[str, Any] = {"request_timeout_ms": 250, "delivery_timeout_ms": 4000, "max_block_ms": 50}
    async with producer(fake_broker, buffer_memory=400, max_batch_size=200, **settings) as sender:
        futures = [await sender.send("t", bytes(100)) for _ in range(2)]
        with pytest.raises(KafkaTimeoutError, match="buffer_memory"):
            await sender.send("t", bytes(100))
        await asyncio.gather(*futures)
        await sender.send_and_wait("t", b"room again")


async def test_acks_0_does_not_wait_for_anything(fake_broker: FakeBroker) -> None:
    async with producer(fake_broker, acks=0, enable_idempotence=False) as sender:
        rows = [await sender.send_and_wait("t", b"%d" % n) for n in range(10)]
    assert [row.offset for row in rows] == [-1] * 10
    await asyncio.sleep(0.02)
    assert len(fake_broker.log().values) == 10


async def test_a_broker_that_restarts_is_found_again(fake_broker: FakeBroker) -> None:
    async with producer(fake_broker, max_batch_size=200) as sender:
        await sender.send_and_wait("t", b"0")
        await fake_broker.close()
        futures = [await sender.send("t", b"%d" % n) for n in range(1, 50)]
        await asyncio.sleep(0.05)
        await fake_broker.listen()
        await asyncio.gather(*futures)
    assert fake_broker.log().values == [b"%d" % n for n in range(50)]


async def test_a_partition_without_leader_waits_for_one(fake_broker: FakeBroker) -> None:
    fake_broker.leader = -1
    async with producer(fake_broker) as sender:
        future = await sender.send("t", b"a")
        await asyncio.sleep(0.03)
        assert not future.done()
        fake_broker.leader = 0
        await future


async def test_cancelling_a_send_and_wait_affects_no_other_record(fake_broker: FakeBroker) -> None:
    async with producer(fake_broker) as sender:
        await sender.send_and_wait("t", b"0")
        task = asyncio.create_task(sender.send_and_wait("t", b"1"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        row = await sender.send_and_wait("t", b"2")
    assert fake_broker.log().values[row.offset] == b"2"


async def test_stop_sends_what_is_buffered(fake_broker: FakeBroker) -> None:
    sender = producer(fake_broker, linger_ms=10_000)
    await sender.start()
    future = await sender.send("t", b"a")
    await sender.stop()
    assert future.done()
    assert (await future).offset == 0
    await sender.stop()


async def test_a_cancelled_stop_fails_what_is_not_stored(fake_broker: FakeBroker) -> None:
    fake_broker.faults.extend([SILENT] * 10)
    sender = producer(fake_broker)
    await sender.start()
    future = await sender.send("t", b"a")
    stopping = asyncio.create_task(sender.stop())
    await asyncio.sleep(0.02)
    stopping.cancel()
    await asyncio.gather(stopping, return_exceptions=True)
    with pytest.raises(ProducerClosed):
        await future


async def test_a_stopped_producer_refuses_calls(fake_broker: FakeBroker) -> None:
    sender = producer(fake_broker)
    with pytest.raises(ProducerNotStarted, match=r"not started\. Call `await producer.start\(\)` first"):
        await sender.send("t", b"a")
    async with sender:
        await sender.send_and_wait("t", b"a")
    with pytest.raises(ProducerClosed, match="stopped"):
        await sender.send("t", b"a")
    with pytest.raises(IllegalStateError):
        await sender.start()


async def test_an_unknown_topic_times_out_with_its_name(fake_broker: FakeBroker) -> None:
    async with producer(fake_broker, max_block_ms=30) as sender:
        with pytest.raises(KafkaTimeoutError, match="'nowhere'"):
            await sender.send("nowhere", b"a")


async def test_a_value_that_is_not_bytes_is_refused_before_it_is_buffered(fake_broker: FakeBroker) -> None:
    async with producer(fake_broker) as sender:
        with pytest.raises(TypeError, match="value_serializer"):
            await sender.send("t", "text")
        with pytest.raises(TypeError, match="key_serializer"):
            await sender.send("t", b"a", key=7)
        with pytest.raises(TypeError, match="header"):
            await sender.send("t", b"a", headers=[("name", "text")])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="timestamp"):
            await sender.send("t", b"a", timestamp_ms=1 << 63)
        with pytest.raises(TypeError, match="timestamp"):
            await sender.send("t", b"a", timestamp_ms=1.5)  # type: ignore[arg-type]
        with pytest.raises(IllegalStateError, match="partitions 0 to 0"):
            await sender.send("t", b"a", partition=1)
        with pytest.raises(MessageSizeTooLargeError, match="max_request_size"):
            await sender.send("t", bytes(1_048_576))
        await sender.send_and_wait("t", bytearray(b"a"), key=memoryview(b"k"))


async def test_serializers_turn_values_into_bytes(fake_broker: FakeBroker) -> None:
    async with producer(fake_broker, value_serializer=str.encode, key_serializer=lambda key: b"%d" % key) as sender:
        await sender.send_and_wait("t", "text", key=7)
    assert fake_broker.log().values == [b"text"]


async def test_a_batch_made_by_hand_is_stored_as_it_is(fake_broker: FakeBroker) -> None:
    async with producer(fake_broker) as sender:
        batch = sender.create_batch()
        for number in range(3):
            assert batch.append(timestamp=1000 + number, value=b"%d" % number) == number
        row = await (await sender.send_batch(batch, "t", partition=0))
        assert (row.offset, row.timestamp, batch.record_count()) == (0, 1000, 3)
        assert batch.append(timestamp=1, value=b"more") is None
        with pytest.raises(IllegalOperation):
            await sender.send_batch(batch, "t", partition=0)
    assert fake_broker.log().values == [b"0", b"1", b"2"]


async def test_a_batch_made_by_hand_without_partition_goes_to_one_that_the_partitioner_chooses() -> None:
    async with FakeBroker({"t": 4}) as broker:
        for partitioner, expected in ((None, {0, 1, 2, 3}), (lambda key, every, available: 2, {2})):
            async with producer(broker, partitioner=partitioner) as sender:
                found = set()
                for _ in range(50):
                    batch = sender.create_batch()
                    batch.append(value=b"v")
                    found.add((await (await sender.send_batch(batch, "t", partition=None))).partition)
            assert found == expected


async def test_records_without_key_fill_one_partition_at_a_time() -> None:
    async with FakeBroker({"t": 4}) as broker, producer(broker, max_batch_size=1000) as sender:
        futures = [await sender.send("t", bytes(80)) for _ in range(400)]
        partitions = [row.partition for row in await asyncio.gather(*futures)]
    changes = sum(a != b for a, b in pairwise(partitions))
    assert set(partitions) == {0, 1, 2, 3}
    assert changes <= 400 / 9


async def test_start_fails_when_no_bootstrap_server_answers() -> None:
    with pytest.raises(KafkaConnectionError, match=r"127\.0\.0\.1:1"):
        await Producer(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=50, **QUICK).start()


async def test_zstd_to_an_old_broker_is_refused() -> None:
    versions = {0: (0, 6), 3: (0, 5), 18: (0, 3), 22: (0, 4)}
    async with FakeBroker(versions=versions) as broker, producer(broker, compression_type="zstd") as sender:
        with pytest.raises(UnsupportedVersionError, match="zstd"):
            await sender.send_and_wait("t", b"a")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_every_codec_is_read_back(fake_broker: FakeBroker, codec: Any) -> None:
    async with producer(fake_broker, compression_type=codec) as sender:
        await asyncio.gather(*[await sender.send("t", b"%d" % n) for n in range(100)])
    assert fake_broker.log().values == [b"%d" % n for n in range(100)]


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        ({"delivery_timeout_ms": 1000}, ("delivery_timeout_ms", "request_timeout_ms")),
        ({"acks": 1}, ("acks", "enable_idempotence")),
        ({"max_in_flight_requests_per_connection": 6}, ("max_in_flight_requests_per_connection", "enable_idempotence")),
        ({"buffer_memory": 1000}, ("buffer_memory", "max_batch_size")),
        ({"compression_type": "zip"}, ("compression_type", "'zstd'")),
        ({"retry_backoff_ms": 5000}, ("retry_backoff_max_ms", "retry_backoff_ms")),
        ({"bootstrap_servers": "host:port"}, ("bootstrap_servers", "host:port")),
    ],
)
def test_settings_that_contradict_each_other_are_named(wrong: dict[str, Any], names: tuple[str, str]) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        Producer(**wrong)
    assert all(name in str(caught.value) for name in names)


def test_help_shows_every_setting() -> None:
    parameters = inspect.signature(Producer).parameters
    assert parameters["linger_ms"].default == 0
    assert "bootstrap_servers" in parameters


@pytest.mark.real_time  # the producer looks at the clock while nothing else can run
async def test_a_task_that_never_suspends_lets_the_event_loop_run() -> None:
    async with FakeBroker({"t": 500}) as broker, producer(broker) as sender:
        await sender.partitions_for("t")
        ran = 0

        async def other() -> None:
            nonlocal ran
            while True:
                await asyncio.sleep(0)
                ran += 1

        task = asyncio.create_task(other())
        loop = asyncio.get_running_loop()
        end, number = loop.time() + 5, 0
        while ran < 4:
            assert loop.time() < end
            await sender.send("t", b"v", partition=number % 500)
            number += 1
        task.cancel()


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match="linger"):
        Producer(linger=5)  # type: ignore[call-arg]


async def test_memory_is_all_given_back(fake_broker: FakeBroker) -> None:
    fake_broker.faults.extend([ANSWER_LOST, LOST, int(ErrorCode.INVALID_RECORD)])
    fake_broker.max_batch_bytes = 900
    async with producer(fake_broker, max_batch_size=2000) as sender:
        futures = [await sender.send("t", bytes(50)) for _ in range(200)]
        await asyncio.gather(*futures, return_exceptions=True)
        assert sender._memory.free_bytes == sender._memory.bytes_max


async def test_a_producer_with_an_exhausted_epoch_continues_under_a_new_producer_id(fake_broker: FakeBroker) -> None:
    async with producer(fake_broker) as sender:
        await sender.send_and_wait("t", b"a")
        manager = sender._sender.manager
        assert manager is not None
        manager.producer_epoch = sender._sender.queue("t", 0).sequences.producer_epoch = EPOCH_MAX
        fake_broker.faults.append(int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
        await sender.send_and_wait("t", b"b")
        await sender.send_and_wait("t", b"c")
    assert fake_broker.log().values == [b"a", b"b", b"c"]
    assert list(fake_broker.log().producers) == [1001, 1002]


async def test_a_refused_producer_id_ends_the_producer_with_the_reason(fake_broker: FakeBroker) -> None:
    async def refuse(_: Any) -> InitProducerIdResponse:
        return InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    fake_broker.answers[22] = refuse
    async with producer(fake_broker) as sender:
        with pytest.raises(ClusterAuthorizationFailedError):
            await sender.send_and_wait("t", b"a")
        with pytest.raises(ProducerClosed, match="CLUSTER_AUTHORIZATION_FAILED"):
            await sender.send_and_wait("t", b"a")


async def test_linger_collects_records_that_arrive_one_by_one(fake_broker: FakeBroker) -> None:
    async with producer(fake_broker, linger_ms=30) as sender:
        await sender.send_and_wait("t", b"first")
        futures = []
        for number in range(10):
            futures.append(await sender.send("t", b"%d" % number))
            await asyncio.sleep(0.001)
        await asyncio.gather(*futures)
    assert len(fake_broker.seen(0)) == 2


async def test_without_linger_records_gather_while_a_request_is_under_way(fake_broker: FakeBroker) -> None:
    async with producer(fake_broker) as sender:
        await sender.send_and_wait("t", b"first")
        futures = []
        for number in range(20):
            futures.append(await sender.send("t", b"%d" % number))
            await asyncio.sleep(0)
        await asyncio.gather(*futures)
    assert len(fake_broker.seen(0)) < 12


async def test_a_leader_that_moves_back_and_forth_causes_no_loss_and_no_duplicate() -> None:
    async with FakeBroker() as one, FakeBroker() as two:
        two.node_id, two.logs = 1, one.logs
        one.peers = two.peers = [one, two]
        async with producer(one, max_batch_size=200) as sender:
            futures = []
            for number in range(400):
                futures.append(await sender.send("t", b"%d" % number))
                if number % 80 == 0:
                    one.leader = two.leader = 1 - one.leader
                    sender._cluster.request_refresh()
                    await asyncio.sleep(0.002)
            await asyncio.gather(*futures)
        assert one.seen(0)
        assert two.seen(0)
        assert one.log().values == [b"%d" % number for number in range(400)]
        assert [epoch for epoch, _, _ in one.log().producers.values()] == [0], (
            "a moved leader is no reason for an epoch"
        )


async def test_an_exception_in_the_sender_fails_every_record(
    fake_broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with producer(fake_broker) as sender:
        await sender.send_and_wait("t", b"a")

        def broken(*_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(sender._sender._outcomes, "apply", broken)
        with pytest.raises(ProducerClosed, match="ZeroDivisionError"):
            await sender.send_and_wait("t", b"b")
        with pytest.raises(ProducerClosed, match="ZeroDivisionError"):
            await sender.send_and_wait("t", b"c")
    assert "ZeroDivisionError" in caplog.text
