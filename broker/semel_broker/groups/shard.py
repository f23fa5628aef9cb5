"""The groups of one partition of `__consumer_offsets`, which this broker leads: requests find their group and its kind.

The kinds of groups decide (`Kind`), the host carries out (`GroupHost`). Offsets are the same for all kinds.
"""

from __future__ import annotations

from asyncio import Lock, sleep
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from semel_protocol.consumer_protocol import PROTOCOL_TYPE
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.coordination.journal import RecordProducer
from semel_broker.coordination.shards import Shard
from semel_broker.groups.classic.groups import ClassicGroups
from semel_broker.groups.consumer.groups import ConsumerGroups
from semel_broker.groups.context import GroupContext
from semel_broker.groups.group import Group
from semel_broker.groups.host import GroupHost
from semel_broker.groups.kind import Kind
from semel_broker.groups.offsets.model import GroupOffsets, OffsetRecord
from semel_broker.groups.offsets.store import DELETED_AT_ONCE
from semel_broker.groups.replay import GroupReplay
from semel_broker.groups.requests import Committer, Join, Joined, KindChangedError, Sync, Synced
from semel_broker.partitions.partition import Partition
from semel_broker.scheduling.parting import Parting

MINUTE_MS = 60_000


class GroupShard(Shard):
    """The groups whose records lie in `partition`, with their offsets. Callers use it while it `is_ready`."""

    kind = "groups"

    def __init__(self, context: GroupContext, partition: Partition, reading: Lock) -> None:
        super().__init__(partition, context.world.log, reading)
        self._context = context
        self._config = context.config
        self.host = GroupHost(context, self)
        self.groups = self.host.groups
        self.offset_store = self.host.offset_store
        self.classics = ClassicGroups(self.host)
        self.consumers = ConsumerGroups(self.host)
        kinds: tuple[Kind, ...] = (self.classics, self.consumers)
        self.host.kinds.update({kind.name: kind for kind in kinds})
        # Another broker may have been the coordinator. Until its session ends it may not know that it no longer is one.
        self._grace_ms = self._config.broker_session_timeout_ms if self._config.is_clustered else 0

    # --- life ---

    async def _load(self) -> None:
        assert not self.groups, self.index
        replay = GroupReplay()
        await self.host.journal.replay(partial(replay.take, self.index))
        self.groups.update(replay.groups(self.host.now(), self._grace_ms))
        self.offset_store.load(replay.pending())

    async def _after_load(self) -> None:
        await self.forget_outlived()  # topics may have been deleted before this load
        for kind in self.host.kinds.values():
            for group in list(self.groups.values()):
                if self.host.kind_of(group) is kind:
                    kind.resume(group, self._grace_ms)
        self._log.info("groups_loaded", partition=self.index, groups=len(self.groups))

    def _load_nothing(self) -> None:
        self.offset_store.load(GroupReplay().pending())

    def _fail_waiting(self, error: KafkaError) -> None:
        self.host.alarm.stop()
        for group in list(self.groups.values()):
            self.host.carry_out(group, self.host.kind_of(group).close(group, error))

    async def _finish(self) -> None:
        await self.host.journal.close()
        for kind in self.host.kinds.values():
            await kind.finish()

    # --- membership ---

    async def join(self, group_id: str, ask: Join, parting: Parting) -> Joined:
        """JoinGroup: wait for the member's place in the next (or the present) generation. `parting`: of the connection;
        if it closes meanwhile, the group does not wait for a new member.

        Raises COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID,
        INVALID_SESSION_TIMEOUT, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED (`MemberIdRequiredError`),
        GROUP_MAX_SIZE_REACHED, FENCED_INSTANCE_ID."""
        low, high = self._config.group_min_session_timeout_ms, self._config.group_max_session_timeout_ms
        if not low <= ask.session_timeout_ms <= high:
            raise KafkaError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"session timeout {ask.session_timeout_ms} ms is outside [{low}, {high}]: change session.timeout.ms, "
                "or group.min.session.timeout.ms and group.max.session.timeout.ms of the broker",
            )
        while True:
            group = self.groups.get(group_id)
            kind = self.classics if group is None else self.host.kinds[group.serving_kind]
            try:
                return await kind.join(group_id, ask, parting)
            except KindChangedError:
                self.check()  # then serve it in the new kind: librdkafka shows the application an error of JoinGroup

    async def sync(self, group_id: str, ask: Sync) -> Synced:
        """SyncGroup: wait for the member's assignment. Raises COORDINATOR_NOT_AVAILABLE, ILLEGAL_GENERATION,
        INCONSISTENT_GROUP_PROTOCOL, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID."""
        group = self._group_of(group_id, ask.member_id)
        if group.changing_to:
            raise KindChangedError(group_id)
        return await self.host.kind_of(group).sync(group, ask)

    def heartbeat(self, group_id: str, generation_id: int, member_id: str, instance_id: str | None) -> None:
        """Heartbeat. Raises COORDINATOR_NOT_AVAILABLE, ILLEGAL_GENERATION, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID,
        REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID."""
        group = self._group_of(group_id, member_id)
        self.host.kind_of(group).classic_heartbeat(group, member_id, instance_id, generation_id)

    async def leave(self, group_id: str, members: Iterable[tuple[str, str | None]]) -> list[ErrorCode]:
        """LeaveGroup of (member id, instance id) pairs: a code for each. Raises COORDINATOR_NOT_AVAILABLE,
        NOT_COORDINATOR, INVALID_GROUP_ID."""
        codes, slices = [], self._context.turns.slices()
        for member_id, instance_id in members:
            try:
                await self._leave(group_id, member_id, instance_id)
                codes.append(ErrorCode.NONE)
            except KafkaError as error:
                codes.append(error.code)
            if slices.is_over():
                await slices.next()
                self.check()
        await self.host.journal.flushed()
        return codes

    async def _leave(self, group_id: str, member_id: str, instance_id: str | None) -> None:
        while True:
            kind = self.host.kinds[self._group_of(group_id, member_id).serving_kind]
            try:
                return await kind.leave(group_id, member_id, instance_id)
            except KindChangedError:
                self.check()

    # --- offsets ---

    async def commit(
        self,
        group_id: str,
        records: Sequence[OffsetRecord],
        by: Committer,
        connection: int,
    ) -> None:
        """OffsetCommit: return once `records` are durable and in effect. `connection`: its number.

        Raises COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS,
        GROUP_ID_NOT_FOUND, FENCED_INSTANCE_ID, UNSUPPORTED_VERSION, INVALID_COMMIT_OFFSET_SIZE, CloseConnectionError
        (`NewestConnections`).
        """
        group = self.groups.get(group_id)
        if group is not None:
            self.host.kind_of(group).check_commit(group, records, by)
        elif by.generation_id >= 0:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}: join it first")
        self._check_room(group_id, records)
        if group is not None:
            self._has_committed_over(group, by.member_id, connection)
        if records:
            await self.offset_store.commit(group_id, records)

    def _has_committed_over(self, group: Group, member_id: str, connection: int) -> None:
        """Note the connection of a member's OffsetCommit. A late commit, which was sent again meanwhile, would set
        offsets back. Raises CloseConnectionError: the member has committed over a newer connection.
        """
        if member_id in group.membership.members:
            self._context.connections.commits.check(group.group_id, member_id, connection)
            self._context.connections.commits.note(group.group_id, member_id, connection)

    async def commit_in_transaction(
        self,
        group_id: str,
        records: Sequence[OffsetRecord],
        producer: RecordProducer,
        verify: Callable[[int], None],
        by: Committer,
    ) -> None:
        """TxnOffsetCommit: return once `records` are durable; `offsets` has them once the transaction is committed.

        `verify(partition of __consumer_offsets)` raises unless the transaction is open and includes the partition; it
        is called without an await before the append (KIP-890). Raises COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
        ILLEGAL_GENERATION, GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, INVALID_PRODUCER_EPOCH, FENCED_INSTANCE_ID,
        INVALID_COMMIT_OFFSET_SIZE, and what it raises."""
        verify(self.index)
        group = self.groups.get(group_id)
        if group is not None:
            self.host.kind_of(group).check_commit_in_transaction(group, by)
        elif by.generation_id >= 0:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}: join it first")
        self._check_room(group_id, records)
        if records:
            await self.offset_store.hold(group_id, records, producer)

    def _check_room(self, group_id: str, records: Sequence[OffsetRecord]) -> None:
        """Whether a group without members may have these offsets: one client may commit for endless groups.

        Raises INVALID_COMMIT_OFFSET_SIZE.
        """
        group, count_max = self.groups.get(group_id), self._config.limits.committed_offsets_max
        if group is not None and not group.membership.is_empty:
            return
        if self._context.offset_count() + len(records) > count_max and (
            self._context.offset_count() + self.offset_store.new_count(group_id, records) > count_max
        ):
            raise KafkaError(
                ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
                f"the groups of this broker have {count_max} committed offsets, and {group_id} has no members: delete "
                "groups that are not used any more (semel group list), or lower offsets.retention.minutes",
            )

    def offsets(self, group_id: str) -> GroupOffsets:
        """The offsets of the group, also those of deleted topics (see `GroupCoordinator.is_of_current_topic`).

        Read them before the next await.
        """
        group = self.groups.get(group_id)
        return group.offsets if group is not None else GroupOffsets()

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> None:
        """Whether a member of the consumer protocol may read offsets (OffsetFetch v9). A request that names neither a
        member nor an epoch always may, and so may all requests of other groups.

        Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH.
        """
        group, is_named = self.groups.get(group_id), member_id is not None or epoch >= 0
        if is_named and group is not None:
            self.host.kind_of(group).check_fetch(group, member_id or "", epoch)

    async def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> list[ErrorCode]:
        """OffsetDelete: delete offsets of topics that no member reads; a code for each partition.

        Raises COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND.
        """
        membership = self._known(group_id).membership
        if membership.members and membership.protocol_type != PROTOCOL_TYPE:
            raise KafkaError(
                ErrorCode.NON_EMPTY_GROUP,
                f"{group_id} has members whose subscriptions the broker cannot read: stop them first",
            )
        read = membership.topics_read()
        kept = [read is None or topic in read for topic, _ in partitions]
        doomed = [row for row, keep in zip(partitions, kept, strict=True) if not keep]
        await self.offset_store.delete(group_id, doomed)
        return [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if keep else ErrorCode.NONE for keep in kept]

    async def forget_outlived(self, only_topic: str | None = None) -> None:
        """Delete the offsets of topics that no longer exist, of all or of one name.

        First this broker catches up with the store: a topic that it does not know yet would lose its offsets. If the
        store does not answer, a later load or expiry sweep deletes them. No client sees them anyway.
        """
        await self.host.journal.flushed()  # a commit under way may be for such a topic
        if not self.offset_store.has_outlived(only_topic):
            return
        try:
            await self._context.topics.catch_up()
        except KafkaError as error:
            self._log.warning("outlived_offsets_kept", partition=self.index, error=str(error))
            return
        if not self.is_gone:
            await self.offset_store.delete_outlived(only_topic)

    def expire_offsets(self) -> None:
        """Delete offsets that are unused for `offsets.retention.minutes`, and groups that become empty."""
        self.offset_store.expire(self._context.world.now_ms(), self._config.offsets_retention_minutes * MINUTE_MS)

    async def delete_group(self, group_id: str) -> None:
        """DeleteGroups: delete a group without members, and its offsets.

        A group with very many offsets loses them in portions: a member that joins meanwhile finds a part of them gone,
        and the request gets NON_EMPTY_GROUP. Raises COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, NON_EMPTY_GROUP,
        GROUP_ID_NOT_FOUND.
        """
        group = await self.host.locked(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
        with self.host.leaving(group):
            self.check()
            await self._delete_group(group_id)

    async def _delete_group(self, group_id: str) -> None:
        while True:
            group = self._known(group_id)
            if not group.membership.is_empty:
                raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"{group_id} has members: stop them first")
            assert group.lock.is_taken, group_id
            portion = self.offset_store.partitions(group, DELETED_AT_ONCE + 1)
            if len(portion) <= DELETED_AT_ONCE:
                break
            await self.offset_store.delete(group_id, portion)
            await sleep(0)
        await self.offset_store.delete_group(group)

    # --- small things ---

    def _group_of(self, group_id: str, member_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of {group_id}: join again")
        return group

    def _known(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
        return group
