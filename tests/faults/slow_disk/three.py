"""The cases of three brokers and an etcd: followers, leaders that change, replicas that move and that truncate."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from semel import Admin, NewTopic, Producer, TopicPartition
from semel.structs import PartitionMetadata
from support.etcd import EtcdProcess

from faults.slow_disk.held_broker import HeldBroker
from faults.slow_disk.measure import CLIENT, LoadCase, MeasuredCluster

NODES = (1, 2, 3)
SETTINGS = {
    "log.flush.offset.checkpoint.interval.ms": "5000",
    "log.retention.check.interval.ms": "2000",
    "log.cleaner.backoff.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "cluster.name": "slow-disks",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "auto.leader.rebalance.enable": "false",
}
PARTITIONS = 20
SWEEP_S = 6.0
CHANGED_S = 110.0
LOOK_S = 0.05
CUT_OFF_RECORDS = 60
"""Records while the other brokers stand still. That must end before their sessions do (6 s): else broker 1 alone is
left in the ISR, and once it is dead no other broker may lead."""


class ThreeMeasuredBrokers(MeasuredCluster):
    """Three brokers. Topics have three replicas, but for those that move."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._etcd = EtcdProcess(directory / "etcd").start()
        super().__init__(
            {
                f"broker {node}": HeldBroker(
                    directory / f"broker-{node}",
                    **SETTINGS,
                    **{"node.id": str(node), "etcd.endpoints": self._etcd.url},
                )
                for node in NODES
            }
        )

    @property
    def _address(self) -> str:
        return ",".join(broker.process.address for broker in self.brokers.values())

    @asynccontextmanager
    async def clients(self) -> AsyncIterator[None]:
        async with (
            Admin(bootstrap_servers=self._address, **CLIENT) as self._admin,
            Producer(
                bootstrap_servers=self._address, linger_ms=0, delivery_timeout_ms=110_000, **CLIENT
            ) as self._producer,
        ):
            yield

    async def prepare(self) -> None:
        rolled = {"segment.bytes": "20000"}
        in_turn = {each: _replicas(each) for each in range(PARTITIONS)}
        await self._admin.create_topics(
            [
                NewTopic("known", replica_assignments=in_turn),
                NewTopic("led", replica_assignments=in_turn),
                NewTopic("deleted", replica_assignments=in_turn),
                NewTopic("rolled", replica_assignments=in_turn, topic_configs=rolled),
                NewTopic(
                    "moved",
                    replica_assignments={each: [1] for each in range(PARTITIONS)},
                    topic_configs={"min.insync.replicas": "1"},
                ),
                NewTopic("parted", replica_assignments={each: [1, 2, 3] for each in range(PARTITIONS)}),
            ]
        )
        for topic in ("led", "moved", "deleted", "parted"):
            await self._until(topic, _in_sync)
            await self._fill(topic)

    async def _fill(self, topic: str, value: bytes = b"x") -> None:
        sent = [self._producer.send_and_wait(topic, value, partition=each) for each in range(PARTITIONS)]
        await asyncio.gather(*sent)

    async def _until(self, topic: str, is_so: Callable[[PartitionMetadata], bool]) -> None:
        async with asyncio.timeout(CHANGED_S):
            while True:
                (described,) = await self._admin.describe_topics([topic])
                if all(map(is_so, described.partitions)):
                    return
                await asyncio.sleep(LOOK_S)

    async def become_slow(self) -> None:
        await self._fill("parted")
        await self._fill("led")

    async def first_records(self) -> None:
        await self._fill("known")

    async def produces(self) -> None:
        for number in range(40):
            await self._producer.send_and_wait("known", b"x", partition=number % PARTITIONS)

    async def rolls(self) -> None:
        for _ in range(6):
            await self._fill("rolled", bytes(15_000))
        await asyncio.sleep(SWEEP_S)

    async def transactions(self) -> None:
        async with Producer(bootstrap_servers=self._address, transactional_id="id", linger_ms=0, **CLIENT) as producer:
            for _ in range(3):
                async with producer.transaction():
                    await producer.send("known", b"y", partition=0)
                    await producer.send("known", b"y", partition=1)

    async def records_deleted(self) -> None:
        await self._admin.delete_records({TopicPartition("rolled", each): 5 for each in range(PARTITIONS)})
        await asyncio.sleep(1)  # the followers delete them, too

    async def topic_deleted(self) -> None:
        await self._admin.delete_topics(["deleted"])
        await asyncio.sleep(1)  # each broker removes its files

    async def replicas_moved(self) -> None:
        """Each partition moves from broker 1 to another one, which fetches all of it. Broker 1 removes its log."""
        await self._admin.alter_partition_reassignments(
            {TopicPartition("moved", each): [2 + each % 2] for each in range(PARTITIONS)}
        )
        await self._until("moved", lambda partition: 1 not in partition.replicas)
        await self._fill("moved")

    async def leaders_elected(self) -> None:
        """Another replica becomes the preferred one, and is elected."""
        await self._admin.alter_partition_reassignments(
            {TopicPartition("led", each): _replicas(each + 1) for each in range(PARTITIONS)}
        )
        await self._until("led", lambda partition: partition.replicas == _replicas(partition.partition + 1))
        await self._admin.elect_leaders([TopicPartition("led", each) for each in range(PARTITIONS)])
        await self._until("led", lambda partition: partition.leader == partition.replicas[0])
        await self._fill("led")

    async def stopped_and_started(self) -> None:
        """SIGTERM: the leaderships of a broker move away before it ends."""
        broker = self.brokers["broker 2"]
        self.note(f"ended {await broker.stop():.1f} s after SIGTERM")
        await broker.up()
        await self._until("known", _in_sync)
        await self._fill("known")

    async def part(self) -> None:
        """Broker 1 leads and has more records than the others. Then it dies, and another broker leads."""
        others = [self.brokers[f"broker {node}"] for node in (2, 3)]
        async with Producer(
            bootstrap_servers=self._address, acks=1, enable_idempotence=False, linger_ms=0, **CLIENT
        ) as producer:
            await self._until("parted", lambda partition: partition.leader == 1)
            await self._send_to_each(producer, 1)
            _signal(others, signal.SIGSTOP)
            try:
                await self._send_to_each(producer, CUT_OFF_RECORDS)
                self.brokers["broker 1"].kill()
            finally:
                _signal(others, signal.SIGCONT)
        await self._until("parted", lambda partition: partition.leader in (2, 3))

    async def _send_to_each(self, producer: Producer, count: int) -> None:
        for _ in range(count // 20 + 1):
            await asyncio.gather(
                *[producer.send_and_wait("parted", b"alone", partition=each) for each in range(PARTITIONS)]
            )

    async def truncated(self) -> None:
        """The former leader starts, truncates as a follower, and fetches."""
        await self.brokers["broker 1"].up()
        await self._until("parted", _in_sync)
        truncated = sum('"event":"log_truncated"' in line for line in self.brokers["broker 1"].process.log)
        self.note(f"{truncated} logs truncated")

    async def end(self) -> None:
        await super().end()
        self._etcd.kill()


def _replicas(number: int) -> tuple[int, ...]:
    """All brokers, with another one first for each number."""
    first = number % len(NODES)
    return NODES[first:] + NODES[:first]


def _in_sync(partition: PartitionMetadata) -> bool:
    return partition.leader >= 0 and len(partition.isr) == len(partition.replicas)


def _signal(brokers: Iterable[HeldBroker], number: signal.Signals) -> None:
    for broker in brokers:
        os.kill(broker.process.pid, number)


ROWS: Mapping[str, LoadCase[ThreeMeasuredBrokers]] = {
    "first": LoadCase("first records of 20 partitions", ThreeMeasuredBrokers.first_records),
    "produces": LoadCase("40 produces to known partitions", ThreeMeasuredBrokers.produces),
    "rolls": LoadCase("120 rolls, and a sweep", ThreeMeasuredBrokers.rolls),
    "transactions": LoadCase("a new transactional id, 3 transactions", ThreeMeasuredBrokers.transactions),
    "records": LoadCase("DeleteRecords of 20 partitions", ThreeMeasuredBrokers.records_deleted),
    "topic": LoadCase("a topic of 20 partitions deleted", ThreeMeasuredBrokers.topic_deleted),
    "moved": LoadCase("20 replicas move to other brokers", ThreeMeasuredBrokers.replicas_moved),
    "elected": LoadCase("20 partitions get another leader", ThreeMeasuredBrokers.leaders_elected),
    "stop": LoadCase("SIGTERM of a broker, its start, and 20 produces", ThreeMeasuredBrokers.stopped_and_started),
    "truncated": LoadCase(
        "a former leader starts and truncates 20 logs", ThreeMeasuredBrokers.truncated, ThreeMeasuredBrokers.part
    ),
}
