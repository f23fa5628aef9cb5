"""A topic that is deleted and created again while a consumer reads it: another topic, with positions of its own."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from broker.harness import Harness
from broker.wire import Wire
from client.consume.test_consumer import numbers
from client.consuming import Record, produce, take, tp, until
from semel import Admin, BatchReader, Consumer, NewTopic, Producer
from semel._subscription.subscription import Reset
from semel.errors import (
    DeletedTopicCommitError,
    NoOffsetForPartitionError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from semel.structs import OffsetAndMetadata
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest
from support.against import OutsideBroker

WAYS: dict[str, dict[str, Any]] = {
    "assigned": {},
    "subscribed": {},
    "classic": {"group_id": "g"},
    "consumer": {"group_id": "g", "group_protocol": "consumer"},
}
GROUPS = ["classic", "consumer"]
ID_VERSIONS = {8: 10, 28: 6}
"""API key -> the version of OffsetCommit or TxnOffsetCommit from which requests name topics by id: Kafka 4.2, 4.4."""


@pytest.fixture
async def ids_in_commits(broker: Harness | OutsideBroker) -> None:
    """Skip a test on an outside broker that takes offsets by the name of a topic only: they outlive the topic."""
    if not isinstance(broker, OutsideBroker):
        return
    wire = await Wire.connect(broker.port)
    answer = await wire.call(ApiVersionsRequest(), 0)
    await wire.close()
    offered = {row.api_key: row.max_version for row in answer.api_keys}
    if any(offered[key] < version for key, version in ID_VERSIONS.items()):
        pytest.skip("the broker has no topic ids in OffsetCommit or TxnOffsetCommit")


by_id = pytest.mark.usefixtures("ids_in_commits")


async def delete(bootstrap: str) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.delete_topics(["t"])


async def create_again(bootstrap: str, partitions: int = 1) -> bytes:
    """Return the id of the new topic, as soon as the broker answers with it: Apache Kafka does so a moment later."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        (old,) = await admin.describe_topics(["t"])
        await admin.delete_topics(["t"])
        await admin.create_topics([NewTopic("t", partitions)])
        new = old

        async def is_known() -> bool:
            nonlocal new
            with contextlib.suppress(UnknownTopicOrPartitionError):
                (new,) = await admin.describe_topics(["t"])
            return new.topic_id != old.topic_id

        await until(is_known)
        return new.topic_id


async def has_noticed(consumer: Consumer, topic_id: bytes) -> None:
    """Wait until the consumer reads the new topic. In the consumer protocol until it gives up the partition of the old
    one, which waits for the application to process the records in hand.
    """
    await until(lambda: (state := consumer._subscription.states[tp(0)]).topic_id == topic_id or state.held)


def consumer_of(bootstrap: str, way: str, **settings: Any) -> Consumer:
    merged = {"auto_offset_reset": "earliest", "allow_auto_create_topics": False, **WAYS[way], **settings}
    consumer = Consumer(bootstrap_servers=bootstrap, **merged)
    if way == "assigned":
        consumer.assign([tp(0)])
    else:
        consumer.subscribe(["t"])
    return consumer


def values(records: list[Record]) -> list[bytes]:
    return [record.value for record in records]


async def committed(bootstrap: str) -> dict[Any, OffsetAndMetadata]:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        return await admin.list_consumer_group_offsets("g")


@pytest.mark.proves("position-of-a-deleted-topic")
@by_id
@pytest.mark.parametrize("way", WAYS)
async def test_all_records_of_the_new_topic_are_read(bootstrap: str, way: str) -> None:
    """The new topic has more records than the old one, so that the old position is in its range."""
    await produce(bootstrap, numbers(0, 20))
    async with consumer_of(bootstrap, way) as consumer:
        await take(consumer, 20)
        await create_again(bootstrap)
        await produce(bootstrap, numbers(100, 130))
        assert values(await take(consumer, 30)) == numbers(100, 130)


@pytest.mark.proves("position-of-a-deleted-topic")
@by_id
@pytest.mark.parametrize("way", WAYS)
async def test_no_buffered_record_of_the_old_topic_is_handed_out(bootstrap: str, way: str) -> None:
    await produce(bootstrap, numbers(0, 20))
    async with consumer_of(bootstrap, way) as consumer:
        await take(consumer, 5)
        topic_id = await create_again(bootstrap)
        await produce(bootstrap, numbers(100, 130))
        await has_noticed(consumer, topic_id)
        assert values(await take(consumer, 30)) == numbers(100, 130)


@pytest.mark.proves("commit-for-a-deleted-topic")
@by_id
@pytest.mark.parametrize("way", GROUPS)
async def test_the_new_topic_gets_no_committed_offset_of_the_old_one(bootstrap: str, way: str) -> None:
    await produce(bootstrap, numbers(0, 20))
    async with consumer_of(bootstrap, way, auto_commit_interval_ms=50) as consumer:
        await take(consumer, 20)
        await create_again(bootstrap)
        await asyncio.sleep(2)  # seconds: forty intervals of the auto-commit
        assert (await committed(bootstrap)).get(tp(0), OffsetAndMetadata(0)).offset == 0
        await produce(bootstrap, numbers(100, 130))
        await take(consumer, 30)
    assert (await committed(bootstrap))[tp(0)].offset == 30


@pytest.mark.proves("commit-for-a-deleted-topic")
@by_id
@pytest.mark.parametrize("way", ["assigned", "classic", "consumer"])
async def test_offsets_of_records_in_hand_are_not_committed_for_the_new_topic(bootstrap: str, way: str) -> None:
    await produce(bootstrap, numbers(0, 20))
    async with consumer_of(bootstrap, way, group_id="g", enable_auto_commit=False) as consumer:
        await take(consumer, 20)
        await has_noticed(consumer, await create_again(bootstrap))
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(DeletedTopicCommitError):
            await consumer.commit({tp(0): 20})
        assert loop.time() - began < 2, "seconds"
        await produce(bootstrap, numbers(100, 130))
        await take(consumer, 10)
        await consumer.commit({tp(0): 10})
        assert await consumer.committed(tp(0)) == 10


async def test_a_position_that_the_application_has_chosen_may_be_committed(bootstrap: str) -> None:
    await produce(bootstrap, numbers(0, 20))
    async with consumer_of(bootstrap, "classic", enable_auto_commit=False) as consumer:
        await take(consumer, 20)
        topic_id = await create_again(bootstrap)
        await produce(bootstrap, numbers(100, 130))
        await until(lambda: consumer._subscription.states[tp(0)].topic_id == topic_id)
        assert await consumer.position(tp(0)) == 0
        consumer.seek(tp(0), 7)
        await consumer.commit({tp(0): 7})
        assert await consumer.committed(tp(0)) == 7
        assert values(await take(consumer, 23)) == numbers(107, 130)


@by_id
@pytest.mark.parametrize("way", GROUPS)
async def test_another_number_of_partitions(bootstrap: str, way: str) -> None:
    await produce(bootstrap, numbers(0, 20))
    async with consumer_of(bootstrap, way) as consumer:
        await take(consumer, 20)
        await create_again(bootstrap, 3)
        for partition in range(3):
            await produce(bootstrap, numbers(100 * partition, 100 * partition + 30), partition=partition)
        found = values(await take(consumer, 90, timeout_ms=20_000))
        assert sorted(found) == sorted(value for n in range(3) for value in numbers(100 * n, 100 * n + 30))


async def test_without_a_reset_policy_the_application_decides(bootstrap: str) -> None:
    await produce(bootstrap, numbers(0, 20))
    async with consumer_of(bootstrap, "assigned", auto_offset_reset="none") as consumer:
        consumer.seek(tp(0), 0)
        await take(consumer, 20)
        await create_again(bootstrap)
        await produce(bootstrap, numbers(100, 130))
        with pytest.raises(NoOffsetForPartitionError):
            await take(consumer, 1)
        consumer.seek(tp(0), 0)
        assert values(await take(consumer, 30)) == numbers(100, 130)


async def test_a_paused_partition_stays_paused(bootstrap: str) -> None:
    await produce(bootstrap, numbers(0, 20))
    async with consumer_of(bootstrap, "assigned") as consumer:
        await take(consumer, 20)
        consumer.pause(tp(0))
        await create_again(bootstrap)
        await produce(bootstrap, numbers(100, 130))
        await consumer._cluster.refresh()
        assert await consumer.getmany(timeout_ms=1_000) == {}
        assert consumer.paused() == {tp(0)}
        consumer.resume(tp(0))
        assert values(await take(consumer, 30)) == numbers(100, 130)


async def test_a_deleted_topic_does_not_delay_another_one(bootstrap: str) -> None:
    """The committed offsets of both topics are fetched by id, and one id no longer exists."""
    await produce(bootstrap, numbers(0, 5))
    await produce(bootstrap, numbers(50, 55), topic="u")
    async with consumer_of(bootstrap, "assigned", group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([tp(0), tp(0, "u")])
        await take(consumer, 10)
        await delete(bootstrap)
        for state in consumer._subscription.states.values():
            state.lose_position(Reset.COMMITTED)
        consumer._changed()
        assert values(await take(consumer, 5)) == numbers(50, 55)


@by_id
async def test_a_commit_for_a_deleted_topic_fails_soon(bootstrap: str) -> None:
    await produce(bootstrap, numbers(0, 20))
    async with consumer_of(bootstrap, "assigned", group_id="g", enable_auto_commit=False) as consumer:
        await take(consumer, 20)
        await delete(bootstrap)
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(DeletedTopicCommitError):
            await consumer.commit()
        with pytest.raises(UnknownTopicIdError):
            await consumer.committed(tp(0))
        assert loop.time() - began < 5, "seconds"


async def test_a_range_is_not_continued_in_the_new_topic(bootstrap: str) -> None:
    await produce(bootstrap, numbers(0, 20))
    async with BatchReader(bootstrap_servers=bootstrap) as reader:
        read = aiter(reader.read(tp(0), 0, 40))
        assert (await anext(read)).next_offset == 20
        await create_again(bootstrap)
        await produce(bootstrap, numbers(100, 140))
        with pytest.raises(UnknownTopicIdError):
            await anext(read)
        assert [fetched.next_offset async for fetched in reader.read(tp(0), 0, 40)][-1] == 40


@by_id
@pytest.mark.parametrize("way", ["assigned", "classic", "consumer"])
async def test_a_transaction_commits_no_offset_of_the_old_topic_for_the_new_one(bootstrap: str, way: str) -> None:
    await produce(bootstrap, numbers(0, 20))
    async with (
        Producer(bootstrap_servers=bootstrap, transactional_id="till") as producer,
        consumer_of(
            bootstrap, way, group_id="g", enable_auto_commit=False, isolation_level="read_committed"
        ) as consumer,
    ):
        await take(consumer, 20)
        await producer.begin_transaction()
        topic_id = await create_again(bootstrap)
        await produce(bootstrap, numbers(100, 130))
        await has_noticed(consumer, topic_id)
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(DeletedTopicCommitError):
            await producer.send_offsets_to_transaction({tp(0): 20}, consumer.group_metadata())
        await producer.abort_transaction()
        assert loop.time() - began < 5, "seconds"
        assert values(await take(consumer, 30)) == numbers(100, 130)
        async with producer.transaction():
            await producer.send_offsets_to_transaction({tp(0): 30}, consumer.group_metadata())
        assert await consumer.committed(tp(0)) == 30


async def test_an_empty_new_topic_does_not_keep_other_commits_waiting(bootstrap: str) -> None:
    await produce(bootstrap, numbers(0, 20))
    await produce(bootstrap, numbers(50, 55), topic="u")
    async with consumer_of(bootstrap, "assigned", group_id="g", auto_commit_interval_ms=50) as consumer:
        consumer.assign([tp(0), tp(0, "u")])
        await take(consumer, 25)
        await has_noticed(consumer, await create_again(bootstrap))
        await produce(bootstrap, numbers(55, 60), topic="u")
        assert values(await take(consumer, 5)) == numbers(55, 60)
        await consumer.getmany(timeout_ms=500)
        assert (await committed(bootstrap))[tp(0, "u")].offset == 10
        await consumer.commit()
