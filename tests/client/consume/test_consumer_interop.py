"""One group of different clients: each gets its share, whichever client leads the group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from client.consume.test_consumer import grow
from client.consuming import Reader, produce, until
from client.group.members import CLASSIC, member_of

pytestmark = pytest.mark.real_time

aiokafka = pytest.importorskip("aiokafka")
confluent_kafka = pytest.importorskip("confluent_kafka")

Foreign = Callable[[str, str], AbstractAsyncContextManager[Callable[[], int]]]
"""(bootstrap, strategy) -> a function that returns the number of partitions of a running member."""


@asynccontextmanager
async def aiokafka_member(bootstrap: str, strategy: str) -> AsyncIterator[Callable[[], int]]:
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    known = {a.name: a for a in (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor)}
    consumer = aiokafka.AIOKafkaConsumer(
        "t",
        bootstrap_servers=bootstrap,
        group_id="g",
        partition_assignment_strategy=[known[strategy]],
        heartbeat_interval_ms=100,
        session_timeout_ms=6000,
    )
    starting = asyncio.create_task(consumer.start())
    try:
        yield lambda: len(consumer.assignment()) if starting.done() else 0
    finally:
        await starting
        await consumer.stop()


@asynccontextmanager
async def librdkafka_member(bootstrap: str, strategy: str) -> AsyncIterator[Callable[[], int]]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "partition.assignment.strategy": strategy,
            "heartbeat.interval.ms": 100,
            "session.timeout.ms": 6000,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["t"])

    async def poll() -> None:
        while True:
            consumer.poll(0)
            await asyncio.sleep(0.01)

    polling = asyncio.create_task(poll())
    try:
        yield lambda: len(consumer.assignment())
    finally:
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)
        # It waits for its threads, which talk to the broker of this process.
        await asyncio.get_running_loop().run_in_executor(None, consumer.close)


@pytest.fixture
async def wide(bootstrap: str) -> str:
    await produce(bootstrap, [b"0"])
    await grow(bootstrap, 6)
    return bootstrap


CASES = [
    pytest.param(librdkafka_member, "range", id="librdkafka-range"),
    pytest.param(librdkafka_member, "roundrobin", id="librdkafka-roundrobin"),
    pytest.param(librdkafka_member, "cooperative-sticky", id="librdkafka-cooperative-sticky"),
    pytest.param(aiokafka_member, "range", id="aiokafka-range"),
    pytest.param(aiokafka_member, "roundrobin", id="aiokafka-roundrobin"),
    pytest.param(aiokafka_member, "sticky", id="aiokafka-sticky"),
]


@pytest.mark.parametrize(("foreign", "strategy"), CASES)
async def test_semel_leads_a_foreign_member(wide: str, foreign: Foreign, strategy: str) -> None:
    async with Reader(member_of(wide, **CLASSIC, partition_assignment_strategy=[strategy])) as ours:
        await until(lambda: len(ours.consumer.assignment()) == 6)
        async with foreign(wide, strategy) as share:
            await until(lambda: (len(ours.consumer.assignment()), share()) == (3, 3), timeout_s=15)
        await until(lambda: len(ours.consumer.assignment()) == 6, timeout_s=15)


@pytest.mark.parametrize(("foreign", "strategy"), CASES)
async def test_a_foreign_member_leads_semel(wide: str, foreign: Foreign, strategy: str) -> None:
    async with foreign(wide, strategy) as share:
        await until(lambda: share() == 6, timeout_s=15)
        async with Reader(member_of(wide, **CLASSIC, partition_assignment_strategy=[strategy])) as ours:
            await until(lambda: (len(ours.consumer.assignment()), share()) == (3, 3), timeout_s=15)
        await until(lambda: share() == 6, timeout_s=15)
