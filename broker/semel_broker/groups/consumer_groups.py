"""The groups of the consumer protocol in one shard: decide, persist, apply, answer; sessions and revocations in time.

One request of a group runs after the other: a decision is made once the records of the one before are durable and in
effect. A heartbeat that changes nothing is answered at once. A member whose session ends, or that revokes too slowly,
is removed in a task of its own.
"""

from __future__ import annotations

from asyncio import Task, get_running_loop, wait
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.internal_topics import Row

from semel_broker.config.loading import BrokerConfig
from semel_broker.coordination.journal import Journal
from semel_broker.groups.consumer import state
from semel_broker.groups.consumer.model import Change, ConsumerGroup, MemberState, Places, SetCurrent
from semel_broker.groups.consumer.records import rows
from semel_broker.groups.consumer.requests import JOIN, LEAVE, Catalog, ConsumerRules, Heartbeat, Place
from semel_broker.groups.deadlines import Key
from semel_broker.groups.group import Group, GroupState, newest_connection
from semel_broker.groups.records import group_tombstone
from semel_broker.world import World

RETRY_MS = 1_000
"""Between attempts to remove a member while records cannot be stored."""


class Session(msgspec.Struct, kw_only=True):
    """What the coordinator knows of a member without records. Times on the monotonic clock.

    `revoke_by_ms`: when the member has to have revoked `revoking`; None: nothing to revoke. `commits_over`: as in
    `groups.group.Member`. `beats_over`: the same for heartbeats.
    """

    expires_ms: int
    revoke_by_ms: int | None = None
    revoking: Places | None = None
    commits_over: int = 0
    beats_over: int = 0

    @property
    def due_ms(self) -> int:
        return self.expires_ms if self.revoke_by_ms is None else min(self.expires_ms, self.revoke_by_ms)


class ConsumerGroups:
    """`groups` is the shard's table. `remove(group)` takes a group out of it. `arm(key, when_ms)` has `check_deadline`
    called. `check` raises NOT_COORDINATOR. `catch_up`: as `Topics.catch_up`."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        journal: Journal,
        groups: dict[str, Group],
        *,
        remove: Callable[[Group], None],
        arm: Callable[[Key, int], None],
        check: Callable[[], None],
        catalog: Callable[[], Catalog],
        catch_up: Callable[[], Awaitable[None]],
    ) -> None:
        self._world, self._config, self._journal, self._groups = world, config, journal, groups
        self._remove, self._arm, self._check = remove, arm, check
        self._catalog, self._catch_up = catalog, catch_up
        self._sessions: dict[Key, Session] = {}
        self._tasks: dict[Task[None], None] = {}
        self._rules = ConsumerRules(
            size_max=config.group_consumer_max_size, assignors=tuple(config.group_consumer_assignors)
        )

    # --- life ---

    def resume(self) -> None:
        """After a load: each member continues with a full session timeout, and a full rebalance timeout."""
        for group in self._groups.values():
            for member_id in group.consumer.members if group.consumer is not None else ():
                self._renew(group.group_id, member_id)

    async def finish(self) -> None:
        """Return once all tasks have ended."""
        while self._tasks:
            await wait(list(self._tasks))

    # --- requests ---

    async def heartbeat(self, group_id: str, ask: Heartbeat, connection: int = 0) -> Place:
        """ConsumerGroupHeartbeat: answered once everything that it changes is durable. `connection`: its number; 0 if
        it does not matter.

        A heartbeat that arrives late over a connection that its member has left is refused. It could count as an
        acknowledgement of a revocation, or its answer could be the only one that names an assignment. Raises
        COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, GROUP_ID_NOT_FOUND, what `state.heartbeat` raises, and
        CloseConnectionError (`newest_connection`).
        """
        group = self._groups.get(group_id)
        known = group.consumer if group is not None else None
        if known is not None and known.seen_version == self._catalog().version and state.is_quiet(known, ask):
            self._has_beaten_over(group_id, ask.member_id, connection)
            self._renew(group_id, ask.member_id)
            return Place(member_id=ask.member_id, epoch=ask.epoch)
        group = await self._enter(group_id, ask)
        with self._leaving(group):
            assert group.consumer is not None
            await self._know_topics(group.consumer)
            self._check()
            self._has_beaten_over(group_id, ask.member_id, connection)
            catalog = self._catalog()
            decision = state.heartbeat(group.consumer, ask, catalog, self._rules, self._world.now_ms())
            await self._store(group, decision.changes)
            group.consumer.seen_version = catalog.version
            if ask.epoch == LEAVE:
                self._sessions.pop((group_id, ask.member_id), None)
            else:
                session = self._renew(group_id, ask.member_id)
                session.beats_over = max(session.beats_over, connection)
            return decision.answer

    def _has_beaten_over(self, group_id: str, member_id: str, connection: int) -> None:
        """Raises CloseConnectionError: the member has a newer connection."""
        session = self._sessions.get((group_id, member_id))
        if session is not None:
            session.beats_over = newest_connection(member_id, session.beats_over, connection)

    def has_committed_over(self, group_id: str, member_id: str, connection: int) -> None:
        """As `groups.group.Member.has_committed_over`."""
        session = self._sessions.get((group_id, member_id))
        if session is not None:
            session.commits_over = newest_connection(member_id, session.commits_over, connection)

    async def make_way(self, group_id: str) -> None:
        """A classic member joins: forget a group of the consumer protocol that has no members.

        Raises INCONSISTENT_GROUP_PROTOCOL if it has members, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
        """
        group = await self._locked(group_id)
        if group is None:
            return
        with self._leaving(group):
            if group.consumer is None or group.consumer.is_blank:
                return
            if group.consumer.members:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                    f"the members of {group_id} use the consumer protocol: set group.protocol=consumer, or stop them",
                )
            self._check()
            await self._store(group, state.forget_group(group.consumer))

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
            why = "session" if session.expires_ms <= now_ms else "revocation"
            try:
                self._check()
                await self._store(group, state.remove(group.consumer, member_id))
            except KafkaError as error:
                self._world.log.warning("consumer_not_removed", group=group_id, member=member_id, error=str(error))
                self._arm(key, self._monotonic_ms() + RETRY_MS)
                return
            self._sessions.pop(key, None)
            self._world.log.info("consumer_removed", group=group_id, member=member_id, timeout=why)

    def _renew(self, group_id: str, member_id: str) -> Session:
        """The session starts again; a revocation keeps its deadline."""
        group = self._groups[group_id].consumer
        assert group is not None
        now_ms = self._monotonic_ms()
        key = group_id, member_id
        session = self._sessions.get(key)
        if session is None:
            session = self._sessions[key] = Session(expires_ms=0)
        session.expires_ms = now_ms + self._config.group_consumer_session_timeout_ms
        current = group.current(member_id)
        if current.state is not MemberState.UNREVOKED:
            session.revoke_by_ms = session.revoking = None
        elif session.revoking != current.revoking:
            session.revoking = current.revoking
            session.revoke_by_ms = now_ms + max(group.members[member_id].rebalance_timeout_ms, 0)
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
            if ask.epoch != JOIN or group.state is not GroupState.EMPTY or group.pending:
                self._let_go(group)
                raise KafkaError(
                    ErrorCode.GROUP_ID_NOT_FOUND,
                    f"{group_id} is no group of the consumer protocol: set group.protocol=classic, or stop its members",
                )
            group.consumer = ConsumerGroup(group_id)  # from here on a classic member waits
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
        if group.consumer is not None and group.consumer.is_blank:
            group.consumer = None
        group.own_lock.give()
        if group.is_disposable and self._groups.get(group.group_id) is group:
            self._remove(group)

    async def _know_topics(self, group: ConsumerGroup) -> None:
        """Catch up with the store before a topic of the group is taken for deleted: this broker may not know it yet.

        Raises COORDINATOR_NOT_AVAILABLE.
        """
        catalog = self._catalog()
        if group.seen_version == catalog.version or all(catalog.get(name) is not None for name in group.topics):
            return
        try:
            await self._catch_up()
        except KafkaError as error:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"topics are not known now: {error}") from error

    async def _store(self, group: Group, changes: tuple[Change, ...]) -> None:
        """Return once the changes are durable and in effect. Raises COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""
        if not changes:
            return
        assert group.consumer is not None
        consumer = group.consumer
        was_classic = bool(group.generation_id or group.protocol_type)
        former: list[Row] = [group_tombstone(group.group_id)] if was_classic else []

        def apply() -> None:
            group.generation_id, group.protocol_type = 0, ""
            for change in changes:
                consumer.apply(change)

        await self._journal.store([*former, *rows(group.group_id, changes)], apply)
        if any(not isinstance(change, SetCurrent) for change in changes):
            self._world.log.info(
                "consumer_group_stored",
                group=group.group_id,
                epoch=consumer.epoch,
                members=len(consumer.members),
                state=consumer.state,
            )

    def _monotonic_ms(self) -> int:
        return int(self._world.monotonic() * 1000)
