"""The maximal cost of a transaction: round trips, tasks, writes, and accesses to partitions outside of it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from client.fake_coordinator import ADD_OFFSETS, ADD_PARTITIONS, END, PRODUCE, TXN_OFFSETS, FakeCoordinator
from semel import Producer, TopicPartition
from semel._net.connection import Connection
from semel._net.pool import ConnectionPurpose

ROUND_TRIPS = {1: [PRODUCE, ADD_PARTITIONS, END], 2: [PRODUCE, END]}
ROUND_TRIPS_WITH_OFFSETS = {1: [PRODUCE, ADD_PARTITIONS, ADD_OFFSETS, END, TXN_OFFSETS], 2: [PRODUCE, END, TXN_OFFSETS]}
"""By version, in the order of the API keys."""


def producer(broker: FakeCoordinator) -> Producer:
    return Producer(bootstrap_servers=broker.address, transactional_id="x")


def data_connection(made: Producer) -> Connection:
    connection = made._cluster.pool.live(0, ConnectionPurpose.DATA)
    assert connection is not None
    return connection


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("records", [1, 50])
async def test_a_transaction_asks_only_what_it_must(version: int, records: int) -> None:
    async with FakeCoordinator(version) as coordinator, producer(coordinator) as made:
        for _ in range(3):
            coordinator.requests.clear()
            async with made.transaction():
                for _ in range(records):
                    await made.send("t", b"v")
        assert sorted(key for key, _, _ in coordinator.requests) == ROUND_TRIPS[version]


@pytest.mark.parametrize("version", [1, 2])
async def test_a_transaction_with_offsets_asks_only_what_it_must(version: int) -> None:
    async with FakeCoordinator(version) as coordinator, producer(coordinator) as made:
        for _ in range(3):  # the first one looks for the group's coordinator
            coordinator.requests.clear()
            async with made.transaction():
                await made.send("t", b"v")
                await made.send_offsets_to_transaction({TopicPartition("in", 0): 1}, "g")
        assert sorted(key for key, _, _ in coordinator.requests) == ROUND_TRIPS_WITH_OFFSETS[version]


async def test_a_small_transaction_costs_one_task() -> None:
    tasks: list[asyncio.Task[Any]] = []

    def count(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **settings: Any) -> asyncio.Future[Any]:
        task = asyncio.Task(work, loop=loop, **settings)
        tasks.append(task)
        return task

    async with FakeCoordinator(2) as coordinator, producer(coordinator) as made:
        async with made.transaction():
            await made.send("t", b"first")
        asyncio.get_running_loop().set_task_factory(count)
        async with made.transaction():
            await made.send("t", b"v")
        asyncio.get_running_loop().set_task_factory(None)
    assert [task.get_name() for task in tasks if not task.get_name().startswith("Task-")] == ["commit of x"]


async def test_the_records_are_sent_before_commit_first_waits() -> None:
    async with FakeCoordinator(2) as coordinator, producer(coordinator) as made:
        async with made.transaction():
            await made.send("t", b"first")
        await made.begin_transaction()
        await made.send("t", b"second")
        assert data_connection(made).in_flight == 0, "send leaves room for more records to the same batch"
        commit = made.commit_transaction()
        commit.send(None)
        assert data_connection(made).in_flight == 1
        commit.close()  # this caller gives up at once; the commit does not
        await made.commit_transaction()
        assert coordinator.committed() == [b"first", b"second"]


async def test_a_commit_does_not_look_at_partitions_that_hold_nothing() -> None:
    async with FakeCoordinator(2, {"t": 300}) as coordinator, producer(coordinator) as made:
        async with made.transaction():
            for partition in range(300):
                await made.send("t", b"v", partition=partition)
        async with made.transaction():
            await made.send("t", b"v", partition=7)
            assert [queue.partition for queue in made._sender._open_queues()] == [7]
