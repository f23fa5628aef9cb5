"""Looks up the roles of a broker in a cluster: the partitions that it leads, its coordinators, and the controller."""

from __future__ import annotations

import asyncio
import random
import time
from typing import NamedTuple

import msgspec
from semel import Admin, TopicPartition
from semel.errors import KafkaError, TransactionalIdNotFound
from semel.structs import PartitionMetadata

from demo.brokers import KillTargets

INTERNAL = ("__consumer_offsets", "__transaction_state")
POLL_S = 0.05


class BrokerRoles(NamedTuple):
    """The roles of one broker at one moment. `leads`: partition -> leader epoch, with the internal topics."""

    leads: dict[TopicPartition, int]
    coordinates: tuple[str, ...]
    is_controller: bool

    @property
    def by_topic(self) -> dict[str, int]:
        """The number of led partitions for each of the demo's topics."""
        found: dict[str, int] = {}
        for place in self.leads:
            if place.topic not in INTERNAL:
                found[place.topic] = found.get(place.topic, 0) + 1
        return found

    @property
    def partitions(self) -> int:
        """The number of led partitions, without internal topics."""
        return sum(self.by_topic.values())

    @property
    def other_roles(self) -> str:
        return ", ".join([*self.coordinates, *["controller"] * self.is_controller])

    def __str__(self) -> str:
        led = ", ".join(f"{count} of {topic}" for topic, count in self.by_topic.items())
        return "; ".join(filter(None, [f"led {led or 'nothing'}", self.other_roles]))


class BrokerKill(msgspec.Struct, kw_only=True):
    """One SIGKILL of a broker. `takeover_s`: until all its partitions had new leaders; `in_sync_s`: until all replicas
    were in sync.
    """

    broker: str
    role: str
    roles: BrokerRoles
    takeover_s: float = -1.0
    in_sync_s: float = -1.0


class RoleLookup:
    """Asks the cluster for the current roles, with Metadata, FindCoordinator and DescribeCluster."""

    def __init__(self, admin: Admin, targets: KillTargets) -> None:
        self._admin, self._targets = admin, targets

    async def partitions(self) -> list[PartitionMetadata]:
        """Return the partitions of the demo's topics and of the existing internal topics."""
        described = await self._admin.describe_topics()
        wanted = (*self._targets.topics, *INTERNAL)
        return [each for topic in described if topic.name in wanted for each in topic.partitions]

    async def coordinators(self) -> dict[str, int]:
        """Return the coordinators of the existing groups, transactional ids and transaction groups."""
        found = {f"group {name}": await self._admin.find_coordinator(name) for name in self._targets.groups}
        for name in self._targets.transactional_ids:
            try:
                (described,) = await self._admin.describe_transactions([name])
            except TransactionalIdNotFound:
                continue  # no producer has used it yet
            found[name] = described.coordinator
        for name in self._targets.transaction_groups:
            try:
                (group,) = await self._admin.describe_transaction_groups([name])
            except TransactionalIdNotFound:
                continue  # no step has begun yet
            found[f"transaction group {name}"] = group.coordinator
        return found

    async def roles_of(self, node_id: int) -> BrokerRoles:
        leads = {
            TopicPartition(each.topic, each.partition): each.leader_epoch
            for each in await self.partitions()
            if each.leader == node_id
        }
        coordinates = tuple(name for name, node in (await self.coordinators()).items() if node == node_id)
        return BrokerRoles(leads, coordinates, (await self._admin.describe_cluster()).controller_id == node_id)

    async def holder_of(self, role: str, rng: random.Random) -> int:
        """Return the broker with a role: "leader" of a partition of the last topic, "coordinator", or "controller"."""
        partitions = [each for each in await self.partitions() if each.topic == self._targets.topics[-1]]
        leader, name = rng.choice(partitions).leader, rng.random()  # always two draws, so that a seed keeps its meaning
        if role == "controller":
            return (await self._admin.describe_cluster()).controller_id
        coordinators = list((await self.coordinators()).values()) if role == "coordinator" else []
        if coordinators:
            return coordinators[int(name * len(coordinators))]
        return leader

    async def wait_for_leaders(self, roles: BrokerRoles, since: float, timeout_s: float) -> float:
        """Wait until all led partitions have a leader with a later epoch. Returns the seconds since `since`. Raises
        RuntimeError.
        """
        left = dict(roles.leads)
        while left:
            for each in await self._known_partitions():
                place = TopicPartition(each.topic, each.partition)
                if place in left and each.leader >= 0 and each.leader_epoch > left[place]:
                    del left[place]
            if not left:
                break
            if time.monotonic() - since > timeout_s:
                raise RuntimeError(f"{sorted(left)} have no leader after {timeout_s:g} s")
            await asyncio.sleep(POLL_S)
        return time.monotonic() - since

    async def wait_for_in_sync(self, timeout_s: float) -> None:
        """Wait until every replica is in sync. Raises RuntimeError at the timeout."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = await self._known_partitions()
            behind = [f"{each.topic}-{each.partition}" for each in found if len(each.isr) < len(each.replicas)]
            if found and not behind:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"{', '.join(behind)} not all replicas are in sync after {timeout_s:g} s")
            await asyncio.sleep(POLL_S)

    async def _known_partitions(self) -> list[PartitionMetadata]:
        try:
            return await self.partitions()
        except KafkaError:
            return []  # the broker ended during the request; the next call asks another one
