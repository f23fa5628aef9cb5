"""The coordinator of all groups of this broker: carries out what the pure parts decide.

Decide (`state`, at once), persist (`journal`), apply, answer. A request's future is handed to the state machine and
comes back with its answer, in the same turn of the loop or when others have come or time has passed. One timer serves
all sessions.
"""

from __future__ import annotations

from asyncio import Future, Task, TimerHandle, get_running_loop, wait
from collections.abc import Callable, Iterable, Sequence
from typing import cast
from uuid import UUID

from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.schema import ZERO_UUID

from semel_broker.config import BrokerConfig
from semel_broker.groups import state
from semel_broker.groups.book import OffsetBook
from semel_broker.groups.deadlines import GROUP, Alarm, Key
from semel_broker.groups.group import CONSUMER, Group, GroupState
from semel_broker.groups.journal import Journal, Producer
from semel_broker.groups.offsets import CommittedOffset, GroupOffsets, OffsetRecord
from semel_broker.groups.records import group_row
from semel_broker.groups.replay import Replay
from semel_broker.groups.requests import Join, Joined, Moment, Rules, Sync, Synced
from semel_broker.groups.turn import Change, Turn
from semel_broker.topics import Topics
from semel_broker.world import World

MINUTE_MS = 60_000


class GroupCoordinator:
    """All groups, and what they have committed. `start` it, then call it from any task; `close` it before the topics.

    Requests that come while the stored groups are still being read wait until they are.
    """

    def __init__(self, world: World, config: BrokerConfig, topics: Topics) -> None:
        self._world = world
        self._log = world.log
        self._config = config
        self._topics = topics
        self._journal = Journal(world, topics)
        self._groups: dict[str, Group] = {}
        self._book = OffsetBook(world.log, self._journal, self._groups, self._bury, self.counts)
        self._alarm = Alarm(self._monotonic_ms, self._look)
        self._expiry_timer: TimerHandle | None = None
        self._loading: Task[None] | None = None
        self._is_loaded = False
        self._closed = False

    # --- life ---

    def start(self) -> None:
        """Begin to read the stored groups; returns at once."""
        self._loading = get_running_loop().create_task(self._load())
        self._schedule_expiry()

    async def loaded(self) -> None:
        """Return once the stored groups are there. Raises COORDINATOR_NOT_AVAILABLE if they cannot be, or no more."""
        assert self._loading is not None, "start() first"
        if not self._loading.done():
            await wait((self._loading,))  # whatever becomes of it; not cancelled with whoever waits
        if self._closed or self._loading.cancelled():
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is stopping")
        if (error := self._loading.exception()) is not None:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"__consumer_offsets cannot be read: {error}: see the broker's log"
            )

    async def close(self) -> None:
        """Answer whoever waits (they will look for another coordinator), and let everything written become durable."""
        self._closed = True
        self._alarm.stop()
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        if self._loading is not None:
            self._loading.cancel()
            await wait((self._loading,))
        stopping = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is stopping: try again")
        for group in list(self._groups.values()):
            self._carry_out(state.shut(group, stopping, self._now(), self._rules))
        await self._journal.close()

    # --- membership ---

    async def join(self, group_id: str, ask: Join) -> Joined:
        """JoinGroup: wait for the member's place in the next (or the present) generation.

        Raises KafkaError 15, 23, 24, 25, 26, 27, 79 (`MemberIdRequiredError`), 81, 82.
        """
        await self._named(group_id)
        await self._journal.create()
        low, high = self._config.group_min_session_timeout_ms, self._config.group_max_session_timeout_ms
        if not low <= ask.session_timeout_ms <= high:
            raise KafkaError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"session timeout {ask.session_timeout_ms} ms is outside [{low}, {high}]: change session.timeout.ms, "
                "or group.min.session.timeout.ms and group.max.session.timeout.ms of the broker",
            )
        group = self._groups.get(group_id) or Group(group_id=group_id)
        to: Future[Joined] = get_running_loop().create_future()
        turn = state.join(group, ask, to, self._now(), self._rules)
        self._groups[group_id] = group
        self._carry_out(turn)
        return await to

    async def sync(self, group_id: str, ask: Sync) -> Synced:
        """SyncGroup: wait for the member's assignment. Raises KafkaError 15, 22, 23, 24, 25, 27, 82."""
        await self._named(group_id)
        group = self._group_of(group_id, ask.member_id)
        to: Future[Synced] = get_running_loop().create_future()
        self._carry_out(state.sync(group, ask, to, self._now(), self._rules))
        return await to

    async def heartbeat(self, group_id: str, generation_id: int, member_id: str, instance_id: str | None) -> None:
        """Heartbeat. Raises KafkaError 15, 22, 24, 25, 27, 82."""
        await self._named(group_id)
        state.heartbeat(self._group_of(group_id, member_id), member_id, instance_id, generation_id, self._now())

    async def leave(self, group_id: str, members: Iterable[tuple[str, str | None]]) -> list[ErrorCode]:
        """LeaveGroup of (member id, instance id) pairs: a code for each. Raises KafkaError 15, 24."""
        await self._named(group_id)
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
        connection: int = 0,
    ) -> None:
        """OffsetCommit: return once `records` are durable and seen by `offsets`.

        `connection`: the number of the one that it came over; one older than the last that the member has committed
        over is refused with CloseConnectionError. Raises KafkaError 15, 16, 22, 25, 27, 69, 82.
        """
        await self.loaded()
        await self._journal.create()
        group = self._groups.get(group_id)
        if group is not None:
            state.check_commit(group, member_id, instance_id, generation_id, self._now())
            if (member := group.members.get(member_id)) is not None:
                member.has_committed_over(connection)
        elif generation_id >= 0:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}: join it first")
        elif member_id:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of {group_id}: join it first")
        if records:
            await self._book.commit(group_id, records)

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
        await self._named(group_id)
        await self._journal.create()
        verify(self._journal.partition_of(group_id))
        group = self._groups.get(group_id)
        if group is not None:
            state.check_commit_in_transaction(group, member_id, instance_id, generation_id)
        elif generation_id >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"there is no group {group_id}: join it first")
        elif member_id:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of {group_id}: join it first")
        if records:
            await self._book.hold(group_id, records, producer)

    def transaction_ended(self, index: int, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """The marker of this producer's transaction is durable in partition `index` of `__consumer_offsets`: what it
        has committed here takes effect, or is dropped. To hear of it twice does no harm."""
        self._book.transaction_ended(index, producer_id, commit)

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may yet change this offset; in the same turn as `offsets`."""
        return self._book.is_unstable(group_id, topic, partition)

    def unstable(self, group_id: str) -> list[tuple[str, int]]:
        """All (topic, partition) of the group that open transactions may yet change."""
        return self._book.unstable(group_id)

    async def offsets(self, group_id: str) -> GroupOffsets:
        """What the group has committed, whether it `counts` or not: live, to be read at once. Raises KafkaError 15."""
        await self.loaded()
        group = self._groups.get(group_id)
        return group.offsets if group is not None else GroupOffsets()

    def counts(self, topic: str, committed: CommittedOffset) -> bool:
        """Whether it was committed for the topic that has the name now, and not for one that had it once (KIP-516)."""
        known = self._topics.get(topic)
        return known is not None and committed.topic_id in (known.topic_id, ZERO_UUID)

    async def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> list[ErrorCode]:
        """OffsetDelete: forget offsets of topics that no member reads; a code for each partition.

        Raises KafkaError 15, 16, 68, 69.
        """
        await self.loaded()
        group = self._known(group_id)
        if group.members and group.protocol_type != CONSUMER:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"{group_id} has members, and what they read is theirs to know")
        read = group.topics_read()
        kept = [read is None or topic in read for topic, _ in partitions]
        doomed = [row for row, keep in zip(partitions, kept, strict=True) if not keep]
        await self._book.strike(group_id, [row for row in doomed if group.offsets.get(*row) is not None])
        return [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if keep else ErrorCode.NONE for keep in kept]

    async def forget_topic(self, topic: str) -> None:
        """A topic was deleted: what groups committed for it, which does not count any more, need not be kept.

        If that cannot be now, a load does it, or the next look at what has expired.
        """
        if self._is_loaded and not self._closed:
            await self._journal.flushed()  # a commit under way is one too
            await self._book.strike_outlived(topic)

    # --- administration ---

    async def groups(self) -> list[Group]:
        """All groups by id, to be looked at at once. Raises KafkaError 15."""
        await self.loaded()
        return [self._groups[group_id] for group_id in sorted(self._groups)]

    async def group(self, group_id: str) -> Group | None:
        """One group, to be looked at at once. Raises KafkaError 15."""
        await self.loaded()
        return self._groups.get(group_id)

    async def delete_group(self, group_id: str) -> None:
        """DeleteGroups: forget a group without members, and its offsets. Raises KafkaError 15, 16, 68, 69."""
        await self.loaded()
        group = self._known(group_id)
        if group.state is not GroupState.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"{group_id} has members: stop them first")
        await self._book.strike_group(group)

    # --- carrying out ---

    def _carry_out(self, turn: Turn) -> None:
        """Answer whom the turn answers, watch whom it names, and persist what it wants persisted."""
        group = turn.group
        for answer in turn.answers:
            to = cast("Future[Joined | Synced]", answer.to)
            if to.done():
                continue  # its request was given up
            if isinstance(answer.result, KafkaError):
                to.set_exception(answer.result)
            else:
                to.set_result(answer.result)
        if turn.change is not None:
            self._persist(group, turn.change)
        if group.is_disposable:
            self._bury(group)
        self._watch(group, turn.watch)

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
            self._log.error("group_not_stored", group=group.group_id, error=str(error))
            seen = error if isinstance(error, KafkaError) else KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
            self._carry_out(state.refuse(group, change, seen, self._now(), self._rules))

        self._journal.write(group.group_id, [group_row(group, change, self._now())], applied, refused)

    def _bury(self, group: Group) -> None:
        group.enter(GroupState.DEAD, self._world.now_ms())
        if self._groups.get(group.group_id) is group:
            del self._groups[group.group_id]

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
        group = self._groups.get(group_id)
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

    def _schedule_expiry(self) -> None:
        interval_s = self._config.offsets_retention_check_interval_ms / 1000
        self._expiry_timer = get_running_loop().call_later(interval_s, self._expire_offsets)

    def _expire_offsets(self) -> None:
        """Forget offsets that have been of no use for `offsets.retention.minutes`, and groups with nothing left."""
        self._schedule_expiry()
        if self._is_loaded:
            self._book.expire(self._world.now_ms(), self._config.offsets_retention_minutes * MINUTE_MS)

    async def _load(self) -> None:
        replay = Replay()
        try:
            await self._journal.replay(replay.feed)
            self._groups.update(replay.groups(self._now()))
            self._book.load(replay.pending())
            await self._book.strike_outlived()  # topics may have been deleted while nobody was here to forget
        except Exception as error:
            self._log.exception("groups_not_loaded", error=repr(error))
            raise
        for group in self._groups.values():
            self._watch(group, group.members)
        self._is_loaded = True
        self._log.info("groups_loaded", groups=len(self._groups))

    # --- small things ---

    async def _named(self, group_id: str) -> None:
        """Members speak of a group by name, and everything is read. Raises INVALID_GROUP_ID."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group needs a name: set group.id")
        await self.loaded()

    def _group_of(self, group_id: str, member_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of {group_id}: join again")
        return group

    def _known(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
        return group

    def new_member_id(self, prefix: str) -> str:
        """An id that no member has had: `prefix` (client id or instance id), "-", a random UUID."""
        return f"{prefix}-{UUID(int=self._world.rng.getrandbits(128), version=4)}"

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
