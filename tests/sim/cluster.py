"""The brokers of a run: one, or three with their store, each on a host of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from semel_broker.node import Node
from semel_broker.partitions.partition import Partition

from sim.broker import SimBroker
from sim.disk import DiskWeather
from sim.store import SimStore
from sim.world import SimWorld

BROKER = "broker"
STORE = "store"
NAMES_OF: Mapping[int, tuple[str, ...]] = {1: (BROKER,), 3: ("broker-1", "broker-2", "broker-3")}
"""The host names for each number of brokers; the node ids are 1, 2 and 3."""
PEER_PORT = 9093
CLUSTER_SETTINGS: Mapping[str, object] = {
    "cluster.name": "semel",
    "peer.port": PEER_PORT,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
}


class SimCluster:
    """`brokers` by host name. `address`: the bootstrap servers for clients. `store`: None for a single broker."""

    def __init__(self, world: SimWorld, count: int, settings: Mapping[str, object], disk: DiskWeather) -> None:
        self.store = SimStore(world.host(STORE), keeps=_keeps(settings)) if count > 1 else None
        self.brokers: dict[str, SimBroker] = {}
        for number, name in enumerate(NAMES_OF[count], 1):
            own: dict[str, object] = {} if self.store is None else self._settings(number, name, self.store.url)
            self.brokers[name] = broker = SimBroker(world.host(name), {**own, **_without_store(settings)})
            broker.host.disk.weather = msgspec.structs.replace(disk)
        self.address = ",".join(broker.address for broker in self.brokers.values())

    @staticmethod
    def _settings(number: int, name: str, store_url: str) -> dict[str, object]:
        return {**CLUSTER_SETTINGS, "node.id": number, "peer.host.name": name, "etcd.endpoints": store_url}

    def nodes(self) -> list[Node]:
        """The nodes of the brokers that have started."""
        return [node for broker in self.brokers.values() for node in broker.nodes()]

    @property
    def serves(self) -> bool:
        """Whether all brokers serve."""
        return all(broker.serves for broker in self.brokers.values())

    def has_formed(self) -> bool:
        """Whether all brokers have started and know each other."""
        nodes = self.nodes()
        return len(nodes) == len(self.brokers) and all(
            len(node.broker.feed.image.live()) == len(nodes) for node in nodes
        )

    def boot(self) -> None:
        if self.store is not None:
            self.store.boot()
        for broker in self.brokers.values():
            broker.boot()

    def each(self, what: Callable[[SimBroker], None]) -> None:
        """Call `what` with every broker."""
        for broker in self.brokers.values():
            what(broker)

    def led(self) -> dict[tuple[str, int], Partition]:
        """The partitions that have a leader, by topic and index."""
        return {
            (partition.topic, partition.index): partition
            for node in self.nodes()
            for partition in node.broker.topics.here()
            if partition.is_leading
        }

    def all_decided(self) -> bool:
        """Whether every partition is open and has a leader, and no transaction is open. Abandoned ones time out."""
        led = self.led()
        return (
            len(self.nodes()) == len(self.brokers)
            and not any(node.broker.topics.unopened for node in self.nodes())
            and all(
                (partition.topic, partition.index) in led
                for node in self.nodes()
                for partition in node.broker.topics.here()
            )
            and all(map(is_decided, led.values()))
        )

    def all_replicated(self) -> bool:
        """Whether every replica is in sync, has all records of its leader, and knows that they are committed."""
        if len(self.nodes()) < len(self.brokers):
            return False
        led = self.led()
        return all(
            leader is not None
            and leader.end_offset == leader.high_watermark == replica.end_offset == replica.high_watermark
            and (leader.replicas is None or len(leader.replicas.isr) == len(leader.replicas.followers) + 1)
            for node in self.nodes()
            for replica in node.broker.topics.here()
            for leader in (led.get((replica.topic, replica.index)),)
        )


def is_decided(partition: Partition) -> bool:
    """Whether the partition has no open transaction, and all markers are committed.

    An open transaction whose beginning retention has deleted no longer shows in the last stable offset of the leader,
    but it does in that of a replica which deletes later.
    """
    is_stable = partition.last_stable_offset == partition.high_watermark
    return is_stable and not (partition.is_open and partition.log.producers.transactions.unstable_offsets)


KEEPS = "store keeps"
"""A key among the settings of a run: the number of transactions whose changes the store keeps."""


def _keeps(settings: Mapping[str, object]) -> int:
    keeps = settings.get(KEEPS, 1_000)
    assert isinstance(keeps, int)
    return keeps


def _without_store(settings: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in settings.items() if name != KEEPS}
