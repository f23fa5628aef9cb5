"""The consumer groups of one partition of `__consumer_offsets`, which this broker leads.

Decide (`state`, at once), persist (`journal`), apply, answer. The shard hands the future of a request to the state
machine, which returns it with the answer: at once, or after other members have joined, or after a timeout. One timer
serves all sessions.
"""

from __future__ import annotations

from asyncio import Future, Lock, get_running_loop, sleep
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import cast

from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.config.loading import BrokerConfig
from semel_broker.coordination.journal import Journal, RecordProducer
from semel_broker.coordination.shards import TRANSIENT, Shard
from semel_broker.counters.coordinators import GroupCounters, count
from semel_broker.groups import state
from semel_broker.groups.connections import MemberConnections
from semel_broker.groups.consumer import state as consumer_state
from semel_broker.groups.consumer.requests import Catalog
from semel_broker.groups.consumer_groups import ConsumerGroups
from semel_broker.groups.deadlines import GROUP, Alarm, Key
from semel_broker.groups.group import CONSUMER, Group, GroupState
from semel_broker.groups.offset_store import DELETED_AT_ONCE, IsOfCurrentTopic, OffsetStore
from semel_broker.groups.offsets import GroupOffsets, OffsetRecord
from semel_broker.groups.records import group_row
from semel_broker.groups.replay import GroupReplay
from semel_broker.groups.requests import (
    GroupRules,
    Join,
    Joined,
    MemberIdRequiredError,
    Sync,
    Synced,
    TimePoint,
    UpgradedError,
)
from semel_broker.groups.state import Change, Transition
from semel_broker.partitions.partition import Partition
from semel_broker.scheduling.parting import Parting
from semel_broker.scheduling.turns import Turns
from semel_broker.world import World

MINUTE_MS = 60_000
UPGRADE_CHECK_MS = 100
"""While a group is upgraded, its deadlines are checked again after this."""


class GroupShard(Shard):
    """The groups whose records lie in `partition`, with their offsets. Callers use it while it `is_ready`."""

    kind = "groups"

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        is_of_current_topic: IsOfCurrentTopic,
        catch_up: Callable[[], Awaitable[None]],
        catalog: Callable[[], Catalog],
        session_timeout_ms: Callable[[str], int],
        offset_count: Callable[[], int],
        connections: MemberConnections,
        partition: Partition,
        reading: Lock,
        counters: GroupCounters | None = None,
        *,
        turns: Turns,
    ) -> None:
        super().__init__(partition, world.log, reading)
        self._counters = GroupCounters() if counters is None else counters
        self._catch_up = catch_up
        self._offset_count = offset_count
        self._connections = connections
        self._world = world
        self._config = config
        self.groups: dict[str, Group] = {}
        self._turns = turns
        self._journal = Journal(world, partition, passed=ErrorCode.INVALID_PRODUCER_EPOCH)
        self.offset_store = OffsetStore(world.log, self._journal, self.groups, self._remove, is_of_current_topic)
        # Another broker may have been the coordinator. Until its session ends it may not know that it no longer is one.
        self._grace_ms = config.broker_session_timeout_ms if config.is_clustered else 0
        self._alarm = Alarm(self._monotonic_ms, self._check_deadline)
        self.consumers = ConsumerGroups(
            world,
            config,
            self._journal,
            self.groups,
            let_go=self._let_go,
            arm=self._alarm.arm,
            check=self.check,
            catalog=catalog,
            catch_up=catch_up,
            session_timeout_ms=session_timeout_ms,
            disband=self._disband,
            downgraded=self._downgraded,
            heartbeats_over=connections.heartbeats,
            counters=self._counters,
            turns=turns,
        )

    # --- life ---

    async def _load(self) -> None:
        replay = GroupReplay()
        await self._journal.replay(partial(replay.take, self.index))
        self.groups.update(replay.groups(self._now(), self._grace_ms))
        self.offset_store.load(replay.pending())

    async def _after_load(self) -> None:
        await self.forget_outlived()  # topics may have been deleted before this load
        for group in list(self.groups.values()):
            self._watch(group, group.members)
            if any(member.carried_epoch is not None for member in group.members.values()):
                self._downgraded(group)
        self.consumers.resume(self._grace_ms)
        self._log.info("groups_loaded", partition=self.index, groups=len(self.groups))

    def _load_nothing(self) -> None:
        self.offset_store.load(GroupReplay().pending())

    def _fail_waiting(self, error: KafkaError) -> None:
        self._alarm.stop()
        for group in list(self.groups.values()):
            self._carry_out(state.shut(group, error, self._now(), self._rules))

    async def _finish(self) -> None:
        await self._journal.close()
        await self.consumers.finish()

    # --- membership ---

    async def join(self, group_id: str, ask: Join, parting: Parting) -> Joined:
        """JoinGroup: wait for the member's place in the next (or the present) generation. `parting`: of the connection;
        if it closes meanwhile, the group does not wait for a new member.

        Raises COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID,
        INVALID_SESSION_TIMEOUT, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED (`MemberIdRequiredError`), 81, 82."""
        low, high = self._config.group_min_session_timeout_ms, self._config.group_max_session_timeout_ms
        if not low <= ask.session_timeout_ms <= high:
            raise KafkaError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"session timeout {ask.session_timeout_ms} ms is outside [{low}, {high}]: change session.timeout.ms, "
                "or group.min.session.timeout.ms and group.max.session.timeout.ms of the broker",
            )
        while True:
            group = self.groups.get(group_id)
            if group is None or not group.is_consumers:
                to = self._join(group_id, ask)
                if not to.done():
                    parting.note(to, partial(self._withdraw, group_id, ask.member_id or ask.new_member_id, to))
                try:
                    return await to
                except UpgradedError:
                    pass  # serve it in the new protocol: librdkafka shows the application an error of JoinGroup
                except MemberIdRequiredError as error:
                    parting.note(("id", group_id), partial(self._withdraw, group_id, error.member_id, None))
                    raise
                finally:
                    parting.forget(to)
            elif (joined := await self.consumers.join(group_id, ask)) is not None:
                return joined
            self.check()

    def _join(self, group_id: str, ask: Join) -> Future[Joined]:
        """JoinGroup in a classic group."""
        group = self.groups.get(group_id) or Group(group_id=group_id)
        to: Future[Joined] = get_running_loop().create_future()
        transition = state.join(group, ask, to, self._now(), self._rules)
        self.groups[group_id] = group
        self._carry_out(transition)
        return to

    def _withdraw(self, group_id: str, member_id: str, to: Future[Joined] | None) -> None:
        """The connection is lost over which a member was given this id (`to` None), or waits in JoinGroup."""
        group = self.groups.get(group_id)
        if group is not None and not self.is_gone:
            self._carry_out(state.withdraw(group, member_id, to, self._now(), self._rules))

    async def sync(self, group_id: str, ask: Sync) -> Synced:
        """SyncGroup: wait for the member's assignment. Raises COORDINATOR_NOT_AVAILABLE, ILLEGAL_GENERATION,
        INCONSISTENT_GROUP_PROTOCOL, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID."""
        group = self._group_of(group_id, ask.member_id)
        if group.is_upgrading:
            raise state.rebalancing(group)
        if group.consumer is not None:
            return self.consumers.sync(group.consumer, ask)
        to: Future[Synced] = get_running_loop().create_future()
        self._carry_out(state.sync(group, ask, to, self._now(), self._rules))
        return await to

    def heartbeat(self, group_id: str, generation_id: int, member_id: str, instance_id: str | None) -> None:
        """Heartbeat. Raises COORDINATOR_NOT_AVAILABLE, ILLEGAL_GENERATION, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID,
        REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID."""
        group = self._group_of(group_id, member_id)
        if group.consumer is not None:
            self.consumers.classic_heartbeat(group.consumer, member_id, instance_id, generation_id)
        else:
            state.heartbeat(group, member_id, instance_id, generation_id, self._now())

    async def leave(self, group_id: str, members: Iterable[tuple[str, str | None]]) -> list[ErrorCode]:
        """LeaveGroup of (member id, instance id) pairs: a code for each. Raises COORDINATOR_NOT_AVAILABLE,
        NOT_COORDINATOR, INVALID_GROUP_ID."""
        codes, slices = [], self._turns.slices()
        for member_id, instance_id in members:
            try:
                await self._leave(group_id, member_id, instance_id)
                codes.append(ErrorCode.NONE)
            except KafkaError as error:
                codes.append(error.code)
            if slices.is_over():
                await slices.next()
                self.check()
        await self._journal.flushed()
        return codes

    async def _leave(self, group_id: str, member_id: str, instance_id: str | None) -> None:
        while self._group_of(group_id, member_id).is_consumers:
            if await self.consumers.leave(group_id, member_id, instance_id):
                return
            self.check()
        group = self._group_of(group_id, member_id)
        self._carry_out(state.leave(group, member_id, instance_id, self._now(), self._rules))

    # --- offsets ---

    async def commit(
        self,
        group_id: str,
        records: Sequence[OffsetRecord],
        *,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        connection: int,
        has_epochs: bool = True,
    ) -> None:
        """OffsetCommit: return once `records` are durable and in effect. `has_epochs`: as in `check_commit`.

        Raises COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS,
        GROUP_ID_NOT_FOUND, FENCED_INSTANCE_ID, UNSUPPORTED_VERSION, INVALID_COMMIT_OFFSET_SIZE, CloseConnectionError
        (`NewestConnections`).
        """
        group = self.groups.get(group_id)
        if group is not None and group.consumer is not None:
            joins = self.consumers.is_joining(group_id, member_id)
            joining_for = [(record.topic, record.partition) for record in records] if joins else None
            consumer_state.check_commit(
                group.consumer, member_id, instance_id, generation_id, joining_for, has_epochs=has_epochs
            )
        elif group is not None:
            state.check_commit(group, member_id, instance_id, generation_id, self._now())
        elif generation_id >= 0:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}: join it first")
        self._check_room(group_id, records)
        if group is not None:
            self._has_committed_over(group, member_id, connection)
        if records:
            await self.offset_store.commit(group_id, records)

    def _has_committed_over(self, group: Group, member_id: str, connection: int) -> None:
        """Note the connection of a member's OffsetCommit. A late commit, which was sent again meanwhile, would set
        offsets back. Raises CloseConnectionError: the member has committed over a newer connection.
        """
        if member_id in (group.members if group.consumer is None else group.consumer.members):
            self._connections.commits.check(group.group_id, member_id, connection)
            self._connections.commits.note(group.group_id, member_id, connection)

    async def commit_in_transaction(
        self,
        group_id: str,
        records: Sequence[OffsetRecord],
        producer: RecordProducer,
        verify: Callable[[int], None],
        *,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
    ) -> None:
        """TxnOffsetCommit: return once `records` are durable; `offsets` has them once the transaction is committed.

        `verify(partition of __consumer_offsets)` raises unless the transaction is open and includes the partition; it
        is called without an await before the append (KIP-890). Raises COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
        ILLEGAL_GENERATION, GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, INVALID_PRODUCER_EPOCH, FENCED_INSTANCE_ID,
        INVALID_COMMIT_OFFSET_SIZE, and what it raises."""
        verify(self.index)
        group = self.groups.get(group_id)
        if group is not None and group.consumer is not None:
            consumer_state.check_commit(group.consumer, member_id, instance_id, generation_id, in_transaction=True)
        elif group is not None:
            state.check_commit_in_transaction(group, member_id, instance_id, generation_id)
        elif generation_id >= 0:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}: join it first")
        self._check_room(group_id, records)
        if records:
            await self.offset_store.hold(group_id, records, producer)

    def _check_room(self, group_id: str, records: Sequence[OffsetRecord]) -> None:
        """Whether a group without members may have these offsets: one client may commit for endless groups.

        Raises INVALID_COMMIT_OFFSET_SIZE.
        """
        group, count_max = self.groups.get(group_id), self._config.limits.committed_offsets_max
        if group is not None and not group.is_empty:
            return
        if self._offset_count() + len(records) > count_max and (
            self._offset_count() + self.offset_store.new_count(group_id, records) > count_max
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
        if is_named and group is not None and group.consumer is not None:
            consumer_state.check_member_epoch(group.consumer, member_id or "", None, epoch)

    async def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> list[ErrorCode]:
        """OffsetDelete: delete offsets of topics that no member reads; a code for each partition.

        Raises COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND.
        """
        group = self._known(group_id)
        if group.members and group.protocol_type != CONSUMER:
            raise KafkaError(
                ErrorCode.NON_EMPTY_GROUP,
                f"{group_id} has members whose subscriptions the broker cannot read: stop them first",
            )
        read = group.topics_read()
        kept = [read is None or topic in read for topic, _ in partitions]
        doomed = [row for row, keep in zip(partitions, kept, strict=True) if not keep]
        await self.offset_store.delete(group_id, doomed)
        return [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if keep else ErrorCode.NONE for keep in kept]

    async def forget_outlived(self, only_topic: str | None = None) -> None:
        """Delete the offsets of topics that no longer exist, of all or of one name.

        First this broker catches up with the store: a topic that it does not know yet would lose its offsets. If the
        store does not answer, a later load or expiry sweep deletes them. No client sees them anyway.
        """
        await self._journal.flushed()  # a commit under way may be for such a topic
        if not self.offset_store.has_outlived(only_topic):
            return
        try:
            await self._catch_up()
        except KafkaError as error:
            self._log.warning("outlived_offsets_kept", partition=self.index, error=str(error))
            return
        if not self.is_gone:
            await self.offset_store.delete_outlived(only_topic)

    def expire_offsets(self) -> None:
        """Delete offsets that are unused for `offsets.retention.minutes`, and groups that become empty."""
        self.offset_store.expire(self._world.now_ms(), self._config.offsets_retention_minutes * MINUTE_MS)

    async def delete_group(self, group_id: str) -> None:
        """DeleteGroups: delete a group without members, and its offsets.

        A group with very many offsets loses them in portions: a member that joins meanwhile finds a part of them gone,
        and the request gets NON_EMPTY_GROUP. Raises COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, NON_EMPTY_GROUP,
        GROUP_ID_NOT_FOUND.
        """
        if self._known(group_id).is_consumers:
            await self.consumers.delete(group_id, self._delete_group)
            return
        await self._delete_group(self._known(group_id))

    async def _delete_group(self, group: Group) -> None:
        group_id = group.group_id
        while True:
            group = self._known(group_id)
            if not group.is_empty:
                raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"{group_id} has members: stop them first")
            portion = self.offset_store.partitions(group, DELETED_AT_ONCE + 1)
            if len(portion) <= DELETED_AT_ONCE:
                break
            await self.offset_store.delete(group_id, portion)
            await sleep(0)
        await self.offset_store.delete_group(group)

    # --- carrying out ---

    def _carry_out(self, transition: Transition) -> None:
        """Answer the requests that the transition answers, persist its change, and watch the sessions it names."""
        group = transition.group
        if transition.cause:
            count(self._counters.rebalances, transition.cause)
        for answer in transition.answers:
            to = cast("Future[Joined | Synced]", answer.to)
            if to.done():
                continue  # the request was cancelled
            if isinstance(answer.result, KafkaError):
                to.set_exception(answer.result)
            else:
                to.set_result(answer.result)
        if transition.change is not None:
            self._persist(group, transition.change)
        self._let_go(group)
        self._watch(group, transition.watch)

    def _persist(self, group: Group, change: Change) -> None:
        def applied() -> None:
            self._carry_out(state.apply(group, change, self._now(), self._rules))
            self._log.info(
                "group_generation_stored",
                group=group.group_id,
                generation=change.generation_id,
                members=len(group.members),
                state=group.state.value,
            )

        def refused(error: Exception) -> None:
            if self.is_gone:
                return  # every request is answered
            is_passing = isinstance(error, KafkaError) and error.code in TRANSIENT
            tell = self._log.warning if is_passing else self._log.error
            tell("group_not_stored", group=group.group_id, error=str(error))
            seen = error if isinstance(error, KafkaError) else KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
            self._carry_out(state.refuse(group, change, seen, self._now(), self._rules))

        rows = [group_row(group, change, self._now())]
        self._journal.write(rows, applied, refused, frees=isinstance(change, state.Empty))

    def _disband(self, group: Group) -> None:
        """The group goes on in the consumer protocol. Each JoinGroup that waits is served there."""
        self._carry_out(state.shut(group, UpgradedError(group.group_id), self._now(), self._rules))
        group.disband()

    def _downgraded(self, group: Group) -> None:
        """The group goes on in the classic protocol: its members have to join again."""
        self._watch(group, group.members)
        self._carry_out(state.join_again(group, self._now(), self._rules))

    def _let_go(self, group: Group) -> None:
        """Remove the group if there is nothing to keep: neither a generation nor offsets, also of open transactions."""
        if group.is_disposable and not self.offset_store.has_unstable(group.group_id):
            self._remove(group)

    def _remove(self, group: Group) -> None:
        group.enter(GroupState.DEAD, self._world.now_ms())
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]

    # --- time ---

    def _watch(self, group: Group, member_ids: Iterable[str]) -> None:
        now = self._now()
        for member_id in member_ids:
            if (when_ms := state.expiry_of(group, member_id, now)) is not None:
                self._alarm.arm((group.group_id, member_id), when_ms)
        if group.deadline_ms is not None:
            self._alarm.arm((group.group_id, GROUP), group.deadline_ms)

    def _check_deadline(self, key: Key, now_ms: int) -> int | None:
        """Check whether a member's session or a group's deadline has ended; when to check again, None: never."""
        group_id, member_id = key
        group = self.groups.get(group_id)
        if group is None:
            return None
        if group.is_upgrading:
            return now_ms + UPGRADE_CHECK_MS
        if group.consumer is not None and member_id != GROUP:
            return self.consumers.check_deadline(group, member_id, now_ms)
        now = self._now()
        when_ms = group.deadline_ms if member_id == GROUP else state.expiry_of(group, member_id, now)
        if when_ms is None or when_ms > now_ms:
            return when_ms
        if member_id == GROUP:
            self._carry_out(state.deadline(group, now, self._rules))
        else:
            self._log.info("group_member_expired", group=group_id, member=member_id)
            self._carry_out(state.expire(group, member_id, now, self._rules))
        return None

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

    def _now(self) -> TimePoint:
        return TimePoint(self._monotonic_ms(), self._world.now_ms())

    def _monotonic_ms(self) -> int:
        return int(self._world.monotonic() * 1000)

    @property
    def _rules(self) -> GroupRules:
        return GroupRules(
            initial_rebalance_delay_ms=self._config.group_initial_rebalance_delay_ms,
            size_max=self._config.group_max_size,
        )
