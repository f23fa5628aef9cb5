"""Three brokers over an etcd, as processes, for tests and figures about clusters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from semel import Admin
from semel.admin import NewTopic
from semel.errors import UnknownTopicOrPartitionError
from semel.structs import PartitionMetadata

from support.etcd import EtcdProcess
from support.processes import BrokerProcess

NAME = "three"
"""The name of the cluster, and the prefix of its keys in etcd."""
NODES = (1, 2, 3)
WAIT_S = 120
LOOK_S = 0.02


class EtcdAndThreeBrokers:
    """The etcd and its brokers by node id, all running."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.etcd = EtcdProcess(directory / "etcd")
        self.brokers: dict[int, BrokerProcess] = {}
        self._directory = directory
        self._settings = settings
        self.own_settings: dict[int, dict[str, str]] = {}
        """The settings of single brokers, by node id; fill it before `start`."""

    def start(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        self.etcd.start()
        for node_id in NODES:
            process = self.brokers[node_id] = BrokerProcess(
                self._directory / f"broker-{node_id}",
                **{
                    "node.id": str(node_id),
                    "etcd.endpoints": self.etcd.url,
                    "cluster.name": NAME,
                    "default.replication.factor": "3",
                    "min.insync.replicas": "2",
                    "replica.lag.time.max.ms": "10000",
                    **self._settings,
                    **self.own_settings.get(node_id, {}),
                },
            )
            process.start()

    def stop(self) -> None:
        for process in self.brokers.values():
            process.stop()
        self.etcd.kill()

    @property
    def addresses(self) -> str:
        """The addresses of all brokers, as bootstrap servers."""
        return ",".join(process.address for process in self.brokers.values())

    def create(self, topic: str, assignments: list[list[int]]) -> None:
        """Create a topic with these replicas. Returns once all of them are in sync."""

        async def create(admin: Admin) -> None:
            await admin.create_topics([NewTopic(topic, replica_assignments=dict(enumerate(assignments)))])

        self._ask(create)
        self.wait(topic, lambda partition: len(partition.isr) == len(partition.replicas) and partition.leader >= 0)

    def wait(self, topic: str, is_so: Callable[[PartitionMetadata], bool]) -> float:
        """Wait until all partitions of the topic reach the condition. Returns the seconds."""

        async def look(admin: Admin) -> None:
            async with asyncio.timeout(WAIT_S):
                while True:
                    try:
                        (described,) = await admin.describe_topics([topic])
                    except UnknownTopicOrPartitionError:
                        described = None  # the asked broker does not know it yet
                    if described is not None and all(is_so(partition) for partition in described.partitions):
                        return
                    await asyncio.sleep(LOOK_S)

        started = time.perf_counter()
        self._ask(look)
        return time.perf_counter() - started

    def _ask(self, ask: Callable[[Admin], Awaitable[None]]) -> None:
        async def run() -> None:
            async with Admin(bootstrap_servers=self.addresses) as admin:
                await ask(admin)

        asyncio.run(run())


@contextmanager
def three(directory: Path, **settings: str) -> Iterator[EtcdAndThreeBrokers]:
    """A fresh cluster; `settings` are those of its brokers."""
    cluster = EtcdAndThreeBrokers(directory, **settings)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
