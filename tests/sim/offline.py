"""Three brokers, of which one cannot use the files of some partitions any more: another replica leads them.

The broker stays in the cluster and leads its other partitions. Writers send to all partitions meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import msgspec
from semel import Admin, NewTopic, Producer
from semel.errors import KafkaError

from sim.checkers.anomaly import Anomaly, few
from sim.client import SimEdge
from sim.cluster import NAMES_OF, SimCluster
from sim.control import Listener
from sim.disk import DiskWeather
from sim.host import Host
from sim.logs import captured
from sim.run import RunVerdict
from sim.world import NS, SimWorld

CHECKER = "not-led"
TOPIC, PARTITIONS = "t", 6
EXPECTED = "the leader refuses the fetch with KAFKA_STORAGE_ERROR"
"""Followers log it until another replica leads."""
START_NS = 60 * NS
LED_WITHIN_NS = 5 * NS


class OfflinePartitions(msgspec.Struct, frozen=True):
    """The files of these partitions cannot be used any more, on the broker that leads the first of them."""

    partitions: tuple[int, ...]


class OfflineRun:
    """One run of a seed."""

    about = "offline partitions"

    def __init__(self, seed: int, listener: Listener | None = None) -> None:
        self.seed = seed
        self.world = SimWorld(seed, listener)
        rng = Random(f"offline/{seed}")
        self.faults: Sequence[OfflinePartitions] = [
            OfflinePartitions(tuple(rng.sample(range(PARTITIONS), rng.randint(1, 3))))
        ]
        self.cluster = SimCluster(self.world, len(NAMES_OF[3]), {}, DiskWeather(sync_ms=(0.05, 0.5)))
        self._is_prepared = False
        self._stored: dict[int, int] = {}
        """Partition -> the time of the last acknowledged record."""

    def judged(self) -> RunVerdict:
        world, found = self.world, []
        with captured():
            try:
                self.cluster.boot()
                world.run(START_NS, self.cluster.has_formed)
                world.host("writer").boot(self._write)
                world.run(world.now_ns + START_NS, lambda: self._is_prepared and len(self._stored) == PARTITIONS)
                outages_ns = world.now_ns
                for outage in self.faults:
                    self._take_offline(outage)
                world.run(world.now_ns + LED_WITHIN_NS)
                found = [
                    f"{TOPIC}-{partition} takes no records {LED_WITHIN_NS // NS} s after its files failed"
                    for partition in range(PARTITIONS)
                    if self._stored.get(partition, 0) <= outages_ns + LED_WITHIN_NS // 2
                ]
            finally:
                world.close()
        return RunVerdict(
            seed=self.seed,
            digest=world.digest(),
            anomalies=[Anomaly(CHECKER, few(found))] if found else [],
            failures=[text for failure in world.failures if EXPECTED not in (text := str(failure))],
            simulated_s=world.now_ns / NS,
            steps=world.steps,
            tally=world.tally,
        )

    def _take_offline(self, outage: OfflinePartitions) -> None:
        led = self.cluster.led()
        node_id = led[TOPIC, outage.partitions[0]].leader
        for index in outage.partitions:
            partition = led[TOPIC, index]
            if partition.leader == node_id:
                partition.take_offline("a fault of the simulator")

    async def _write(self, host: Host) -> None:
        edge = SimEdge(host)
        async with Admin(bootstrap_servers=self.cluster.address, edge=edge) as admin:
            await admin.create_topics([NewTopic(TOPIC, PARTITIONS)])
        self._is_prepared = True
        async with Producer(bootstrap_servers=self.cluster.address, edge=edge, linger_ms=0) as producer:
            await asyncio.gather(*[self._write_to(producer, each) for each in range(PARTITIONS)])

    async def _write_to(self, producer: Producer, partition: int) -> None:
        while True:
            try:
                await producer.send_and_wait(TOPIC, b"x", partition=partition)
                self._stored[partition] = self.world.now_ns
            except KafkaError as error:
                self.world.note("writer", f"{TOPIC}-{partition}: {error}")
            await asyncio.sleep(0.1)
