"""Three whole brokers over one store with semel's own client: exactly once while coordinators move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest
from broker.cluster.brokers import RecordedLog, until
from semel import Admin, Consumer, NewTopic, Producer, TopicPartition
from semel.errors import KafkaError
from semel_broker.cluster.local_store import LocalStore
from semel_broker.config.loading import load
from semel_broker.node import Node
from semel_broker.world import World
from semel_storage.disk.memory_disk import MemoryDisk
from support.virtual_time import loop_time, wall_ms

SETTINGS = {
    "durability": "os",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "replica.lag.time.max.ms": "2000",
    "controlled.shutdown.max.wait.ms": "5000",
}
RECORDS = 200


class StoreOfThreeNodes:
    """One store for all brokers. None of them closes it."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def close(self) -> None:
        pass


class Nodes:
    def __init__(self) -> None:
        disk = MemoryDisk()
        disk.mkdir("data")
        self.store = LocalStore.open(disk, "data/semel.store")
        self.disks = {node_id: MemoryDisk() for node_id in (1, 2, 3)}
        self.nodes: dict[int, Node] = {}
        self.logs: dict[int, RecordedLog] = {node_id: RecordedLog() for node_id in self.disks}
        self.ports: dict[int, int] = {}

    async def start(self, node_id: int) -> None:
        world = World(
            now_ms=wall_ms,
            monotonic=loop_time,
            rng=Random(node_id),
            disk=self.disks[node_id],
            log=self.logs[node_id],
        )
        given = {
            **SETTINGS,
            "node.id": str(node_id),
            "log.dir": "data",
            "host.name": "127.0.0.1",
            "port": str(self.ports.get(node_id, 0)),
        }
        config = load(overrides=[f"{name}={value}" for name, value in given.items()])
        self.nodes[node_id] = node = await Node.start(config, world, StoreOfThreeNodes(self.store))  # type: ignore[arg-type]
        self.ports[node_id] = node.port

    async def stop(self, node_id: int) -> None:
        await self.nodes.pop(node_id).stop()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    async def in_sync(self) -> None:
        """Wait until all replicas of all partitions are in sync."""
        image = next(iter(self.nodes.values())).broker.feed.image
        await until(lambda: all(len(view.state.isr) == len(view.replicas) for view in image.partitions()))

    async def close(self) -> None:
        for node_id in list(self.nodes):
            await self.stop(node_id)
        await self.store.close()


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    nodes = Nodes()
    await asyncio.gather(*(nodes.start(node_id) for node_id in (1, 2, 3)))
    yield nodes
    await nodes.close()


async def enrich(nodes: Nodes, done: asyncio.Event) -> int:
    """Write one record to `out` for every record of `in`, in transactions.

    Returns the number of failed transactions.
    """
    failed = 0
    async with (
        Consumer(
            "in",
            bootstrap_servers=nodes.bootstrap,
            group_id="g",
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
        Producer(bootstrap_servers=nodes.bootstrap, transactional_id="enricher") as producer,
    ):
        while not done.is_set():
            batches = await consumer.getmany(timeout_ms=100, max_records=10)
            if not batches:
                continue
            try:
                async with producer.transaction():
                    for partition, records in batches.items():
                        for record in records:
                            await producer.send("out", record.value, partition=partition.partition)
                    offsets = {partition: records[-1].offset + 1 for partition, records in batches.items()}
                    await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            except KafkaError:
                failed += 1
                for partition in batches:
                    await consumer.seek_to_committed(partition)
    return failed


async def read_all(nodes: Nodes, topic: str, count: int) -> list[bytes]:
    async with Consumer(
        bootstrap_servers=nodes.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        partitions = [TopicPartition(topic, index) for index in range(3)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        values: list[bytes] = []
        async with asyncio.timeout(20):
            while len(values) < count:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    values += [record.value for record in records]
        for records in (await consumer.getmany(timeout_ms=300)).values():
            values += [record.value for record in records]
        return values


@pytest.mark.proves("moved-transaction")
async def test_exactly_once_while_every_broker_in_turn_goes_and_comes_back(nodes: Nodes) -> None:
    async with Admin(bootstrap_servers=nodes.bootstrap) as admin:
        await admin.create_topics([NewTopic("in", 3, 3), NewTopic("out", 3, 3)])
    values = [b"%d" % number for number in range(RECORDS)]
    done = asyncio.Event()
    enriching = asyncio.create_task(enrich(nodes, done))
    async with Producer(bootstrap_servers=nodes.bootstrap) as producer:
        for number, value in enumerate(values):
            await producer.send_and_wait("in", value, partition=number % 3)
            if number in (60, 100, 140):
                node_id = {60: 1, 100: 2, 140: 3}[number]
                await nodes.stop(node_id)
                await nodes.start(node_id)
                await nodes.in_sync()
    found = await read_all(nodes, "out", RECORDS)
    done.set()
    await enriching
    assert sorted(found) == sorted(values)
    moved = [line for log in nodes.logs.values() for line in log.lines if line[0] == "transactions_loaded"]
    assert len({fields["partition"] for _, fields in moved}) >= 1
