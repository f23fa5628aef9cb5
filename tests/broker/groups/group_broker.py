"""A group coordinator over topics on a disk in memory, without a listener. Tests can hold syncs and cut the power."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from broker.groups.requests import GroupRequests
from broker.wire import EventLog
from semel_broker.cluster.local_store import LocalStore
from semel_broker.config.loading import load
from semel_broker.coordination.journal import RecordProducer
from semel_broker.groups.coordinator import GroupCoordinator
from semel_broker.groups.offsets.model import CommittedOffset, OffsetRecord
from semel_broker.groups.requests import Join, Joined, Sync, Synced
from semel_broker.topics.topics import Topics
from semel_broker.world import World
from semel_protocol.hashes import coordinator_partition
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.internal_topics import CONSUMER_OFFSETS
from semel_storage.log_directory import LogDirectory

DIRECTORY = "/data"
TOPICS = ("t", "stays")


class GroupBroker:
    """The groups of one broker. The test sets `monotonic_s` and `wall_ms`."""

    def __init__(self, **settings: str) -> None:
        self.disk = MemoryDisk()
        self.settings = {"durability": "fsync", "group.initial.rebalance.delay.ms": "0", "log.dir": DIRECTORY}
        self.settings |= {key.replace("_", "."): value for key, value in settings.items()}
        self.monotonic_s = 100.0
        self.wall_ms = 1_700_000_000_000
        self.log = EventLog()
        self._count = 0

    async def open(self, *, wait: bool = True) -> GroupBroker:
        """Start from the contents of the disk. `wait`: until the groups are loaded."""
        world = World(
            now_ms=lambda: self.wall_ms,
            monotonic=lambda: self.monotonic_s,
            rng=Random(7),
            disk=self.disk,
            log=self.log,
        )
        config = load(overrides=[f"{key}={value}" for key, value in self.settings.items()])
        self.logs = LogDirectory.open(self.disk, DIRECTORY, node_id=0, cluster_id="c", directory_id="d")
        self.store = LocalStore.open(self.disk, f"{DIRECTORY}/semel.store")
        self.topics = await Topics.open(world=world, config=config, store=self.store, logs=self.logs)
        self.groups = GroupCoordinator(world, config, self.topics)
        self.ask = GroupRequests(self.groups)
        self.groups.start()
        if wait:
            await self.groups.loaded()
        for topic in TOPICS:
            await self.topics.ensure(topic)
        return self

    async def close(self) -> None:
        """Stop in order."""
        await self.groups.close()
        await self.topics.close()
        await self.store.close()
        self.logs.close()

    async def restart(self) -> None:
        await self.close()
        await self.open()

    async def lose_power(self, rng: Random | None = None) -> None:
        """Cut the power and start again. Unsynced data is lost; `rng`: a random part of it remains."""
        self.disk.crash(rng)
        await self._drop_dead()
        await self.open()

    async def _drop_dead(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- what clients do ---

    async def commit(
        self, offsets: dict[int, int], group: str = "g", member_id: str = "", generation: int = -1, topic: str = "t"
    ) -> None:
        await self.ask.commit(
            group,
            [OffsetRecord(topic, partition, self._committed(topic, offset)) for partition, offset in offsets.items()],
            member_id=member_id,
            instance_id=None,
            generation_id=generation,
        )

    async def hold(
        self,
        offsets: dict[int, int],
        producer_id: int = 7,
        group: str = "g",
        *,
        epoch: int = 0,
        member_id: str = "",
        generation: int = -1,
        topic: str = "t",
        verify: Callable[[int], None] = lambda index: None,
    ) -> None:
        """Commit as part of a transaction."""
        await self.ask.commit_in_transaction(
            group,
            [OffsetRecord(topic, partition, self._committed(topic, offset)) for partition, offset in offsets.items()],
            RecordProducer(producer_id, epoch),
            verify,
            member_id=member_id,
            generation_id=generation,
        )

    async def end(self, producer_id: int = 7, *, commit: bool = True, group: str = "g", epoch: int = 0) -> None:
        """End the transaction in the partition of this group, as the transaction coordinator does."""
        index = coordinator_partition(group, 50)
        partition = self.topics.partition(CONSUMER_OFFSETS, index)
        marker = partition.append_marker(producer_id, epoch, commit, 0)
        await partition.committed(marker.last_offset + 1)
        self.groups.transaction_ended(index, producer_id, epoch, commit)

    async def offset(self, partition: int = 0, group: str = "g", topic: str = "t") -> int:
        found = (await self.ask.offsets(group)).get(topic, partition)
        return -1 if found is None or not self.groups.context.is_of_current_topic(topic, found) else found.offset

    async def delete_topic(self, topic: str = "t") -> None:
        await self.topics.delete(topic)
        await self.groups.forget_topic(topic)

    async def everything(self) -> dict[str, Any]:
        """The whole state of all groups, for comparisons. A group of which only the name remains is left out."""
        return {
            group.group_id: (
                group.membership.state_name,
                group.membership.generation_id,
                list(group.membership.members),
                sorted(map(repr, group.offsets)),
                sorted(self.ask.unstable(group.group_id)),
            )
            for group in await self.groups.groups()
            if not group.is_disposable
        }

    def _committed(self, topic: str, offset: int) -> CommittedOffset:
        return CommittedOffset(offset, commit_timestamp_ms=self.wall_ms, topic_id=self.topics.required(topic).topic_id)

    async def join(self, member_id: str = "", instance: str | None = None, group: str = "g") -> Joined:
        self._count += 1
        ask = Join(
            member_id=member_id,
            new_member_id=f"m{self._count}",
            instance_id=instance,
            client_id="c",
            client_host="/h",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=(("range", b"\0\0\0\0\0\1\0\1t"),),
        )
        return await self.ask.join(group, ask)

    async def sync(self, joined: Joined, members: Sequence[str] = (), group: str = "g") -> Synced:
        ask = Sync(
            member_id=joined.member_id,
            instance_id=None,
            generation_id=joined.generation_id,
            protocol_type=None,
            protocol=None,
            assignments={member: member.encode() for member in members},
        )
        return await self.ask.sync(group, ask)

    async def enter(self, group: str = "g") -> Joined:
        """Add one member to an empty group and make the group stable."""
        joined = await self.join(group=group)
        await self.sync(joined, [joined.member_id], group)
        return joined


async def breathe(turns: int = 5) -> None:
    """Run the loop until all ready tasks wait."""
    for _ in range(turns):
        await asyncio.sleep(0)
