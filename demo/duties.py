"""What a broker of a cluster has to do: what it leads, whom it coordinates, whether it is the controller."""

from __future__ import annotations

import asyncio
import random
import time
from typing import NamedTuple

import msgspec
from semel import Admin, TopicPartition
from semel.errors import KafkaError, TransactionalIdNotFound
from semel.structs import PartitionMetadata

from demo.brokers import Watched

INTERNAL = ("__consumer_offsets", "__transaction_state")
POLL_S = 0.05


class Duties(NamedTuple):
    """Of one broker at one moment. `leads`: partition -> leader epoch, of the demo's topics and the internal ones."""

    leads: dict[TopicPartition, int]
    coordinates: tuple[str, ...]
    is_controller: bool

    @property
    def by_topic(self) -> dict[str, int]:
        """How many partitions of which of the demo's topics."""
        found: dict[str, int] = {}
        for place in self.leads:
            if place.topic not in INTERNAL:
                found[place.topic] = found.get(place.topic, 0) + 1
        return found

    @property
    def partitions(self) -> int:
        """How many it leads, internal ones not counted."""
        return sum(self.by_topic.values())

    @property
    def offices(self) -> str:
        return ", ".join([*self.coordinates, *["controller"] * self.is_controller])

    def __str__(self) -> str:
        led = ", ".join(f"{count} of {topic}" for topic, count in self.by_topic.items())
        return "; ".join(filter(None, [f"led {led or 'nothing'}", self.offices]))


class Strike(msgspec.Struct, kw_only=True):
    """One SIGKILL. `led_again_s`: until somebody led all that the broker had led; `back_s`: until all was in sync."""

    broker: str
    office: str
    duties: Duties
    led_again_s: float = -1.0
    back_s: float = -1.0


class Register:
    """Asks the cluster, by Metadata, FindCoordinator and DescribeCluster, who does what at this moment."""

    def __init__(self, admin: Admin, watched: Watched) -> None:
        self._admin, self._watched = admin, watched

    async def partitions(self) -> list[PartitionMetadata]:
        """Of the demo's topics and of the internal ones that exist."""
        described = await self._admin.describe_topics()
        wanted = (*self._watched.topics, *INTERNAL)
        return [each for topic in described if topic.name in wanted for each in topic.partitions]

    async def coordinators(self) -> dict[str, int]:
        """Groups, transactional ids and transaction groups -> who coordinates them; those that exist."""
        found = {f"group {name}": await self._admin.find_coordinator(name) for name in self._watched.groups}
        for name in self._watched.transactional_ids:
            try:
                (described,) = await self._admin.describe_transactions([name])
            except TransactionalIdNotFound:
                continue  # nobody has used it so far
            found[name] = described.coordinator
        for name in self._watched.transaction_groups:
            try:
                (group,) = await self._admin.describe_transaction_groups([name])
            except TransactionalIdNotFound:
                continue  # nothing was written so far
            found[f"transaction group {name}"] = group.coordinator
        return found

    async def duties(self, node_id: int) -> Duties:
        leads = {
            TopicPartition(each.topic, each.partition): each.leader_epoch
            for each in await self.partitions()
            if each.leader == node_id
        }
        coordinates = tuple(name for name, who in (await self.coordinators()).items() if who == node_id)
        return Duties(leads, coordinates, (await self._admin.describe_cluster()).controller_id == node_id)

    async def chosen(self, office: str, rng: random.Random) -> int:
        """Who holds an office: "leader" of a partition of the last topic, "coordinator" of some name, "controller"."""
        partitions = [each for each in await self.partitions() if each.topic == self._watched.topics[-1]]
        leader, name = rng.choice(partitions).leader, rng.random()  # always two draws: a seed stays what it is
        if office == "controller":
            return (await self._admin.describe_cluster()).controller_id
        coordinators = list((await self.coordinators()).values()) if office == "coordinator" else []
        if coordinators:
            return coordinators[int(name * len(coordinators))]
        return leader

    async def led_again(self, duties: Duties, since: float, timeout_s: float) -> float:
        """Waits until somebody leads, in a later epoch, all that was led; seconds since then. Raises RuntimeError."""
        left = dict(duties.leads)
        while left:
            for each in await self._look():
                place = TopicPartition(each.topic, each.partition)
                if place in left and each.leader >= 0 and each.leader_epoch > left[place]:
                    del left[place]
            if not left:
                break
            if time.monotonic() - since > timeout_s:
                raise RuntimeError(f"nobody leads {sorted(left)} after {timeout_s:g} s")
            await asyncio.sleep(POLL_S)
        return time.monotonic() - since

    async def in_sync(self, timeout_s: float) -> None:
        """Waits until every replica is in sync. Raises RuntimeError."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = await self._look()
            behind = [f"{each.topic}-{each.partition}" for each in found if len(each.isr) < len(each.replicas)]
            if found and not behind:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"{', '.join(behind)} without all replicas in sync after {timeout_s:g} s")
            await asyncio.sleep(POLL_S)

    async def _look(self) -> list[PartitionMetadata]:
        try:
            return await self.partitions()
        except KafkaError:
            return []  # a broker went away under the question; the next one is asked
