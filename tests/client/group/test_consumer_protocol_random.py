"""Members of the consumer protocol that come, go, crash, subscribe anew and are cut off, in a random order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from broker.consumers import HeartbeatingMember as RawConsumer
from broker.harness import Harness
from client.consuming import Reader, produce, until
from client.group.members import CONSUMER, TIMES, create, group_of, member_of
from semel import ConsumerRebalanceListener, TopicPartition
from semel._net.pool import ConnectionPurpose
from semel.consumer import Consumer
from semel.errors import CommitFailedError

PARTITIONS = {"t": 6, "u": 3}
STEPS = 25
SEEDS = [*range(4), *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(4, 60))]
SUBSCRIPTIONS = (["t"], ["u"], ["t", "u"])


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Harness]:
    harness = Harness(tmp_path / "data", **TIMES)
    await harness.start()
    yield harness
    await harness.stop()


class PartitionOwners(ConsumerRebalanceListener):
    """Raises AssertionError when two members own a partition at once. A member that crashed owns nothing."""

    owned: dict[TopicPartition, PartitionOwners]

    def __init__(self, owned: dict[TopicPartition, PartitionOwners], rng: Random) -> None:
        self.owned, self.rng = owned, rng
        self.is_removed = False
        """Whether the coordinator has removed the member. Others may own its partitions before it knows."""

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        for partition in assigned if not self.is_removed else ():
            assert self.owned.get(partition, self) is self, f"{partition} has two owners"
            self.owned[partition] = self
        await asyncio.sleep(self.rng.choice((0, 0, 0.5)))

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        await asyncio.sleep(self.rng.choice((0, 0, 0.5)))
        self.forget(revoked)

    async def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        self.is_removed = False
        self.forget(lost)

    def forget(self, gone: list[TopicPartition]) -> None:
        for partition in gone:
            if self.owned.get(partition) is self:
                del self.owned[partition]


class RandomGroup:
    """The members of one group, and the steps that a seed chooses."""

    def __init__(self, broker: Harness, seed: int) -> None:
        self.broker, self.rng = broker, Random(seed)
        self.bootstrap = f"127.0.0.1:{broker.port}"
        self.readers: dict[Reader, PartitionOwners] = {}
        self.owned: dict[TopicPartition, PartitionOwners] = {}
        self.sent = self.names = 0
        self.read: set[bytes] = set()

    async def join(self) -> None:
        self.names += 1
        instance = f"s{self.names}" if self.rng.random() < 0.3 else None
        consumer = member_of(self.bootstrap, **CONSUMER, group_instance_id=instance, auto_commit_interval_ms=500)
        owners = PartitionOwners(self.owned, self.rng)
        consumer.subscribe(self.rng.choice(SUBSCRIPTIONS), listener=owners)
        reader = Reader(consumer)
        await reader.__aenter__()
        self.readers[reader] = owners

    async def step(self) -> None:
        what = self.rng.choice(("join", "join", "stop", "crash", "subscribe", "unsubscribe", "cut", "remove", "commit"))
        if what == "join" or not self.readers:
            if len(self.readers) < 4:
                await self.join()
            return
        reader = self.rng.choice(list(self.readers))
        consumer, owners = reader.consumer, self.readers[reader]
        match what:
            case "stop" | "crash":
                del self.readers[reader]
                await (reader.stop() if what == "stop" else reader.crash())
                owners.forget(list(self.owned))
                self.read.update(reader.values)
            case "subscribe":
                consumer.subscribe(self.rng.choice(SUBSCRIPTIONS), listener=owners)
            case "unsubscribe":
                owners.forget(list(self.owned))
                consumer.unsubscribe()
                if self.rng.random() < 0.5:
                    await asyncio.sleep(self.rng.choice((0, 0.1, 1)))
                consumer.subscribe(self.rng.choice(SUBSCRIPTIONS), listener=owners)
            case "cut":
                for node_id in consumer._cluster.metadata.brokers:
                    for role in ConnectionPurpose:
                        if (connection := consumer._cluster.pool.live(node_id, role)) is not None:
                            connection.close()
            case "remove":
                await self.remove(consumer, owners)
            case "commit":
                with suppress(CommitFailedError):
                    await consumer.commit()

    async def remove(self, consumer: Consumer, owners: PartitionOwners) -> None:
        """The coordinator removes the member, as when its session has ended."""
        membership = group_of(consumer).member.membership
        raw = RawConsumer(await self.broker.wire(), membership.member_id, instance=membership.group_instance_id)
        owners.is_removed = True  # before the answer: another member may get the partitions as soon
        owners.forget(list(self.owned))
        await raw.leave()

    async def send(self) -> None:
        for topic, count in PARTITIONS.items():
            self.sent += 1
            await produce(self.bootstrap, [b"%d" % self.sent], topic=topic, partition=self.rng.randrange(count))

    def has_settled(self) -> bool:
        """Whether each partition has one owner that subscribes to its topic, and all members know it."""
        wanted = {name for reader in self.readers for name in reader.consumer._subscription.topics}
        places = sorted(TopicPartition(name, n) for name in wanted for n in range(PARTITIONS[name]))
        have = [place for reader in self.readers for place in reader.consumer.assignment()]
        return sorted(have) == places


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_partition_has_one_owner_and_in_the_end_all_are_read(broker: Harness, seed: int) -> None:
    world = RandomGroup(broker, seed)
    await create(world.bootstrap, **PARTITIONS)
    for _ in range(STEPS):
        await world.step()
        await world.send()
        await asyncio.sleep(world.rng.choice((0, 0, 0.05, 0.3, 2)))
    while len(world.readers) < 2:
        await world.join()
    for reader, owners in world.readers.items():
        reader.consumer.subscribe(["t", "u"], listener=owners)
    await until(world.has_settled, timeout_s=60)
    await world.send()
    everything = {b"%d" % number for number in range(1, world.sent + 1)}

    def is_read() -> bool:
        return everything <= world.read.union(*(reader.values for reader in world.readers))

    try:
        await until(is_read, timeout_s=60)
    finally:
        for reader in world.readers:
            assert reader._task is not None
            failed = reader._task.exception() if reader._task.done() else None
            await reader.stop()
            if failed is not None:
                raise failed
