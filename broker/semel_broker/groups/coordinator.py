"""The coordinator of consumer groups on this broker: finds the shard of a group, and runs the expiry of offsets.

The leader of a partition of `__consumer_offsets` coordinates the groups whose records lie there (`shard`). A request
for a group of another broker gets NOT_COORDINATOR. A request for a shard that is being read waits, up to a limit.
"""

from __future__ import annotations

from asyncio import Task, TimerHandle, get_running_loop, wait
from collections.abc import Sequence
from functools import partial
from uuid import UUID

from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.internal_topics import CONSUMER_OFFSETS

from semel_broker.cluster.image import ImageDelta
from semel_broker.config.loading import BrokerConfig
from semel_broker.coordination.shards import Shards
from semel_broker.counters.coordinators import GroupCounters
from semel_broker.groups.context import GroupContext
from semel_broker.groups.group import Group
from semel_broker.groups.shard import GroupShard
from semel_broker.topics.topics import Topics
from semel_broker.world import World


class GroupCoordinator:
    """The groups that this broker coordinates. `start` it, then call it from any task; `close` it before the topics.

    A method that names a group may raise COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR
    besides what it says.
    """

    def __init__(
        self, world: World, config: BrokerConfig, topics: Topics, counters: GroupCounters | None = None
    ) -> None:
        self._world = world
        self._config = config
        self._topics = topics
        self.context = GroupContext(world, config, topics, GroupCounters() if counters is None else counters)
        self.shards: Shards[GroupShard] = Shards(
            topics,
            CONSUMER_OFFSETS,
            partial(GroupShard, self.context),
            load_timeout_ms=config.limits.coordinator_load_hold_ms_max,
        )
        self.context.shards = self.shards
        self._expiry_timer: TimerHandle | None = None
        self._forgetting: dict[Task[None], None] = {}

    # --- life ---

    def start(self) -> None:
        """Begin to read the stored groups; returns at once."""
        self.shards.start()
        self._topics.feed.listeners.append(self._cluster_changed)
        self._schedule_expiry()

    async def loaded(self) -> None:
        """Return once all groups are read. Raises COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE."""
        await self.shards.all_loaded()

    async def close(self) -> None:
        """Answer all requests that wait with COORDINATOR_NOT_AVAILABLE; return once all writes are durable."""
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        if self._cluster_changed in self._topics.feed.listeners:
            self._topics.feed.listeners.remove(self._cluster_changed)
        stopping = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is stopping: try again")
        await self.shards.close(stopping)
        if self._forgetting:
            await wait(list(self._forgetting))

    # --- shards ---

    async def shard(self, group_id: str) -> GroupShard:
        """The shard of the group, once it is read. Raises INVALID_GROUP_ID for the empty name."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group needs a name: set group.id")
        return await self.shards.ready(group_id)

    async def shard_of_member(self, group_id: str, member_id: str) -> GroupShard:
        """`shard`. Raises UNKNOWN_MEMBER_ID before the first group is stored: this does not create the topic."""
        if self._topics.get(CONSUMER_OFFSETS) is None and group_id:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of {group_id}: join again")
        return await self.shard(group_id)

    async def shard_of_known(self, group_id: str) -> GroupShard:
        """The shard of a group that should exist. Raises GROUP_ID_NOT_FOUND before the first group is stored."""
        shard = await self.shards.ready_if_any(group_id)
        if shard is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
        return shard

    async def groups(self) -> list[Group]:
        """The groups here by id, to be read before the next await.

        Raises COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
        """
        found = [group for shard in await self.shards.all_loaded() for group in shard.groups.values()]
        return sorted(found, key=lambda group: group.group_id)

    def check_ids(self, group_id: str, *member_ids: str | None) -> None:
        """Whether the ids of a group, a member and its instance are short enough to be kept.

        Raises INVALID_GROUP_ID, INVALID_REQUEST.
        """
        bytes_max = self._config.limits.id_bytes_max
        if _is_longer(group_id, bytes_max):
            raise KafkaError(
                ErrorCode.INVALID_GROUP_ID, f"a group id has at most {bytes_max} bytes: choose a shorter one"
            )
        if any(_is_longer(member_id, bytes_max) for member_id in member_ids if member_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"a member id and an instance id have at most {bytes_max} bytes: choose a shorter group.instance.id",
            )

    def new_member_id(self, prefix: str) -> str:
        """An id that no member has had: the beginning of `prefix` (client id or instance id), "-", a random UUID."""
        prefix = prefix[: self._config.limits.member_id_prefix_length_max]
        return f"{prefix}-{UUID(int=self._world.rng.getrandbits(128), version=4)}"

    # --- offsets ---

    def transaction_ended(self, index: int, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """The marker of this producer's transaction is durable in partition `index` of `__consumer_offsets`.

        The offsets that the transaction committed here take effect, or are dropped. A second call does no harm.
        """
        shard = self.shards.at(index)
        if shard is not None:
            shard.offset_store.transaction_ended(producer_id, commit)

    async def forget_topic(self, topic: str) -> None:
        """A topic was deleted: delete its offsets, which no client sees any more.

        If that fails now, a later load or expiry sweep deletes them.
        """
        for shard in self.shards.here():
            await shard.forget_outlived(topic)

    # --- inside ---

    def _cluster_changed(self, delta: ImageDelta) -> None:
        """Delete the offsets of topics that any broker has deleted; groups look at their topics again."""
        if delta.topics or delta.gone:
            self.context.topics_changed()
        for record in delta.gone.values():
            if self.shards.here():
                task = get_running_loop().create_task(self.forget_topic(record.name))
                self._forgetting[task] = None
                task.add_done_callback(self._forgotten)

    def _schedule_expiry(self) -> None:
        interval_s = self._config.offsets_retention_check_interval_ms / 1000
        self._expiry_timer = get_running_loop().call_later(interval_s, self._expire_offsets)

    def _expire_offsets(self) -> None:
        self._schedule_expiry()
        outlived = [shard for shard in self.shards.here() if shard.offset_store.has_outlived()]
        for shard in self.shards.here():
            if shard not in outlived:
                shard.expire_offsets()
        if outlived:
            task = get_running_loop().create_task(self._expire_outlived(outlived), name="outlived offsets")
            self._forgetting[task] = None
            task.add_done_callback(self._forgotten)

    async def _expire_outlived(self, shards: Sequence[GroupShard]) -> None:
        """Expire offsets after catching up with the store: a topic may be new to this broker."""
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


def _is_longer(text: str, bytes_max: int) -> bool:
    """Whether the text has more than `bytes_max` bytes in UTF-8."""
    return len(text) > bytes_max or (not text.isascii() and len(text.encode()) > bytes_max)
