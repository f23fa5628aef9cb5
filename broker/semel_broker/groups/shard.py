"""The groups of one partition of `__consumer_offsets`: carries out what the pure parts decide.

Decide (`state`, at once), persist (`journal`), apply, answer. A request's future is handed to the state machine and
comes back with its answer, in the same turn of the loop or when others have come or time has passed. One timer serves
all sessions.
"""

from __future__ import annotations

from asyncio import Future, Lock, get_running_loop
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import cast

from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.config.loading import BrokerConfig
from semel_broker.coordination.journal import Journal, Producer
from semel_broker.coordination.shards import PASSING, Shard
from semel_broker.groups import state
from semel_broker.groups.book import Counts, OffsetBook
from semel_broker.groups.deadlines import GROUP, Alarm, Key
from semel_broker.groups.group import CONSUMER, Group, GroupState
from semel_broker.groups.offsets import GroupOffsets, OffsetRecord
from semel_broker.groups.pending import Pending
from semel_broker.groups.records import group_row
from semel_broker.groups.replay import Replay
from semel_broker.groups.requests import Join, Joined, Moment, Rules, Sync, Synced
from semel_broker.groups.state import Change, Transition
from semel_broker.partitions.partition import Partition
from semel_broker.world import World

MINUTE_MS = 60_000


class GroupShard(Shard):
    """The groups whose records lie in `partition`, and what they have committed. To be asked while it `is_ready`."""

    what = "groups"

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        counts: Counts,
        catch_up: Callable[[], Awaitable[None]],
        partition: Partition,
        reading: Lock,
    ) -> None:
        super().__init__(partition, world.log, reading)
        self._catch_up = catch_up
        self._world = world
        self._config = config
        self.groups: dict[str, Group] = {}
        self._journal = Journal(world, partition, passed=ErrorCode.INVALID_PRODUCER_EPOCH)
        self.book = OffsetBook(world.log, self._journal, self.groups, self._bury, counts)
        self._alarm = Alarm(self._monotonic_ms, self._look)

    # --- life ---

    async def _load(self) -> None:
        replay = Replay()
        await self._journal.replay(partial(replay.take, self.index))
        self.groups.update(replay.groups(self._now()))
        self.book.load(replay.pending())

    async def _go_on(self) -> None:
        await self.forget_outlived()  # topics may have been deleted while nobody was here to forget
        for group in self.groups.values():
            self._watch(group, group.members)
        self._log.info("groups_loaded", partition=self.index, groups=len(self.groups))

    def _load_nothing(self) -> None:
        self.book.load(Pending())

    def _let_go(self, error: KafkaError) -> None:
        self._alarm.stop()
        for group in list(self.groups.values()):
            self._carry_out(state.shut(group, error, self._now(), self._rules))

    async def _finish(self) -> None:
        await self._journal.close()

    # --- membership ---

    async def join(self, group_id: str, ask: Join) -> Joined:
        """JoinGroup: wait for the member's place in the next (or the present) generation.

        Raises KafkaError 15, 16, 23, 25, 26, 27, 79 (`MemberIdRequiredError`), 81, 82.
        """
        low, high = self._config.group_min_session_timeout_ms, self._config.group_max_session_timeout_ms
        if not low <= ask.session_timeout_ms <= high:
            raise KafkaError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"session timeout {ask.session_timeout_ms} ms is outside [{low}, {high}]: change session.timeout.ms, "
                "or group.min.session.timeout.ms and group.max.session.timeout.ms of the broker",
            )
        group = self.groups.get(group_id) or Group(group_id=group_id)
        to: Future[Joined] = get_running_loop().create_future()
        transition = state.join(group, ask, to, self._now(), self._rules)
        self.groups[group_id] = group
        self._carry_out(transition)
        return await to

    async def sync(self, group_id: str, ask: Sync) -> Synced:
        """SyncGroup: wait for the member's assignment. Raises KafkaError 15, 22, 23, 24, 25, 27, 82."""
        group = self._group_of(group_id, ask.member_id)
        to: Future[Synced] = get_running_loop().create_future()
        self._carry_out(state.sync(group, ask, to, self._now(), self._rules))
        return await to

    def heartbeat(self, group_id: str, generation_id: int, member_id: str, instance_id: str | None) -> None:
        """Heartbeat. Raises KafkaError 15, 22, 24, 25, 27, 82."""
        state.heartbeat(self._group_of(group_id, member_id), member_id, instance_id, generation_id, self._now())

    async def leave(self, group_id: str, members: Iterable[tuple[str, str | None]]) -> list[ErrorCode]:
        """LeaveGroup of (member id, instance id) pairs: a code for each. Raises KafkaError 15, 24."""
        codes = []
        for member_id, instance_id in members:
            try:
                group = self._group_of(group_id, member_id)
                self._carry_out(state.leave(group, member_id, instance_id, self._now(), self._rules))
                codes.append(ErrorCode.NONE)
            except KafkaError as error:
                codes.append(error.code)
        await self._journal.flushed()
        return codes

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
    ) -> None:
        """OffsetCommit: return once `records` are durable and seen by `offsets`.

        Raises KafkaError 15, 16, 22, 25, 27, 69, 82, CloseConnectionError (`Member.has_committed_over`).
        """
        group = self.groups.get(group_id)
        if group is not None:
            state.check_commit(group, member_id, instance_id, generation_id, self._now())
            if (member := group.members.get(member_id)) is not None:
                member.has_committed_over(connection)
        elif generation_id >= 0:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}: join it first")
        elif member_id:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of {group_id}: join it first")
        if records:
            await self.book.commit(group_id, records)

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
        is called in the turn of the append (KIP-890). Raises KafkaError 15, 16, 22, 24, 25, 47, 82, and what it raises.
        """
        verify(self.index)
        group = self.groups.get(group_id)
        if group is not None:
            state.check_commit_in_transaction(group, member_id, instance_id, generation_id)
        elif generation_id >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"there is no group {group_id}: join it first")
        elif member_id:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of {group_id}: join it first")
        if records:
            await self.book.hold(group_id, records, producer)

    def offsets(self, group_id: str) -> GroupOffsets:
        """What the group has committed, whether it `counts` or not: live, to be read at once."""
        group = self.groups.get(group_id)
        return group.offsets if group is not None else GroupOffsets()

    async def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> list[ErrorCode]:
        """OffsetDelete: forget offsets of topics that no member reads; a code for each partition.

        Raises KafkaError 15, 16, 68, 69.
        """
        group = self._known(group_id)
        if group.members and group.protocol_type != CONSUMER:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"{group_id} has members, and what they read is theirs to know")
        read = group.topics_read()
        kept = [read is None or topic in read for topic, _ in partitions]
        doomed = [row for row, keep in zip(partitions, kept, strict=True) if not keep]
        await self.book.strike(group_id, [row for row in doomed if group.offsets.get(*row) is not None])
        return [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if keep else ErrorCode.NONE for keep in kept]

    async def forget_outlived(self, only_topic: str | None = None) -> None:
        """Forget what was committed for topics that are no more, of all or of one name.

        Not before this broker knows of all topics that there are: one that it has not heard of yet would lose its
        offsets. If that cannot be now, a later load does it, or a look at what has expired; they do not count anyway.
        """
        await self._journal.flushed()  # a commit under way is one too
        if not self.book.has_outlived(only_topic):
            return
        try:
            await self._catch_up()
        except KafkaError as error:
            self._log.warning("outlived_offsets_kept", partition=self.index, error=str(error))
            return
        if not self.is_gone:
            await self.book.strike_outlived(only_topic)

    def expire_offsets(self) -> None:
        """Forget offsets that have been of no use for `offsets.retention.minutes`, and groups with nothing left."""
        self.book.expire(self._world.now_ms(), self._config.offsets_retention_minutes * MINUTE_MS)

    async def delete_group(self, group_id: str) -> None:
        """DeleteGroups: forget a group without members, and its offsets. Raises KafkaError 15, 16, 68, 69."""
        group = self._known(group_id)
        if group.state is not GroupState.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"{group_id} has members: stop them first")
        await self.book.strike_group(group)

    # --- carrying out ---

    def _carry_out(self, transition: Transition) -> None:
        """Answer the requests that the transition answers, persist its change, and watch the sessions it names."""
        group = transition.group
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
        if group.is_disposable:
            self._bury(group)
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
            is_passing = isinstance(error, KafkaError) and error.code in PASSING
            tell = self._log.warning if is_passing else self._log.error
            tell("group_not_stored", group=group.group_id, error=str(error))
            seen = error if isinstance(error, KafkaError) else KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
            self._carry_out(state.refuse(group, change, seen, self._now(), self._rules))

        self._journal.write([group_row(group, change, self._now())], applied, refused)

    def _bury(self, group: Group) -> None:
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

    def _look(self, key: Key, now_ms: int) -> int | None:
        """A member's session or a group's deadline may have ended."""
        group_id, member_id = key
        group = self.groups.get(group_id)
        if group is None:
            return None
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

    def _now(self) -> Moment:
        return Moment(self._monotonic_ms(), self._world.now_ms())

    def _monotonic_ms(self) -> int:
        return int(self._world.monotonic() * 1000)

    @property
    def _rules(self) -> Rules:
        return Rules(
            initial_rebalance_delay_ms=self._config.group_initial_rebalance_delay_ms,
            size_max=self._config.group_max_size,
        )
