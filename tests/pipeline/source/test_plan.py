"""The plan of a streaming query: Spark's calls in their order, against a real broker."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pyspark_semel.options import OptionError
from pyspark_semel.source import plan as source_plan
from pyspark_semel.source.offsets import BEGIN, INITIAL
from pyspark_semel.source.options import stream_options
from pyspark_semel.source.plan import StreamPlan
from pyspark_semel.source.read import DataLossError
from semel import Admin, BatchReader, NewPartitions, NewTopic, Producer, RecordsToDelete, TopicPartition
from semel_broker.testing.in_process import EphemeralBroker
from support.against import wait_for_leaders

Json = dict[str, Any]


class PlannedBroker:
    """A broker, a client for each purpose, and plans over it, each like a fresh start of Spark."""

    def __init__(self, address: str, admin: Admin, producer: Producer, reader: BatchReader) -> None:
        self.address, self.admin, self.producer, self.reader = address, admin, producer, reader

    def plan(self, **options: str) -> StreamPlan:
        given = {"kafka.bootstrap.servers": self.address, "subscribe": "t", **options}
        if "subscribePattern" in options or "assign" in options:
            del given["subscribe"]
        return StreamPlan(self.reader, stream_options(given))

    async def put(self, count: int, partition: int = 0, topic: str = "t") -> None:
        for _ in range(count):
            await self.producer.send(topic, b"v", partition=partition)
        await self.producer.flush()


@pytest.fixture
async def world(semel_broker: EphemeralBroker, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PlannedBroker]:
    """Topic `t` of two partitions. Missing records count as lost after a short time."""
    monkeypatch.setattr(source_plan, "LOSS_MS", 300)
    monkeypatch.setattr(source_plan, "PARTITIONS_AGE_MS", 0)
    monkeypatch.setattr(source_plan, "ASK_MS", 300)
    address = semel_broker.bootstrap_servers
    async with (
        Admin(bootstrap_servers=address) as admin,
        Producer(bootstrap_servers=address) as producer,
        BatchReader(bootstrap_servers=address, retry_backoff_ms=10) as reader,
    ):
        await admin.create_topics([NewTopic("t", 2)])
        await wait_for_leaders(admin, TopicPartition("t", 0), TopicPartition("t", 1))
        yield PlannedBroker(address, admin, producer, reader)


def through_json(offsets: Json) -> Json:
    kept: Json = json.loads(json.dumps(offsets))
    return kept


async def planned(plan: StreamPlan, start: Json, end: Json) -> list[str]:
    return [repr(one) for one in await plan.ranges(through_json(start), through_json(end))]


async def test_a_query_starts_at_the_options_and_continues_to_the_end(world: PlannedBroker) -> None:
    await world.put(5)
    plan = world.plan(startingOffsets="earliest")
    start = await plan.initial()
    end = await plan.latest(start, None)
    assert await planned(plan, start, end) == ["t-0[0:5]"]
    await world.put(2, partition=1)
    after = await plan.latest(through_json(end), None)
    assert await planned(plan, end, after) == ["t-1[0:2]"]
    assert json.dumps(await plan.latest(through_json(after), None)) == json.dumps(after), "nothing new: the same text"


async def test_a_repeated_first_batch_has_the_same_start(world: PlannedBroker) -> None:
    """Spark stores only the end of the batch, so the end must contain the start: "latest" has moved on."""
    first = world.plan()
    start = await first.initial()
    await world.put(4)
    end = await first.latest(start, None)
    assert await planned(first, start, end) == ["t-0[0:4]"]
    await world.put(3)
    again = world.plan()
    other_start = await again.initial()
    assert other_start != start
    assert await planned(again, other_start, end) == ["t-0[0:4]"]
    after = await again.latest(through_json(end), None)
    assert BEGIN not in after
    assert INITIAL not in after
    assert await planned(again, end, after) == ["t-0[4:7]"]


async def test_a_repeated_later_batch_has_the_same_ranges(world: PlannedBroker) -> None:
    plan = world.plan(startingOffsets="earliest", minPartitions="4")
    await world.put(10)
    start = await plan.latest(await plan.initial(), None)
    await world.put(9)
    end = await plan.latest(start, None)
    before = await planned(plan, start, end)
    await world.put(5)
    assert await planned(world.plan(minPartitions="4"), start, end) == before


async def test_a_limit_is_shared_by_backlog_and_the_ends_are_reported(world: PlannedBroker) -> None:
    await world.put(90)
    await world.put(10, partition=1)
    plan = world.plan(startingOffsets="earliest")
    start = await plan.initial()
    end = await plan.latest(start, 20)
    assert await planned(plan, start, end) == ["t-0[0:18]", "t-1[0:2]"]
    assert plan.known_latest() == {"t": {"0": 90, "1": 10}}


async def test_new_partitions_and_topics_are_read_from_their_beginning(world: PlannedBroker) -> None:
    plan = world.plan(subscribePattern="t.*")
    start = await plan.latest(await plan.initial(), None)
    await world.admin.create_partitions({"t": NewPartitions(3)})
    await world.admin.create_topics([NewTopic("t-more", 1)])
    async with Producer(bootstrap_servers=world.address) as producer:
        await producer.send_and_wait("t", b"v", partition=2)
        await producer.send_and_wait("t-more", b"v", partition=0)
    end = await plan.latest(start, None)
    assert await planned(plan, start, end) == ["t-2[0:1]", "t-more-0[0:1]"]
    assert await planned(world.plan(subscribePattern="t.*"), start, end) == ["t-2[0:1]", "t-more-0[0:1]"]


async def test_a_pattern_without_a_match_waits_for_its_first_topic(world: PlannedBroker) -> None:
    plan = world.plan(subscribePattern="later-.*")
    start = await plan.latest(await plan.initial(), None)
    assert await planned(plan, await plan.initial(), start) == []
    assert await plan.latest(through_json(start), 5) == start
    await world.admin.create_topics([NewTopic("later-1", 1)])
    await world.put(3, topic="later-1")
    assert await planned(plan, start, await plan.latest(through_json(start), 2)) == ["later-1-0[0:2]"]


async def test_available_now_ends_at_the_end_offsets_of_its_start(world: PlannedBroker) -> None:
    await world.put(6)
    plan = world.plan(startingOffsets="earliest")
    await plan.pin()
    await world.put(6)
    at = await plan.initial()
    await world.admin.create_partitions({"t": NewPartitions(3)})
    ends = []
    for _ in range(4):
        at = through_json(await plan.latest(at, 4))
        ends.append(at["t"]["0"])
    assert ends == [4, 6, 6, 6]
    assert sorted(at["t"]) == ["0", "1"]


async def test_available_now_with_latest_offsets_has_nothing_to_read(world: PlannedBroker) -> None:
    await world.put(6)
    plan = world.plan()
    await plan.pin()
    await world.put(6)
    start = await plan.initial()
    end = await plan.latest(start, None)
    assert await planned(plan, start, end) == []
    assert await plan.latest(through_json(end), None) == end


async def test_an_open_transaction_limits_the_end(world: PlannedBroker) -> None:
    plan = world.plan(startingOffsets="earliest")
    async with Producer(bootstrap_servers=world.address, transactional_id="x") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"v", partition=0)
        await world.put(3)
        start = await plan.latest(await plan.initial(), None)
        assert start["t"] == {"0": 0, "1": 0}
        await producer.commit_transaction()
    assert (await plan.latest(start, None))["t"] == {"0": 5, "1": 0}


async def test_an_idle_poll_waits_and_ends_with_the_first_record(world: PlannedBroker) -> None:
    loop = asyncio.get_running_loop()
    plan = world.plan()
    start = await plan.latest(await plan.initial(), None)
    began = loop.time()
    assert await plan.latest(start, None) == start
    assert loop.time() - began >= source_plan.IDLE_MS / 1000
    asking = asyncio.create_task(plan.latest(start, None))
    await world.put(1)
    assert (await asking)["t"]["0"] == 1


async def test_positions_can_be_times(world: PlannedBroker) -> None:
    for n in range(4):
        await world.producer.send_and_wait("t", b"v", partition=0, timestamp_ms=1000 + n)
    with pytest.raises(OptionError, match="startingTimestamp: t-1 has no record as young as 1002 ms; set"):
        await world.plan(startingTimestamp="1002").initial()
    plan = world.plan(startingTimestamp="1002", startingOffsetsByTimestampStrategy="latest")
    assert (await plan.initial())["t"] == {"0": 2, "1": 0}


async def test_positions_must_cover_all_read_partitions(world: PlannedBroker) -> None:
    assert (await world.plan(startingOffsets='{"t": {"0": -2, "1": -1}}').initial())["t"] == {"0": 0, "1": 0}
    with pytest.raises(OptionError, match=r"must name every partition.*it leaves out t-1; the query does not read u-0"):
        await world.plan(startingOffsets='{"t": {"0": 1}, "u": {"0": 1}}').initial()
    with pytest.raises(OptionError, match="absent does not exist: create it first"):
        await world.plan(subscribe="t, absent", startingOffsets="earliest").initial()
    with pytest.raises(OptionError, match="t-9 does not exist: create it first"):
        await world.plan(assign='{"t": [0, 9]}', startingOffsets="earliest").initial()


async def lost(
    world: PlannedBroker, plan: StreamPlan, start: Json, words: str, caplog: pytest.LogCaptureFixture
) -> Json:
    """Return the next offsets if loss is allowed; check that the error or the warning contains `words`."""
    with pytest.raises(DataLossError) as caught:
        await plan.latest(start, None)
    assert words in str(caught.value)
    assert "set failOnDataLoss to false" in str(caught.value)
    with caplog.at_level(logging.WARNING):
        end = await world.plan(failOnDataLoss="false").latest(start, None)
    assert words in caplog.text
    return end


async def test_a_deleted_topic_is_a_loss(world: PlannedBroker, caplog: pytest.LogCaptureFixture) -> None:
    await world.put(3)
    plan = world.plan()
    start = await plan.latest(await plan.initial(), None)
    await world.admin.delete_topics(["t"])
    end = await lost(world, plan, start, "t-0 no longer exists", caplog)
    assert end == {}


@pytest.mark.parametrize(
    "options",
    [{"subscribe": "t"}, {"subscribePattern": "t.*"}, {"assign": '{"t": [0, 1]}'}],
    ids=lambda given: next(iter(given)),
)
async def test_a_topic_that_the_options_do_not_select_any_more_is_not_called_deleted(
    world: PlannedBroker, options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    await world.admin.create_topics([NewTopic("u", 1)])
    await world.put(3)
    both = world.plan(subscribe="t, u")
    start = await both.latest(await both.initial(), None)
    with pytest.raises(DataLossError) as caught:
        await world.plan(**options).latest(start, None)
    assert "the checkpoint has u-0, and the options of the stream do not select this any more" in str(caught.value)
    assert "Select them again" in str(caught.value)
    assert "Retention" not in str(caught.value)
    with caplog.at_level(logging.WARNING):
        end = await world.plan(**options, failOnDataLoss="false").latest(start, None)
    assert "partitions_left_out" in caplog.text
    assert list(end) == ["t"]


async def test_a_recreated_topic_is_a_loss_unless_it_has_as_many_records(
    world: PlannedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    await world.put(8)
    plan = world.plan()
    start = await plan.latest(await plan.initial(), None)
    await world.admin.delete_topics(["t"])
    await world.admin.create_topics([NewTopic("t", 2)])
    async with Producer(bootstrap_servers=world.address) as producer:
        await producer.send_and_wait("t", b"v", partition=0)
    end = await lost(world, plan, start, "t-0 ends at offset 1 and was read up to 8", caplog)
    assert end["t"] == {"0": 1, "1": 0}
    assert await planned(world.plan(failOnDataLoss="false"), start, end) == []


async def test_a_new_partition_that_has_lost_records_already_is_a_loss(world: PlannedBroker) -> None:
    plan = world.plan(subscribePattern="t.*")
    start = await plan.latest(await plan.initial(), None)
    await world.admin.create_topics([NewTopic("t-old", 1)])
    async with Producer(bootstrap_servers=world.address) as producer:
        for _ in range(5):
            await producer.send_and_wait("t-old", b"v", partition=0)
    await world.admin.delete_records({TopicPartition("t-old", 0): RecordsToDelete(2)})
    end = await plan.latest(start, None)
    with pytest.raises(DataLossError, match="t-old-0 begins at 2"):
        await plan.ranges(start, end)
    careless = world.plan(subscribePattern="t.*", failOnDataLoss="false")
    assert await planned(careless, start, end) == ["t-old-0[2:5]"]


async def test_an_end_offset_that_recovers_in_time_is_no_loss(
    world: PlannedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new leader may not know yet how far the log can be read."""
    await world.put(3)
    plan = world.plan()
    start = await plan.latest(await plan.initial(), None)
    latest = world.reader.latest
    answers = [{TopicPartition("t", 0): 1, TopicPartition("t", 1): 0}]

    async def stale(partitions: Any, timeout_ms: float | None = None) -> Any:
        return answers.pop() if answers else await latest(partitions, timeout_ms)

    monkeypatch.setattr(world.reader, "latest", stale)
    assert await plan.latest(start, None) == start
