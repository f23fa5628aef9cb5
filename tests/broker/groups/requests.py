"""Requests to a group coordinator as handlers send them: find the shard of the group, then call it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from semel_broker.coordination.journal import RecordProducer
from semel_broker.groups.coordinator import GroupCoordinator
from semel_broker.groups.group import Group
from semel_broker.groups.offsets.model import GroupOffsets, OffsetRecord
from semel_broker.groups.requests import Committer, Join, Joined, Sync, Synced
from semel_broker.scheduling.parting import Parting
from semel_protocol.errors import ErrorCode


class GroupRequests:
    """The client requests to the groups of one broker."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    async def join(self, group: str, ask: Join, parting: Parting | None = None) -> Joined:
        return await (await self._groups.shard(group)).join(group, ask, parting or Parting())

    async def sync(self, group: str, ask: Sync) -> Synced:
        return await (await self._groups.shard_of_member(group, ask.member_id)).sync(group, ask)

    async def heartbeat(self, group: str, generation: int, member_id: str, instance_id: str | None) -> None:
        shard = await self._groups.shard_of_member(group, member_id)
        shard.heartbeat(group, generation, member_id, instance_id)

    async def leave(self, group: str, members: Sequence[tuple[str, str | None]]) -> list[ErrorCode]:
        return await (await self._groups.shard(group)).leave(group, members)

    async def commit(
        self,
        group: str,
        records: Sequence[OffsetRecord],
        *,
        member_id: str = "",
        instance_id: str | None = None,
        generation_id: int = -1,
        connection: int = 0,
    ) -> None:
        shard = await self._groups.shards.ready(group)
        await shard.commit(group, records, Committer(member_id, instance_id, generation_id), connection)

    async def commit_in_transaction(
        self,
        group: str,
        records: Sequence[OffsetRecord],
        producer: RecordProducer,
        verify: Callable[[int], None],
        *,
        member_id: str = "",
        generation_id: int = -1,
    ) -> None:
        shard = await self._groups.shard(group)
        by = Committer(member_id, None, generation_id)
        await shard.commit_in_transaction(group, records, producer, verify, by)

    async def offsets(self, group: str) -> GroupOffsets:
        shard = await self._groups.shards.ready_if_any(group)
        return GroupOffsets() if shard is None else shard.offsets(group)

    def is_unstable(self, group: str, topic: str, partition: int) -> bool:
        return (topic, partition) in self.unstable(group)

    def unstable(self, group: str) -> list[tuple[str, int]]:
        shard = self._groups.shards.of(group)
        return [] if shard is None else shard.offset_store.unstable(group)

    async def group(self, group: str) -> Group | None:
        shard = await self._groups.shards.ready_if_any(group)
        return None if shard is None else shard.groups.get(group)

    async def delete_group(self, group: str) -> None:
        await (await self._groups.shard_of_known(group)).delete_group(group)

    async def delete_offsets(self, group: str, partitions: Sequence[tuple[str, int]]) -> list[ErrorCode]:
        return await (await self._groups.shard_of_known(group)).delete_offsets(group, partitions)
