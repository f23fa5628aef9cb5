"""The coordinator of groups: finds the shard of a group, which is on this broker or not.

The leader of a partition of `__consumer_offsets` coordinates the groups whose records lie there (`shard`). Who asks
here for a group that another broker coordinates gets NOT_COORDINATOR; who asks while a shard is being read waits for a
while.
"""

from __future__ import annotations

from asyncio import Task, TimerHandle, get_running_loop, wait
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.schema import ZERO_UUID
from semel_storage.internal_topics import CONSUMER_OFFSETS

from semel_broker.cluster.image import Touched
from semel_broker.config.loading import BrokerConfig
from semel_broker.coordination.journal import Producer
from semel_broker.coordination.shards import Shards
from semel_broker.groups.group import Group
from semel_broker.groups.offsets import CommittedOffset, GroupOffsets, OffsetRecord
from semel_broker.groups.requests import Join, Joined, Sync, Synced
from semel_broker.groups.shard import GroupShard
from semel_broker.partitions.partition import Partition
from semel_broker.topics.topics import Topics
from semel_broker.world import World


class GroupCoordinator:
    """The groups that this broker coordinates. `start` it, then call it from any task; `close` it before the topics.

    What names a group raises KafkaError 14, 15 or 16 besides what is said.
    """

    def __init__(self, world: World, config: BrokerConfig, topics: Topics) -> None:
        self._world = world
        self._config = config
        self._topics = topics
        self.shards: Shards[GroupShard] = Shards(
            topics,
            CONSUMER_OFFSETS,
            lambda partition, reading: GroupShard(world, config, self.counts, topics.catch_up, partition, reading),
            patience_ms=config.limits.coordinator_load_hold_ms_max,
        )
        self._expiry_timer: TimerHandle | None = None
        self._forgetting: dict[Task[None], None] = {}

    # --- life ---

    def start(self) -> None:
        """Begin to read the stored groups; returns at once."""
        self.shards.start()
        self._topics.feed.listeners.append(self._cluster_changed)
        self._schedule_expiry()

    async def loaded(self) -> None:
        """Return once the groups stored here are there. Raises KafkaError 14, 15."""
        await self.shards.all_loaded()

    async def close(self) -> None:
        """Answer whoever waits (they will look for another coordinator), and let everything written become durable."""
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        if self._cluster_changed in self._topics.feed.listeners:
            self._topics.feed.listeners.remove(self._cluster_changed)
        stopping = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is stopping: try again")
        await self.shards.close(stopping)
        if self._forgetting:
            await wait(list(self._forgetting))

    # --- membership ---

    async def join(self, group_id: str, ask: Join) -> Joined:
        """JoinGroup: wait for the member's place in the next (or the present) generation.

        Raises KafkaError 23, 24, 25, 26, 27, 79 (`MemberIdRequiredError`), 81, 82.
        """
        return await (await self._named(group_id)).join(group_id, ask)

    async def sync(self, group_id: str, ask: Sync) -> Synced:
        """SyncGroup: wait for the member's assignment. Raises KafkaError 22, 23, 24, 25, 27, 82."""
        return await (await self._member_of(group_id, ask.member_id)).sync(group_id, ask)

    async def heartbeat(self, group_id: str, generation_id: int, member_id: str, instance_id: str | None) -> None:
        """Heartbeat. Raises KafkaError 22, 24, 25, 27, 82."""
        shard = await self._member_of(group_id, member_id)
        shard.heartbeat(group_id, generation_id, member_id, instance_id)

    async def leave(self, group_id: str, members: Iterable[tuple[str, str | None]]) -> list[ErrorCode]:
        """LeaveGroup of (member id, instance id) pairs: a code for each. Raises KafkaError 24."""
        if self._topics.get(CONSUMER_OFFSETS) is None and group_id:
            return [ErrorCode.UNKNOWN_MEMBER_ID for _ in members]
        return await (await self._named(group_id)).leave(group_id, members)

    def new_member_id(self, prefix: str) -> str:
        """An id that no member has had: `prefix` (client id or instance id), "-", a random UUID."""
        return f"{prefix}-{UUID(int=self._world.rng.getrandbits(128), version=4)}"

    # --- offsets ---

    async def commit(
        self,
        group_id: str,
        records: Sequence[OffsetRecord],
        *,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        connection: int = 0,
    ) -> None:
        """OffsetCommit: return once `records` are durable and `offsets` has them.

        `connection`: the number of the one that it came over; one older than the last that the member has committed
        over is refused with CloseConnectionError. Raises KafkaError 15, 16, 22, 25, 27, 69, 82.
        """
        shard = self.shards.of(group_id) or await self.shards.ready(group_id)
        await shard.commit(
            group_id,
            records,
            member_id=member_id,
            instance_id=instance_id,
            generation_id=generation_id,
            connection=connection,
        )

    async def commit_in_transaction(
        self,
        group_id: str,
        records: Sequence[OffsetRecord],
        producer: Producer,
        verify: Callable[[int], None],
        *,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
    ) -> None:
        """TxnOffsetCommit: return once `records` are durable; `offsets` has them once the transaction is committed.

        `verify(partition of __consumer_offsets)` raises unless the transaction is open and includes the partition; it
        is called in the turn of the append (KIP-890). Raises KafkaError 22, 24, 25, 47, 82, and what it raises.
        """
        await (await self._named(group_id)).commit_in_transaction(
            group_id,
            records,
            producer,
            verify,
            member_id=member_id,
            instance_id=instance_id,
            generation_id=generation_id,
        )

    async def partition_of(self, group_id: str) -> Partition:
        """The partition that holds the group's records, which this broker leads. Raises KafkaError 24."""
        return (await self._named(group_id)).partition

    def transaction_ended(self, index: int, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """The marker of this producer's transaction is durable in partition `index` of `__consumer_offsets`: what it
        has committed here takes effect, or is dropped. To hear of it twice does no harm."""
        shard = self.shards.at(index)
        if shard is not None:
            shard.book.transaction_ended(producer_id, commit)

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may yet change this offset; in the same turn as `offsets`."""
        shard = self.shards.of(group_id)
        return shard is not None and shard.book.is_unstable(group_id, topic, partition)

    def unstable(self, group_id: str) -> list[tuple[str, int]]:
        """All (topic, partition) of the group that open transactions may yet change; in the same turn as `offsets`."""
        shard = self.shards.of(group_id)
        return [] if shard is None else shard.book.unstable(group_id)

    async def offsets(self, group_id: str) -> GroupOffsets:
        """What the group has committed, whether it `counts` or not: live, to be read at once."""
        shard = self.shards.of(group_id) or await self.shards.ready_if_any(group_id)
        return shard.offsets(group_id) if shard is not None else GroupOffsets()

    def counts(self, topic: str, committed: CommittedOffset) -> bool:
        """Whether it was committed for the topic that has the name now, and not for one that had it once (KIP-516)."""
        known = self._topics.get(topic)
        return known is not None and committed.topic_id in (known.topic_id, ZERO_UUID)

    async def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> list[ErrorCode]:
        """OffsetDelete: forget offsets of topics that no member reads; a code for each partition.

        Raises KafkaError 68, 69.
        """
        return await (await self._known(group_id)).delete_offsets(group_id, partitions)

    async def forget_topic(self, topic: str) -> None:
        """A topic was deleted: what groups committed for it, which does not count any more, need not be kept.

        If that cannot be now, a load does it, or the next look at what has expired.
        """
        for shard in self.shards.here():
            await shard.forget_outlived(topic)

    # --- administration ---

    async def groups(self) -> list[Group]:
        """The groups here by id, to be looked at at once. Raises KafkaError 14, 15."""
        found = [group for shard in await self.shards.all_loaded() for group in shard.groups.values()]
        return sorted(found, key=lambda group: group.group_id)

    async def group(self, group_id: str) -> Group | None:
        """One group, to be looked at at once."""
        shard = await self.shards.ready_if_any(group_id)
        return shard.groups.get(group_id) if shard is not None else None

    async def delete_group(self, group_id: str) -> None:
        """DeleteGroups: forget a group without members, and its offsets. Raises KafkaError 68, 69."""
        await (await self._known(group_id)).delete_group(group_id)

    # --- inside ---

    def _cluster_changed(self, touched: Touched) -> None:
        """Topics may have been deleted, by whichever broker: what groups have committed for them is forgotten here."""
        for record in touched.gone.values():
            if self.shards.here():
                task = get_running_loop().create_task(self.forget_topic(record.name))
                self._forgetting[task] = None
                task.add_done_callback(self._forgotten)

    async def _named(self, group_id: str) -> GroupShard:
        """The shard of a group, of which members speak by name. Raises INVALID_GROUP_ID."""
        if (shard := self.shards.of(group_id)) is not None and group_id:
            return shard
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group needs a name: set group.id")
        return await self.shards.ready(group_id)

    async def _member_of(self, group_id: str, member_id: str) -> GroupShard:
        """The shard of a group that somebody says to be in. Raises 24, 25."""
        if self._topics.get(CONSUMER_OFFSETS) is None and group_id:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of {group_id}: join again")
        return await self._named(group_id)

    async def _known(self, group_id: str) -> GroupShard:
        """The shard of a group that is said to be there. Raises GROUP_ID_NOT_FOUND."""
        shard = await self.shards.ready_if_any(group_id)
        if shard is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
        return shard

    def _schedule_expiry(self) -> None:
        interval_s = self._config.offsets_retention_check_interval_ms / 1000
        self._expiry_timer = get_running_loop().call_later(interval_s, self._expire_offsets)

    def _expire_offsets(self) -> None:
        self._schedule_expiry()
        outlived = [shard for shard in self.shards.here() if shard.book.has_outlived()]
        for shard in self.shards.here():
            if shard not in outlived:
                shard.expire_offsets()
        if outlived:
            task = get_running_loop().create_task(self._expire_outlived(outlived), name="outlived offsets")
            self._forgetting[task] = None
            task.add_done_callback(self._forgotten)

    async def _expire_outlived(self, shards: Sequence[GroupShard]) -> None:
        """Those that have nothing to do with a topic which this broker has not heard of yet."""
        try:
            await self._topics.catch_up()
        except KafkaError as error:
            self._world.log.warning("offsets_not_expired", error=str(error))
            return
        for shard in shards:
            if shard.is_ready:
                shard.expire_offsets()

    def _forgotten(self, task: Task[None]) -> None:
        del self._forgetting[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error  # a bug of ours: the loop's exception handler has it logged
