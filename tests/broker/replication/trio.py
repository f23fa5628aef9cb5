"""Three whole brokers over an etcd, for clients."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path
from random import Random
from time import monotonic, time

from semel_broker.cluster.etcd.store import EtcdStore
from semel_broker.config.loading import load
from semel_broker.node import Node
from semel_broker.partitions.partition import Role
from semel_broker.world import World
from semel_storage.disk.os_disk import OsDisk
from support.etcd import EtcdProcess

namespaces = count()
SETTINGS = ("replica.lag.time.max.ms=2000", "broker.session.timeout.ms=2000", "auto.leader.rebalance.enable=false")


class Trio:
    def __init__(self, directory: Path, process: EtcdProcess) -> None:
        self.directory = directory
        self.process = process
        self.namespace = f"/semel-nodes/{next(namespaces)}"
        self.nodes: dict[int, Node] = {}
        self.ports = dict.fromkeys((1, 2, 3), 0)

    async def start(self, *node_ids: int) -> None:
        await asyncio.gather(*(self._start(node_id) for node_id in node_ids))

    async def _start(self, node_id: int) -> None:
        directory = self.directory / str(node_id)
        world = World(now_ms=lambda: int(time() * 1000), monotonic=monotonic, rng=Random(), disk=OsDisk())
        store = EtcdStore([self.process.url], namespace=self.namespace, world=world)
        given = [f"log.dir={directory}", f"node.id={node_id}", f"port={self.ports[node_id]}", *SETTINGS]
        given += self.settings(node_id)
        self.nodes[node_id] = node = await Node.start(load(overrides=given), world, store)
        self.ports[node_id] = node.port

    def settings(self, node_id: int) -> list[str]:
        """More settings of this broker."""
        return []

    async def stop(self, *node_ids: int) -> None:
        await asyncio.gather(*(self.nodes.pop(node_id).stop() for node_id in node_ids))

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def leader(self) -> int:
        found = [
            node_id for node_id, node in self.nodes.items() if node.broker.topics.partition("t", 0).role is Role.LEADER
        ]
        return found[0]
