"""The groups of the consumer protocol in one shard: requests; sessions and revocations in time; changes of protocol.

One request of a group runs after the other: a decision is made once the records of the one before are durable and in
effect. A heartbeat that changes nothing is answered at once. A member whose session ends, or that revokes too slowly,
is removed in a task of its own.
"""

from __future__ import annotations

from asyncio import Future, Task, get_running_loop, wait
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Literal

import msgspec
from semel_protocol.consumer_protocol import PROTOCOL_TYPE
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.internal_topics import Row

from semel_broker.groups.classic import state as classic_state
from semel_broker.groups.classic.group import ClassicMembership, RebalanceCause
from semel_broker.groups.classic.records import downgraded_row, group_tombstone
from semel_broker.groups.classic.state import ClassicRules
from semel_broker.groups.consumer import classic_members, migration, state
from semel_broker.groups.consumer.migration import check_upgrade
from semel_broker.groups.consumer.model import (
    CONSUMER,
    NOTHING,
    Change,
    ConsumerGroup,
    MemberState,
    SetCurrent,
    SetEpoch,
    SetMember,
    TopicIdPartitions,
)
from semel_broker.groups.consumer.records import rows
from semel_broker.groups.consumer.requests import JOIN, LEAVE, ConsumerRules, Heartbeat, HeartbeatAnswer
from semel_broker.groups.deadlines import Key
from semel_broker.groups.effects import Answer, ChangeRecords, Effects
from semel_broker.groups.group import Group
from semel_broker.groups.host import GroupHost
from semel_broker.groups.offsets.model import OffsetRecord
from semel_broker.groups.requests import (
    Committer,
    Join,
    Joined,
    KindChangedError,
    MemberIdRequiredError,
    Sync,
    Synced,
    TimePoint,
)
from semel_broker.scheduling.parting import Parting

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


class GroupChange(msgspec.Struct, frozen=True):
    """Changes of a group. `to`: the future of the request that waits for them. `cause`: counted if they give the group
    another epoch. `becomes`: the group as a classic one, if these changes take the last member of the consumer protocol
    away."""

    changes: tuple[Change, ...]
    to: Future[None]
    cause: str = ""
    becomes: ClassicMembership | None = None

    @property
    def only_removes(self) -> bool:
        set_members = [change.member for change in self.changes if isinstance(change, SetMember)]
        return bool(set_members) and not any(set_members)


class Upgrade(msgspec.Struct, frozen=True):
    """A classic group becomes `consumer`, which has the members that are carried over (`carried`). Then come `changes`:
    the first member of the consumer protocol joins. `to`: as in `GroupChange`."""

    consumer: ConsumerGroup
    carried: tuple[Change, ...]
    changes: tuple[Change, ...]
    to: Future[None]


class ConsumerGroups:
    """The kind of groups of the consumer protocol; see `Kind`. It has the sessions of members, and tasks that end
    them."""

    name = CONSUMER

    def __init__(self, host: GroupHost) -> None:
        self._host = host
        self._context = host.context
        self._world, self._config = host.context.world, host.context.config
        self._heartbeats_over = host.context.connections.heartbeats
        self._sessions: dict[Key, MemberSession] = {}
        self._tasks: dict[Task[None], None] = {}
        self._rules = ConsumerRules(
            size_max=self._config.group_consumer_max_size, assignors=tuple(self._config.group_consumer_assignors)
        )

    # --- life ---

    def resume(self, group: Group, grace_ms: int) -> None:
        """Each member continues with a full session timeout, and a full rebalance timeout."""
        for member_id in group.membership.members:
            session = self._renew(group, member_id)
            session.expires_ms = session.least_ms = session.expires_ms + grace_ms

    def close(self, group: Group, error: KafkaError) -> Effects:
        """Requests wait for records alone, and the journal answers them."""
        return Effects()

    async def finish(self) -> None:
        while self._tasks:
            await wait(list(self._tasks))

    # --- effects ---

    def records(self, group: Group, change: GroupChange | Upgrade, now: TimePoint) -> ChangeRecords:
        if isinstance(change, Upgrade):
            classic = group.of(ClassicMembership)
            assert classic is not None
            assert group.changing_to == CONSUMER, group.group_id
            # A later record of a key replaces an earlier one, so one batch may have both.
            former = [group_tombstone(group.group_id)] if classic.generation_id or classic.protocol_type else []
            return ChangeRecords(
                [*former, *rows(group.group_id, (*change.carried, *change.changes))], in_one_batch=True
            )
        assert change.changes, group.group_id
        if change.becomes is None:
            return ChangeRecords(rows(group.group_id, change.changes), frees=change.only_removes)
        all_rows = [*self.tombstones(group), downgraded_row(change.becomes)]
        return ChangeRecords(all_rows, in_one_batch=True, frees=change.only_removes)

    def apply(self, group: Group, change: GroupChange | Upgrade, now: TimePoint) -> Effects:
        done = [Answer(change.to, None)]
        if isinstance(change, Upgrade):
            return self._upgraded(group, change, now, done)
        if change.becomes is not None:
            return self._downgraded(group, change.becomes, now, done)
        consumer = _consumer(group)
        because = _because(consumer, change.changes, change.cause)
        for each in change.changes:
            consumer.apply(each)
        if any(not isinstance(each, SetCurrent) for each in change.changes):
            self._log_stored(consumer, because)
        has_epoch = any(isinstance(each, SetEpoch) for each in change.changes)
        return Effects(answers=done, cause=change.cause if has_epoch else "")

    def _upgraded(self, group: Group, change: Upgrade, now: TimePoint, done: list[Answer]) -> Effects:
        """Put an upgrade into effect. Each JoinGroup that waits is served by this kind."""
        classic = group.of(ClassicMembership)
        assert classic is not None
        refused = classic_state.shut(classic, KindChangedError(group.group_id), now, ClassicRules())
        cause = "upgraded" if change.carried else "joined"
        because = _because(change.consumer, change.changes, cause)
        for each in change.changes:
            change.consumer.apply(each)
        group.membership = change.consumer
        self._log_stored(change.consumer, because)
        return Effects(answers=[*refused.answers, *done], cause=cause)

    def _downgraded(self, group: Group, classic: ClassicMembership, now: TimePoint, done: list[Answer]) -> Effects:
        """Put a downgrade into effect: all members have to join again."""
        for member_id in group.membership.members:
            self._sessions.pop((group.group_id, member_id), None)
        for member in classic.members.values():
            member.expires_ms = now.monotonic_ms + member.session_timeout_ms
        group.membership = classic
        self._world.log.info(
            "consumer_group_downgraded",
            group=group.group_id,
            generation=classic.generation_id,
            members=len(classic.members),
        )
        again = classic_state.join_again(classic, now, ClassicRules())
        again.answers += done
        again.watch += classic.members
        return again

    def refuse(self, group: Group, change: GroupChange | Upgrade, error: KafkaError, now: TimePoint) -> Effects:
        return Effects(answers=[Answer(change.to, error)])

    def tombstones(self, group: Group) -> list[Row]:
        return rows(group.group_id, state.forget_group(_consumer(group)))

    # --- requests ---

    async def heartbeat(self, group_id: str, ask: Heartbeat, connection: int = 0) -> HeartbeatAnswer:
        """ConsumerGroupHeartbeat: answered once everything that it changes is durable. `connection`: its number; 0 if
        it does not matter.

        A heartbeat that arrives late over a connection that its member has left is refused. It could count as an
        acknowledgement of a revocation, or its answer could be the only one that names an assignment. Raises
        COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, GROUP_ID_NOT_FOUND, what `state.heartbeat` raises, and
        CloseConnectionError (`NewestConnections`).
        """
        group = self._host.groups.get(group_id)
        known = group.of(ConsumerGroup) if group is not None else None
        if group is not None and known is not None and self._is_quiet(known, ask):
            self._has_beaten_over(group_id, ask.member_id, connection)
            self._renew(group, ask.member_id)
            return HeartbeatAnswer(member_id=ask.member_id, epoch=ask.epoch)
        group = await self._enter(group_id, ask)
        with self._leaving(group):
            if (consumer := group.of(ConsumerGroup)) is None:
                return await self._upgrade(group, ask, connection)
            await self._know_topics(consumer)
            catalog = self._context.catalog
            matched = await self._context.turns.slices().finish(state.matching(consumer, ask, catalog))
            self._host.shard.check()
            self._has_beaten_over(group_id, ask.member_id, connection)
            completed = self._completed(consumer, ask)
            decision = state.heartbeat(consumer, completed, catalog, matched, self._rules, self._world.now_ms())
            await self._store(group, decision.changes, _cause(ask, decision.changes))
            consumer.seen_version = catalog.version
            if ask.epoch == LEAVE:
                self._sessions.pop((group_id, ask.member_id), None)
            else:
                self._heartbeats_over.note(group_id, ask.member_id, connection)
                self._note_disowned(consumer, ask, self._renew(group, ask.member_id))
            return decision.answer

    def _is_quiet(self, group: ConsumerGroup, ask: Heartbeat) -> bool:
        """Whether the heartbeat changes nothing, so that it need not wait for the lock."""
        is_current = group.seen_version == self._context.catalog.version and state.is_quiet(group, ask)
        return is_current and not self._is_ending(group.group_id, ask.member_id)

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

    def _note_disowned(self, group: ConsumerGroup, ask: Heartbeat, session: MemberSession) -> None:
        """Remember for the next heartbeat what `_completed` needs to know of this one."""
        current = group.current(ask.member_id)
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
        await self._host.journal.flushed()  # assignments that are under way belong to the members
        if group.membership.members:
            await self._know_all_topics()
        catalog, consumer = self._context.catalog, ConsumerGroup(group.group_id)
        matched = await self._context.turns.slices().finish(state.matching(consumer, ask, catalog))
        self._host.shard.check()
        classic = group.of(ClassicMembership)
        assert classic is not None
        assert group.changing_to == CONSUMER, group.group_id
        carried = migration.upgraded(classic, catalog)
        for change in carried:
            consumer.apply(change)
        consumer.seen_version = catalog.version
        decision = state.heartbeat(consumer, ask, catalog, matched, self._rules, self._world.now_ms())
        to: Future[None] = get_running_loop().create_future()
        self._host.carry_out(group, Effects(change=Upgrade(consumer, carried, decision.changes, to)), self)
        await to
        for member_id in consumer.members:
            self._renew(group, member_id)
        self._heartbeats_over.note(group.group_id, ask.member_id, connection)
        return decision.answer

    # --- requests of members of the classic protocol ---

    async def join(self, group_id: str, ask: Join, parting: Parting) -> Joined:
        """JoinGroup. A group without members becomes a classic one. If the connection of `parting` has closed while the
        request waited for the group, no member joins.

        Raises KindChangedError, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, INCONSISTENT_GROUP_PROTOCOL,
        MEMBER_ID_REQUIRED, and what `classic_members.join_group` raises.
        """
        async with self._locked(group_id) as (group, consumer):
            if parting.is_over:
                member_id = ask.member_id or ask.new_member_id
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} closed its connection: join again")
            if not consumer.members:
                self._host.shard.check()
                await self._store(group, state.forget_group(consumer))
                raise KindChangedError(group_id)
            await self._know_all_topics()
            self._host.shard.check()
            catalog = self._context.catalog
            heartbeat = migration.as_heartbeat(consumer, ask, catalog)
            if not ask.member_id and ask.must_return and ask.instance_id is None:
                raise MemberIdRequiredError(ask.new_member_id)
            decision = classic_members.join_group(
                consumer, heartbeat, catalog, self._rules, self._world.now_ms(), is_named=bool(ask.member_id)
            )
            await self._store(group, decision.changes, "joined")
            if group.membership is consumer:
                self._renew(group, heartbeat.member_id, has_joined=True)
            return Joined(
                member_id=heartbeat.member_id,
                generation_id=decision.answer.epoch,
                protocol_type=PROTOCOL_TYPE,
                protocol=ask.protocols[0][0],
                leader="",
            )

    async def sync(self, group: Group, ask: Sync) -> Synced:
        """SyncGroup. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL,
        REBALANCE_IN_PROGRESS."""
        consumer = _consumer(group)
        member = classic_members.classic_member(consumer, ask.member_id, ask.instance_id, ask.generation_id)
        assert member.classic is not None
        protocol = member.classic.protocol
        if ask.protocol_type not in (None, PROTOCOL_TYPE) or ask.protocol not in (None, protocol):
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"generation {ask.generation_id} runs {PROTOCOL_TYPE}/{protocol}, "
                f"not {ask.protocol_type}/{ask.protocol}",
            )
        self._check_not_ending(group.group_id, ask.member_id)
        may_sync = classic_members.may_sync(consumer, ask.member_id)
        self._renew(group, ask.member_id, has_synced=may_sync)
        if not may_sync:
            raise _rebalancing(consumer)
        return Synced(PROTOCOL_TYPE, protocol, migration.embedded_assignment(consumer, ask.member_id))

    def classic_heartbeat(self, group: Group, member_id: str, instance_id: str | None, generation_id: int) -> None:
        """Heartbeat. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS."""
        consumer = _consumer(group)
        classic_members.classic_member(consumer, member_id, instance_id, generation_id)
        self._check_not_ending(group.group_id, member_id)
        self._renew(group, member_id)
        if classic_members.must_join(consumer, member_id):
            raise _rebalancing(consumer)

    async def leave(self, group_id: str, member_id: str, instance_id: str | None) -> None:
        """LeaveGroup of one member. Raises KindChangedError, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
        COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""
        async with self._locked(group_id) as (group, consumer):
            self._host.shard.check()
            member_id = classic_members.leaver(consumer, member_id, instance_id)
            await self._store(group, state.remove(consumer, member_id), "left")
            self._sessions.pop((group_id, member_id), None)

    # --- offsets ---

    def check_commit(self, group: Group, records: Sequence[OffsetRecord], by: Committer) -> None:
        joins = self._is_joining(group.group_id, by.member_id)
        joining_for = [(record.topic, record.partition) for record in records] if joins else None
        state.check_commit(_consumer(group), by, joining_for)

    def check_commit_in_transaction(self, group: Group, by: Committer) -> None:
        state.check_commit(_consumer(group), by, in_transaction=True)

    def check_fetch(self, group: Group, member_id: str, epoch: int) -> None:
        """Raise UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""
        state.check_member_epoch(_consumer(group), member_id, None, epoch)

    def silent_ms(self, group: ConsumerGroup, member_id: str) -> int:
        """Since the last request that extended the session of a member; -1: not known."""
        session, member = self._sessions.get((group.group_id, member_id)), group.members[member_id]
        if session is None:
            return -1
        of_group = self._context.session_timeout_ms(group.group_id)
        timeout_ms = of_group if member.classic is None else member.classic.session_timeout_ms
        return max(-1, self._host.monotonic_ms() - session.expires_ms + timeout_ms)

    def _is_joining(self, group_id: str, member_id: str) -> bool:
        """Whether a member of the classic protocol is between JoinGroup and SyncGroup."""
        session = self._sessions.get((group_id, member_id))
        return session is not None and session.awaits == "sync"

    # --- time ---

    def due_ms(self, group: Group, member_id: str, now: TimePoint) -> int | None:
        session = self._sessions.get((group.group_id, member_id))
        return session.due_ms if session is not None else None

    def expire(self, group: Group, member_id: str, now: TimePoint) -> Effects:
        """Remove the member, once requests that came before are answered."""
        task = get_running_loop().create_task(self._expire(group.group_id, member_id), name="remove a member")
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return Effects()

    async def _expire(self, group_id: str, member_id: str) -> None:
        group = await self._host.locked(group_id)
        if group is None:
            return
        key = group_id, member_id
        with self._leaving(group):
            session, consumer = self._sessions.get(key), group.of(ConsumerGroup)
            if session is None or consumer is None or member_id not in consumer.members:
                self._sessions.pop(key, None)
                return
            now_ms = self._host.monotonic_ms()
            if session.due_ms > now_ms:  # a heartbeat came first
                self._host.alarm.arm(key, session.due_ms)
                return
            member = consumer.members[member_id]
            why = "session" if session.expires_ms <= now_ms else "rebalance"
            try:
                self._host.shard.check()
                await self._store(group, state.remove(consumer, member_id), f"{why}_expired")
            except KafkaError as error:
                self._world.log.warning("consumer_not_removed", group=group_id, member=member_id, error=str(error))
                self._host.alarm.arm(key, self._host.monotonic_ms() + RETRY_MS)
                return
            self._sessions.pop(key, None)
            self._world.log.info(
                "consumer_removed",
                group=group_id,
                member=member_id,
                client_id=member.client_id,
                client_host=member.client_host,
                timeout=why,
            )

    def _is_ending(self, group_id: str, member_id: str) -> bool:
        session = self._sessions.get((group_id, member_id))
        return session is not None and session.is_ending

    def _check_not_ending(self, group_id: str, member_id: str) -> None:
        """Raise UNKNOWN_MEMBER_ID: the removal of the member is being stored."""
        if self._is_ending(group_id, member_id):
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"the session of {member_id} has ended: join again")

    def _renew(
        self, group: Group, member_id: str, *, has_joined: bool = False, has_synced: bool = False
    ) -> MemberSession:
        """The session starts again; what the member has to do keeps its deadline."""
        consumer = _consumer(group)
        assert member_id in consumer.members, (group.group_id, member_id)
        now_ms = self._host.monotonic_ms()
        key = group.group_id, member_id
        session = self._sessions.get(key)
        if session is None:
            session = self._sessions[key] = MemberSession(expires_ms=0)
        member, current = consumer.members[member_id], consumer.current(member_id)
        due_by_ms = now_ms + max(member.rebalance_timeout_ms, 0)
        if member.classic is None:
            session.expires_ms = max(session.least_ms, now_ms + self._context.session_timeout_ms(group.group_id))
            session.wait_for(current.revoking if current.state is MemberState.UNREVOKED else None, due_by_ms)
        else:
            session.expires_ms = max(session.least_ms, now_ms + member.classic.session_timeout_ms)
            if has_joined:
                session.wait_for(None, 0)
                session.wait_for("sync", due_by_ms)
            elif has_synced or session.awaits != "sync":
                session.wait_for("join" if classic_members.must_join(consumer, member_id) else None, due_by_ms)
        self._host.alarm.arm(key, session.due_ms)
        return session

    def _ended(self, task: Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error  # a bug of ours: the loop's exception handler has it logged

    # --- inside ---

    async def _enter(self, group_id: str, ask: Heartbeat) -> Group:
        """The group with its lock taken. Raises GROUP_ID_NOT_FOUND."""
        while True:
            group = self._host.groups.get(group_id)
            if group is None:
                if ask.epoch != JOIN:
                    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}: join it first")
                group = self._host.groups[group_id] = Group(group_id)
            await group.lock.wait()
            if self._host.groups.get(group_id) is group:
                break
            group.lock.give()  # the group was removed in the meantime
        if (classic := group.of(ClassicMembership)) is not None:
            try:
                if ask.epoch != JOIN:
                    why = f"{group_id} is a classic group: join it first, with member epoch 0"
                    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, why)
                config = self._config
                check_upgrade(classic, config.group_consumer_migration_policy, config.group_consumer_max_size)
            except KafkaError:
                self._unlock(group)
                raise
            group.changing_to = CONSUMER  # from here on a classic member waits
        return group

    @asynccontextmanager
    async def _locked(self, group_id: str) -> AsyncIterator[tuple[Group, ConsumerGroup]]:
        """The group with its lock taken. Raises KindChangedError if there is none of this kind any more."""
        group = await self._host.locked(group_id)
        if group is None:
            raise KindChangedError(group_id)
        with self._leaving(group):
            if (consumer := group.of(ConsumerGroup)) is None:
                raise KindChangedError(group_id)
            yield group, consumer

    @contextmanager
    def _leaving(self, group: Group) -> Iterator[None]:
        try:
            yield
        finally:
            self._unlock(group)

    def _unlock(self, group: Group) -> None:
        """Give the lock to the next request. A group of which nothing is stored is of no kind in particular."""
        if group.membership.kind == CONSUMER and group.membership.is_blank:
            group.membership = ClassicMembership(group_id=group.group_id)
        self._host.unlock(group)

    async def _know_topics(self, group: ConsumerGroup) -> None:
        """Catch up with the store before a topic of the group is taken for deleted: this broker may not know it yet.

        Raises COORDINATOR_NOT_AVAILABLE.
        """
        catalog = self._context.catalog
        if group.seen_version == catalog.version or all(catalog.get(name) is not None for name in group.topics):
            return
        await self._know_all_topics()

    async def _know_all_topics(self) -> None:
        """Catch up with the store. Raises COORDINATOR_NOT_AVAILABLE."""
        try:
            await self._context.topics.catch_up()
        except KafkaError as error:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"topics are not known now: {error}") from error

    async def _store(self, group: Group, changes: tuple[Change, ...], cause: str = "") -> None:
        """Return once the changes are durable and in effect. `cause`: counted, if they give the group another epoch.

        Raises COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
        """
        if not changes:
            return
        assert group.lock.is_taken, group.group_id
        removed = [change.member_id for change in changes if isinstance(change, SetMember) and change.member is None]
        ending = [
            each for member_id in removed if (each := self._sessions.get((group.group_id, member_id))) is not None
        ]
        for session in ending:
            session.is_ending = True
        to: Future[None] = get_running_loop().create_future()
        becomes = self._downgrade(_consumer(group), changes)
        self._host.carry_out(group, Effects(change=GroupChange(changes, to, cause, becomes)))
        try:
            await to
        except KafkaError:
            for session in ending:
                session.is_ending = False
            raise

    def _downgrade(self, group: ConsumerGroup, changes: tuple[Change, ...]) -> ClassicMembership | None:
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
        classic = migration.downgraded(after, generation_id, policy, size_max)
        if classic is not None:
            classic.since_ms = self._world.now_ms()
        return classic

    def _log_stored(self, consumer: ConsumerGroup, because: RebalanceCause) -> None:
        self._world.log.info(
            "consumer_group_stored",
            group=consumer.group_id,
            epoch=consumer.epoch,
            members=len(consumer.members),
            state=consumer.state_name,
            **msgspec.structs.asdict(because),
        )


def _because(group: ConsumerGroup, changes: tuple[Change, ...], cause: str) -> RebalanceCause:
    """The cause of changes that are not in effect yet, and the member that they set or remove."""
    of_members = [each for each in changes if isinstance(each, SetMember)]
    for each in sorted(of_members, key=lambda each: each.member is None):
        if (member := each.member or group.members.get(each.member_id)) is not None:
            return RebalanceCause(cause, each.member_id, member.client_id, member.client_host)
    return RebalanceCause(cause)


def _consumer(group: Group) -> ConsumerGroup:
    """The membership of a group that `GroupHost.kind_of` has given to this kind."""
    assert isinstance(group.membership, ConsumerGroup), (group.group_id, group.membership.kind)
    return group.membership


def _cause(ask: Heartbeat, changes: tuple[Change, ...]) -> str:
    """Why a heartbeat gives its group another epoch."""
    if ask.epoch == JOIN:
        return "joined"
    if ask.epoch < JOIN:
        return "left"
    return "subscribed" if any(isinstance(change, SetMember) for change in changes) else "topics_changed"


def _rebalancing(group: ConsumerGroup) -> KafkaError:
    return KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, f"{group.group_id} is rebalancing: join again")
