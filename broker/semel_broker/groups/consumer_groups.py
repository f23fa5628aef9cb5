"""The groups of the consumer protocol in one shard: decide, persist, apply, answer; sessions and revocations in time.

One request of a group runs after the other: a decision is made once the records of the one before are durable and in
effect. A heartbeat that changes nothing is answered at once. A member whose session ends, or that revokes too slowly,
is removed in a task of its own.
"""

from __future__ import annotations

from asyncio import Task, get_running_loop, wait
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.config.loading import BrokerConfig
from semel_broker.coordination.journal import Journal
from semel_broker.counters.coordinators import GroupCounters, count
from semel_broker.groups import migration
from semel_broker.groups.connections import NewestConnections
from semel_broker.groups.consumer import classic_members, state
from semel_broker.groups.consumer.model import (
    NOTHING,
    Change,
    ConsumerGroup,
    Current,
    MemberState,
    SetCurrent,
    SetEpoch,
    SetMember,
    TopicIdPartitions,
)
from semel_broker.groups.consumer.records import rows
from semel_broker.groups.consumer.requests import JOIN, LEAVE, Catalog, ConsumerRules, Heartbeat, HeartbeatAnswer
from semel_broker.groups.deadlines import Key
from semel_broker.groups.group import CONSUMER, Group
from semel_broker.groups.migration import Downgrade, check_upgrade
from semel_broker.groups.records import downgraded_row, group_tombstone
from semel_broker.groups.requests import Join, Joined, MemberIdRequiredError, Sync, Synced
from semel_broker.scheduling.turns import Turns
from semel_broker.world import World

RETRY_MS = 1_000
"""Between attempts to remove a member while records cannot be stored."""


class MemberSession(msgspec.Struct, kw_only=True):
    """The state of a member that has no records. Times are on the monotonic clock."""

    expires_ms: int
    least_ms: int = 0
    """The session does not end before this time, because a former coordinator may extend it until then (`resume`)."""
    due_by_ms: int | None = None
    awaits: TopicIdPartitions | Literal["join", "sync"] | None = None
    """The duty of the member until `due_by_ms`: to revoke these partitions, or (in the classic protocol) to send
    JoinGroup or SyncGroup. None: it has none.
    """
    disowned: TopicIdPartitions = NOTHING
    """The partitions to revoke that the member did not report as owned in the same heartbeat."""
    is_ending: bool = False
    """The removal of the member is being stored. Until then the group has the member, but no answer may extend its
    session: another member may get its partitions as soon as the removal is durable.
    """

    @property
    def due_ms(self) -> int:
        return self.expires_ms if self.due_by_ms is None else min(self.expires_ms, self.due_by_ms)

    def wait_for(self, awaits: TopicIdPartitions | Literal["join", "sync"] | None, due_by_ms: int) -> None:
        """Set what the member has to do; for what it has to do already the deadline stays."""
        if awaits != self.awaits:
            self.awaits, self.due_by_ms = awaits, None if awaits is None else due_by_ms


class ConsumerGroups:
    """The groups of the consumer protocol in one shard: requests, deadlines, and changes of protocol.

    - `groups`: the shard's table of all groups.
    - `let_go(group)` removes a group without members and offsets from the table.
    - `arm(key, when_ms)` schedules a call of `check_deadline`.
    - `check` raises NOT_COORDINATOR if this broker no longer coordinates the shard.
    - `catch_up` waits for the topics of the store, as `Topics.catch_up`.
    - `session_timeout_ms(group id)`: the timeout of the group's members of the consumer protocol.
    - `disband(group)` answers the waiting requests of a classic group and removes its members.
    - `downgraded(group)` is called when the group has become a classic one: its members have to join again.
    - `heartbeats_over`: the newest connection of each member.
    - `turns` evaluates regular expressions in slices.
    """

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        journal: Journal,
        groups: dict[str, Group],
        *,
        let_go: Callable[[Group], None],
        arm: Callable[[Key, int], None],
        check: Callable[[], None],
        catalog: Callable[[], Catalog],
        catch_up: Callable[[], Awaitable[None]],
        session_timeout_ms: Callable[[str], int],
        disband: Callable[[Group], None],
        downgraded: Callable[[Group], None],
        heartbeats_over: NewestConnections,
        counters: GroupCounters,
        turns: Turns,
    ) -> None:
        self._world, self._config, self._journal, self._groups = world, config, journal, groups
        self._let_go_of, self._arm, self._check = let_go, arm, check
        self._catalog, self._catch_up = catalog, catch_up
        self._session_timeout_ms = session_timeout_ms
        self._disband, self._downgraded = disband, downgraded
        self._heartbeats_over = heartbeats_over
        self._counters = counters
        self._turns = turns
        self._sessions: dict[Key, MemberSession] = {}
        self._tasks: dict[Task[None], None] = {}
        self._rules = ConsumerRules(
            size_max=config.group_consumer_max_size, assignors=tuple(config.group_consumer_assignors)
        )

    # --- life ---

    def resume(self, grace_ms: int) -> None:
        """After a load: each member continues with a full session timeout, and a full rebalance timeout.

        `grace_ms`: for so long a former coordinator may still answer heartbeats, so sessions last longer.
        """
        for group in self._groups.values():
            for member_id in group.consumer.members if group.consumer is not None else ():
                session = self._renew(group.group_id, member_id)
                session.expires_ms = session.least_ms = session.expires_ms + grace_ms

    async def finish(self) -> None:
        """Return once all tasks have ended."""
        while self._tasks:
            await wait(list(self._tasks))

    # --- requests ---

    async def heartbeat(self, group_id: str, ask: Heartbeat, connection: int = 0) -> HeartbeatAnswer:
        """ConsumerGroupHeartbeat: answered once everything that it changes is durable. `connection`: its number; 0 if
        it does not matter.

        A heartbeat that arrives late over a connection that its member has left is refused. It could count as an
        acknowledgement of a revocation, or its answer could be the only one that names an assignment. Raises
        COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, GROUP_ID_NOT_FOUND, what `state.heartbeat` raises, and
        CloseConnectionError (`NewestConnections`).
        """
        group = self._groups.get(group_id)
        known = group.consumer if group is not None else None
        is_quiet = known is not None and known.seen_version == self._catalog().version and state.is_quiet(known, ask)
        if is_quiet and not self._is_ending(group_id, ask.member_id):
            self._has_beaten_over(group_id, ask.member_id, connection)
            self._renew(group_id, ask.member_id)
            return HeartbeatAnswer(member_id=ask.member_id, epoch=ask.epoch)
        group = await self._enter(group_id, ask)
        with self._leaving(group):
            if group.consumer is None:
                return await self._upgrade(group, ask, connection)
            await self._know_topics(group.consumer)
            catalog = self._catalog()
            matched = await self._turns.slices().finish(state.matching(group.consumer, ask, catalog))
            self._check()
            self._has_beaten_over(group_id, ask.member_id, connection)
            completed = self._completed(group.consumer, ask)
            decision = state.heartbeat(group.consumer, completed, catalog, matched, self._rules, self._world.now_ms())
            await self._store(group, decision.changes, _cause(ask, decision.changes))
            if group.consumer is not None:
                group.consumer.seen_version = catalog.version
            if ask.epoch == LEAVE:
                self._sessions.pop((group_id, ask.member_id), None)
            else:
                self._heartbeats_over.note(group_id, ask.member_id, connection)
                self._note_disowned(group_id, ask, self._renew(group_id, ask.member_id))
            return decision.answer

    def _completed(self, group: ConsumerGroup, ask: Heartbeat) -> Heartbeat:
        """The heartbeat, with an acknowledgement that its member need not make.

        An answer that assigned partitions was lost, and the next target takes them. The member never heard of them: it
        says that it does not own them, and nothing more, since its partitions do not change. Its next heartbeat comes
        after the answer without them, so it cannot own them later. Kafka gives them to others at once; but a member of
        Java may be about to adopt what the heartbeat does not name yet.
        """
        session, current = self._sessions.get((group.group_id, ask.member_id)), group.currents.get(ask.member_id)
        if session is None or current is None or ask.owned is not None or ask.epoch != current.epoch:
            return ask
        if current.state is not MemberState.UNREVOKED or session.disowned != current.revoking:
            return ask
        return msgspec.structs.replace(ask, owned=current.assigned)

    def _note_disowned(self, group_id: str, ask: Heartbeat, session: MemberSession) -> None:
        """Remember for the next heartbeat what `_completed` needs to know of this one."""
        group = self._groups[group_id].consumer
        current = group.current(ask.member_id) if group is not None else Current()
        says_so = ask.owned is not None and not ask.owned & current.revoking
        session.disowned = current.revoking if says_so else NOTHING

    def _has_beaten_over(self, group_id: str, member_id: str, connection: int) -> None:
        """Raise CloseConnectionError: the member has a newer connection."""
        self._heartbeats_over.check(group_id, member_id, connection)
        if (group_id, member_id) in self._sessions:
            self._heartbeats_over.note(group_id, member_id, connection)

    async def _upgrade(self, group: Group, ask: Heartbeat, connection: int) -> HeartbeatAnswer:
        """The first member of the consumer protocol joins a classic group, whose members it keeps.

        Raises as `heartbeat`.
        """
        await self._journal.flushed()  # assignments that are under way belong to the members
        if group.members:
            await self._know_all_topics()
        catalog, consumer = self._catalog(), ConsumerGroup(group.group_id)
        matched = await self._turns.slices().finish(state.matching(consumer, ask, catalog))
        self._check()
        carried = migration.upgraded(group, catalog)
        for change in carried:
            consumer.apply(change)
        decision = state.heartbeat(consumer, ask, catalog, matched, self._rules, self._world.now_ms())

        def apply() -> None:
            self._disband(group)
            for change in decision.changes:
                consumer.apply(change)
            consumer.seen_version = catalog.version
            group.consumer = consumer

        # A later record of a key replaces an earlier one, so one batch may have both.
        former = [group_tombstone(group.group_id)] if group.generation_id or group.protocol_type else []
        all_rows = [*former, *rows(group.group_id, (*carried, *decision.changes))]
        await self._journal.store(all_rows, apply, in_one_batch=True)
        count(self._counters.rebalances, "upgraded" if carried else "joined")
        self._log_stored(group.group_id, consumer)
        for member_id in consumer.members:
            self._renew(group.group_id, member_id)
        self._heartbeats_over.note(group.group_id, ask.member_id, connection)
        return decision.answer

    # --- requests of members of the classic protocol ---

    async def join(self, group_id: str, ask: Join) -> Joined | None:
        """JoinGroup. None: the group is a classic one now; one of the consumer protocol without members becomes that.

        Raises COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, INCONSISTENT_GROUP_PROTOCOL, MEMBER_ID_REQUIRED,
        and what `classic_members.join_group` raises.
        """
        group = await self._locked(group_id)
        if group is None:
            return None
        with self._leaving(group):
            if group.consumer is None:
                return None
            if not group.consumer.members:
                self._check()
                await self._store(group, state.forget_group(group.consumer))
                return None
            await self._know_all_topics()
            self._check()
            catalog = self._catalog()
            heartbeat = migration.as_heartbeat(group.consumer, ask, catalog)
            if not ask.member_id and ask.must_return and ask.instance_id is None:
                raise MemberIdRequiredError(ask.new_member_id)
            decision = classic_members.join_group(
                group.consumer,
                heartbeat,
                catalog,
                self._rules,
                self._world.now_ms(),
                is_named=bool(ask.member_id),
            )
            await self._store(group, decision.changes, "joined")
            if group.consumer is not None:
                self._renew(group_id, heartbeat.member_id, has_joined=True)
            return Joined(
                member_id=heartbeat.member_id,
                generation_id=decision.answer.epoch,
                protocol_type=CONSUMER,
                protocol=ask.protocols[0][0],
                leader="",
            )

    def sync(self, group: ConsumerGroup, ask: Sync) -> Synced:
        """SyncGroup. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL,
        REBALANCE_IN_PROGRESS."""
        member = classic_members.classic_member(group, ask.member_id, ask.instance_id, ask.generation_id)
        assert member.classic is not None
        protocol = member.classic.protocol
        if ask.protocol_type not in (None, CONSUMER) or ask.protocol not in (None, protocol):
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"generation {ask.generation_id} runs {CONSUMER}/{protocol}, not {ask.protocol_type}/{ask.protocol}",
            )
        self._check_not_ending(group.group_id, ask.member_id)
        may_sync = classic_members.may_sync(group, ask.member_id)
        self._renew(group.group_id, ask.member_id, has_synced=may_sync)
        if not may_sync:
            raise _rebalancing(group)
        return Synced(CONSUMER, protocol, migration.embedded_assignment(group, ask.member_id))

    def classic_heartbeat(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
    ) -> None:
        """Heartbeat. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS."""
        classic_members.classic_member(group, member_id, instance_id, generation_id)
        self._check_not_ending(group.group_id, member_id)
        self._renew(group.group_id, member_id)
        if classic_members.must_join(group, member_id):
            raise _rebalancing(group)

    def is_joining(self, group_id: str, member_id: str) -> bool:
        """Whether a member of the classic protocol is between JoinGroup and SyncGroup."""
        session = self._sessions.get((group_id, member_id))
        return session is not None and session.awaits == "sync"

    async def leave(self, group_id: str, member_id: str, instance_id: str | None) -> bool:
        """LeaveGroup of one member. False: the group is a classic one now.

        Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
        """
        group = await self._locked(group_id)
        if group is None:
            return False
        with self._leaving(group):
            if group.consumer is None:
                return False
            self._check()
            member_id = classic_members.leaver(group.consumer, member_id, instance_id)
            await self._store(group, state.remove(group.consumer, member_id), "left")
            self._sessions.pop((group_id, member_id), None)
            return True

    async def delete(self, group_id: str, delete: Callable[[Group], Awaitable[None]]) -> None:
        """DeleteGroups: call `delete(group)` for a group without members, while no member can join.

        Raises NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
        """
        group = await self._locked(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
        with self._leaving(group):
            if not group.is_empty:
                raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"{group_id} has members: stop them first")
            self._check()
            await delete(group)

    # --- time ---

    def check_deadline(self, group: Group, member_id: str, now_ms: int) -> int | None:
        """Check whether a member has to be removed; when to check again, None: never."""
        session = self._sessions.get((group.group_id, member_id))
        if session is None or session.due_ms > now_ms:
            return session.due_ms if session is not None else None
        task = get_running_loop().create_task(self._expire(group.group_id, member_id), name="remove a member")
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return None

    async def _expire(self, group_id: str, member_id: str) -> None:
        group = await self._locked(group_id)
        if group is None:
            return
        key = group_id, member_id
        with self._leaving(group):
            session = self._sessions.get(key)
            if session is None or group.consumer is None or member_id not in group.consumer.members:
                self._sessions.pop(key, None)
                return
            if session.due_ms > (now_ms := self._monotonic_ms()):  # a heartbeat came first
                self._arm(key, session.due_ms)
                return
            why = "session" if session.expires_ms <= now_ms else "rebalance"
            try:
                self._check()
                await self._store(group, state.remove(group.consumer, member_id), f"{why}_expired")
            except KafkaError as error:
                self._world.log.warning("consumer_not_removed", group=group_id, member=member_id, error=str(error))
                self._arm(key, self._monotonic_ms() + RETRY_MS)
                return
            self._sessions.pop(key, None)
            self._world.log.info("consumer_removed", group=group_id, member=member_id, timeout=why)

    def _is_ending(self, group_id: str, member_id: str) -> bool:
        session = self._sessions.get((group_id, member_id))
        return session is not None and session.is_ending

    def _check_not_ending(self, group_id: str, member_id: str) -> None:
        """Raise UNKNOWN_MEMBER_ID: the removal of the member is being stored."""
        if self._is_ending(group_id, member_id):
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"the session of {member_id} has ended: join again")

    def _renew(
        self, group_id: str, member_id: str, *, has_joined: bool = False, has_synced: bool = False
    ) -> MemberSession:
        """The session starts again; what the member has to do keeps its deadline."""
        group = self._groups[group_id].consumer
        assert group is not None
        now_ms = self._monotonic_ms()
        key = group_id, member_id
        session = self._sessions.get(key)
        if session is None:
            session = self._sessions[key] = MemberSession(expires_ms=0)
        member, current = group.members[member_id], group.current(member_id)
        due_by_ms = now_ms + max(member.rebalance_timeout_ms, 0)
        if member.classic is None:
            session.expires_ms = max(session.least_ms, now_ms + self._session_timeout_ms(group_id))
            session.wait_for(current.revoking if current.state is MemberState.UNREVOKED else None, due_by_ms)
        else:
            session.expires_ms = max(session.least_ms, now_ms + member.classic.session_timeout_ms)
            if has_joined:
                session.wait_for(None, 0)
                session.wait_for("sync", due_by_ms)
            elif has_synced or session.awaits != "sync":
                session.wait_for("join" if classic_members.must_join(group, member_id) else None, due_by_ms)
        self._arm(key, session.due_ms)
        return session

    def _ended(self, task: Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error  # a bug of ours: the loop's exception handler has it logged

    # --- inside ---

    async def _enter(self, group_id: str, ask: Heartbeat) -> Group:
        """The group with its lock taken. Raises GROUP_ID_NOT_FOUND."""
        while True:
            group = self._groups.get(group_id)
            if group is None:
                if ask.epoch != JOIN:
                    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}: join it first")
                group = self._groups[group_id] = Group(group_id=group_id)
            await group.own_lock.wait()
            if self._groups.get(group_id) is group:
                break
            group.own_lock.give()  # the group was removed in the meantime
        if group.consumer is None:
            try:
                if ask.epoch != JOIN:
                    why = f"{group_id} is a classic group: join it first, with member epoch 0"
                    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, why)
                config = self._config
                check_upgrade(group, config.group_consumer_migration_policy, config.group_consumer_max_size)
            except KafkaError:
                self._let_go(group)
                raise
            group.is_upgrading = True  # from here on a classic member waits
        return group

    async def _locked(self, group_id: str) -> Group | None:
        """The group with its lock taken; None: there is none."""
        while (group := self._groups.get(group_id)) is not None:
            await group.own_lock.wait()
            if self._groups.get(group_id) is group:
                return group
            group.own_lock.give()
        return None

    @contextmanager
    def _leaving(self, group: Group) -> Iterator[None]:
        try:
            yield
        finally:
            self._let_go(group)

    def _let_go(self, group: Group) -> None:
        """Give the lock to the next request. A group of which nothing is stored is removed."""
        group.is_upgrading = False
        if group.consumer is not None and group.consumer.is_blank:
            group.consumer = None
        group.own_lock.give()
        if self._groups.get(group.group_id) is group:
            self._let_go_of(group)

    async def _know_topics(self, group: ConsumerGroup) -> None:
        """Catch up with the store before a topic of the group is taken for deleted: this broker may not know it yet.

        Raises COORDINATOR_NOT_AVAILABLE.
        """
        catalog = self._catalog()
        if group.seen_version == catalog.version or all(catalog.get(name) is not None for name in group.topics):
            return
        await self._know_all_topics()

    async def _know_all_topics(self) -> None:
        """Catch up with the store. Raises COORDINATOR_NOT_AVAILABLE."""
        try:
            await self._catch_up()
        except KafkaError as error:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"topics are not known now: {error}") from error

    async def _store(self, group: Group, changes: tuple[Change, ...], cause: str = "") -> None:
        """Return once the changes are durable and in effect. `cause`: counted, if they give the group another epoch.

        Raises COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
        """
        if not changes:
            return
        removed = [change.member_id for change in changes if isinstance(change, SetMember) and change.member is None]
        ending = [
            each for member_id in removed if (each := self._sessions.get((group.group_id, member_id))) is not None
        ]
        for session in ending:
            session.is_ending = True
        try:
            await self._store_changes(group, changes, cause)
        except KafkaError:
            for session in ending:
                session.is_ending = False
            raise

    async def _store_changes(self, group: Group, changes: tuple[Change, ...], cause: str) -> None:
        assert group.consumer is not None
        consumer = group.consumer
        set_members = [change.member for change in changes if isinstance(change, SetMember)]
        only_removes = bool(set_members) and not any(set_members)
        if (downgrade := self._downgrade(consumer, changes)) is not None:
            await self._store_downgrade(group, downgrade, only_removes)
            return

        def apply() -> None:
            for change in changes:
                consumer.apply(change)

        await self._journal.store(rows(group.group_id, changes), apply, frees=only_removes)
        if cause and any(isinstance(change, SetEpoch) for change in changes):
            count(self._counters.rebalances, cause)
        if any(not isinstance(change, SetCurrent) for change in changes):
            self._log_stored(group.group_id, consumer)

    def _downgrade(self, group: ConsumerGroup, changes: tuple[Change, ...]) -> Downgrade | None:
        """The classic group that remains when these changes take the last member of the consumer protocol away."""
        if not any(isinstance(change, SetMember) and change.member is None for change in changes):
            return None
        if all(member.classic is not None for member in group.members.values()):
            return None  # the policy did not allow it before
        after = group.copy()
        for change in changes:
            after.apply(change)
        has_joined = not after.members.keys() <= group.members.keys()
        # When a member leaves, the group epoch stays: the others remain at the generation that they know.
        generation_id = after.epoch if has_joined else group.epoch
        policy, size_max = self._config.group_consumer_migration_policy, self._config.group_max_size
        return migration.downgraded(after, generation_id, policy, size_max)

    async def _store_downgrade(self, group: Group, downgrade: Downgrade, only_removes: bool) -> None:
        """Raise as `_store`."""
        assert group.consumer is not None
        consumer, now_ms = group.consumer, self._world.now_ms()

        def apply() -> None:
            for member_id in consumer.members:
                self._sessions.pop((group.group_id, member_id), None)
            group.consumer = None
            group.protocol_type, group.generation_id, group.since_ms = CONSUMER, downgrade.generation_id, now_ms
            for member in downgrade.members:
                member.expires_ms = self._monotonic_ms() + member.session_timeout_ms
            group.restore(downgrade.members, downgrade.protocol, None)
            self._world.log.info(
                "consumer_group_downgraded",
                group=group.group_id,
                generation=group.generation_id,
                members=len(group.members),
            )
            self._downgraded(group)

        all_rows = [*rows(group.group_id, state.forget_group(consumer)), downgraded_row(downgrade, now_ms)]
        await self._journal.store(all_rows, apply, in_one_batch=True, frees=only_removes)

    def _log_stored(self, group_id: str, consumer: ConsumerGroup) -> None:
        self._world.log.info(
            "consumer_group_stored",
            group=group_id,
            epoch=consumer.epoch,
            members=len(consumer.members),
            state=consumer.state,
        )

    def _monotonic_ms(self) -> int:
        return int(self._world.monotonic() * 1000)


def _cause(ask: Heartbeat, changes: tuple[Change, ...]) -> str:
    """Why a heartbeat gives its group another epoch."""
    if ask.epoch == JOIN:
        return "joined"
    if ask.epoch < JOIN:
        return "left"
    return "subscribed" if any(isinstance(change, SetMember) for change in changes) else "topics_changed"


def _rebalancing(group: ConsumerGroup) -> KafkaError:
    return KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, f"{group.group_id} is rebalancing: join again")
