"""`start` and `stop` of each client object, cancelled at each turn of the loop: once, repeatedly, and by the end of
the loop.

The group is left, the loop is clean, and another `stop` waits for the same end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from itertools import count
from typing import Any

import pytest
from client.consuming import produce, take, tp
from client.lifecycle.stepping import Leftovers, Strike, strike_at_each_turn
from semel import Admin, BatchReader, Consumer, Producer, TransactionGroup
from semel.admin import NewTopic
from semel.aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from semel.aiokafka.admin import AIOKafkaAdminClient

A_MOMENT_S = 2.0
"""Longer than a closing may take once its caller was cancelled."""
HOW = {
    "once": {"again": False, "everything": False},
    "again and again": {"again": True, "everything": False},
    "with the loop": {"again": False, "everything": True},
}
PROTOCOLS = ["classic", "consumer"]

MAKERS: dict[str, Callable[..., Any]] = {
    "Producer": Producer,
    "Producer with transactions": lambda **at: Producer(transactional_id="t", **at),
    "Producer without idempotence": lambda **at: Producer(enable_idempotence=False, **at),
    "Consumer of the classic protocol": lambda **at: Consumer("t", group_id="g", **at),
    "Consumer of the consumer protocol": lambda **at: Consumer("t", group_id="g", group_protocol="consumer", **at),
    "Consumer without a group": lambda **at: Consumer("t", **at),
    "Admin": Admin,
    "BatchReader": BatchReader,
    "TransactionGroup": lambda **at: TransactionGroup("group", **at),
    "AIOKafkaConsumer": lambda **at: AIOKafkaConsumer("t", group_id="g", auto_offset_reset="earliest", **at),
    "AIOKafkaProducer": AIOKafkaProducer,
    "AIOKafkaAdminClient": AIOKafkaAdminClient,
}


def stop_of(client: Any) -> Callable[[], Coroutine[Any, Any, None]]:
    found: Callable[[], Coroutine[Any, Any, None]] = client.close if hasattr(client, "close") else client.stop
    return found


@pytest.fixture
async def topic(bootstrap: str) -> str:
    """The address of a broker with the topic "t" of two partitions, and a few records in the first."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic("t", 2)])
    await produce(bootstrap, [b"%d" % number for number in range(20)])
    # The internal topics exist before the first trial looks at its tasks.
    async with Consumer("t", bootstrap_servers=bootstrap, group_id="first") as consumer:
        await consumer.commit({tp(0): 0})
    async with Producer(bootstrap_servers=bootstrap, transactional_id="first") as producer, producer.transaction():
        await producer.send("t", b"last", partition=1)
    return bootstrap


@pytest.fixture
async def members(topic: str) -> AsyncIterator[Callable[[str], Awaitable[list[str]]]]:
    """The members that the coordinator has in a group."""
    async with Admin(bootstrap_servers=topic) as admin:

        async def of(group: str) -> list[str]:
            listed = {each.group_id for each in await admin.list_consumer_groups()}
            if group not in listed:
                return []
            (found,) = await admin.describe_consumer_groups([group])
            return [member.member_id for member in found.members]

        yield of


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("call", ["start", "stop"])
async def test_nothing_is_left_on_the_loop(topic: str, members: Any, kind: str, call: str, how: str) -> None:
    async def trial(strike: Strike) -> None:
        await asyncio.sleep(A_MOMENT_S)
        left = Leftovers()
        client = MAKERS[kind](bootstrap_servers=topic)
        if call == "start":
            await strike.at(client.start())
        else:
            await client.start()
            await strike.at(stop_of(client)())
        await asyncio.sleep(A_MOMENT_S)
        if not strike.has_struck:
            await stop_of(client)()
        left.end()
        await stop_of(client)()
        assert await members("g") == []

    assert await strike_at_each_turn(trial, **HOW[how]) >= (5 if call == "start" else 1)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("instance", [None, "one"])
async def test_a_cancelled_stop_leaves_the_group(
    topic: str, members: Any, protocol: str, instance: str | None, how: str
) -> None:
    """Static members keep their place in the classic protocol, and leave it for a while in the consumer protocol."""
    groups = count()

    async def trial(strike: Strike) -> None:
        group = f"{protocol}-{instance}-{next(groups)}"
        settings: Any = {"group_protocol": protocol, "group_instance_id": instance, "group_id": group}
        consumer = Consumer("t", bootstrap_servers=topic, auto_offset_reset="earliest", **settings)
        await consumer.start()
        await take(consumer, 3)
        assert len(await members(group)) == 1
        await strike.at(consumer.stop())
        await asyncio.sleep(A_MOMENT_S)
        beats = heartbeats_of(consumer)
        await asyncio.sleep(10)
        assert beats() == 0
        assert len(await members(group)) == (0 if instance is None else 1)
        async with Consumer("t", bootstrap_servers=topic, **settings) as other:
            assert len(other.assignment()) == 2
            if how != "with the loop":
                assert await other.committed(tp(0)) == 3, "the offsets were committed on the way out"

    assert await strike_at_each_turn(trial, **HOW[how]) >= 5


def heartbeats_of(consumer: Consumer) -> Callable[[], int]:
    """The heartbeats answered since this call."""
    counters = consumer._cluster.pool.counters
    before = counters.count(12, 68)
    return lambda: counters.count(12, 68) - before
