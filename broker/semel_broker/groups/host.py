"""The host of the groups of one shard: their table, journal, locks and timers. It carries out the effects of decisions.

The kinds of groups decide (`classic`, `consumer`), and no kind writes a record, resolves a future or sets a timer
itself. So the order of persist, apply and answer stands in one place, `GroupHost.carry_out`.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.coordination.journal import Journal
from semel_broker.coordination.shards import Shard
from semel_broker.counters.coordinators import count
from semel_broker.groups.context import GroupContext
from semel_broker.groups.deadlines import GROUP, Alarm, Key
from semel_broker.groups.effects import Effects
from semel_broker.groups.group import Group
from semel_broker.groups.kind import Kind
from semel_broker.groups.offsets.store import OffsetStore
from semel_broker.groups.requests import TimePoint

CHANGE_CHECK_MS = 100
"""While a group changes its kind, its deadlines are checked again after this."""


class GroupHost:
    """The groups of `shard`, in the table `groups`. `kinds`: by name, each is added once the host is there."""

    def __init__(self, context: GroupContext, shard: Shard) -> None:
        self.context = context
        self.shard = shard
        self.groups: dict[str, Group] = {}
        self.kinds: dict[str, Kind] = {}
        self.journal = Journal(context.world, shard.partition, passed=ErrorCode.INVALID_PRODUCER_EPOCH)
        self.alarm = Alarm(self)
        self.offset_store = OffsetStore(self)

    # --- the table ---

    def kind_of(self, group: Group) -> Kind:
        """The kind that decides for this group."""
        return self.kinds[group.membership.kind]

    def group_or_new(self, group_id: str) -> Group:
        """The group, which is added to the table if it is not there."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id)
        return group

    def let_go(self, group: Group) -> None:
        """Remove the group if there is nothing to keep: neither a generation nor offsets, also of open transactions."""
        if group.is_disposable and not self.offset_store.has_unstable(group.group_id):
            self.remove(group)

    def remove(self, group: Group) -> None:
        """Remove the group from the table."""
        assert group.membership.is_empty, group.group_id
        group.membership.end(self.context.world.now_ms())
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]

    # --- locks ---

    async def locked(self, group_id: str) -> Group | None:
        """The group with its lock taken; None: there is none."""
        while (group := self.groups.get(group_id)) is not None:
            await group.lock.wait()
            if self.groups.get(group_id) is group:
                return group
            group.lock.give()  # the group was removed in the meantime
        return None

    @contextmanager
    def leaving(self, group: Group) -> Iterator[None]:
        """At the end give the lock to the next request. A group of which nothing is stored is removed then."""
        try:
            yield
        finally:
            self.unlock(group)

    def unlock(self, group: Group) -> None:
        """Give the lock to the next request."""
        assert group.lock.is_taken, group.group_id
        group.changing_to = ""
        group.lock.give()
        calls, group.after_change = group.after_change, []
        for call in calls:
            call()
        if self.groups.get(group.group_id) is group:
            self.let_go(group)

    # --- effects ---

    def carry_out(self, group: Group, effects: Effects, kind: Kind | None = None) -> None:
        """Carry out the effects of a decision, in the order that `Effects` says. `kind`: the one that has decided, if
        the group is to become one of that kind."""
        assert kind is None or kind.name == group.changing_to, (group.group_id, group.changing_to)
        if effects.cause:
            count(self.context.counters.rebalances, effects.cause)
        for answer in effects.answers:
            to = cast("Future[object]", answer.to)
            if to.done():
                continue  # the request was cancelled
            if isinstance(answer.result, KafkaError):
                to.set_exception(answer.result)
            else:
                to.set_result(answer.result)
        if effects.change is not None:
            self._persist(group, effects.change, kind or self.kind_of(group))
        self.let_go(group)
        self.watch(group, effects.watch)

    def _persist(self, group: Group, change: Any, kind: Kind) -> None:
        """Persist a change of the group. Then apply it, or refuse it: either has effects, which are carried out."""

        def applied() -> None:
            self.carry_out(group, kind.apply(group, change, self.now()))

        def refused(error: Exception) -> None:
            seen = error if isinstance(error, KafkaError) else KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
            effects = kind.refuse(group, change, seen, self.now())
            # Of a shard that is gone the requests are answered, and nothing is decided any more.
            self.carry_out(group, Effects(answers=effects.answers) if self.shard.is_gone else effects)

        records = kind.records(group, change, self.now())
        self.journal.write(records.rows, applied, refused, in_one_batch=records.in_one_batch, frees=records.frees)

    # --- time ---

    def watch(self, group: Group, member_ids: Iterable[str]) -> None:
        """Set the timers of these members, and that of the group."""
        kind, now = self.kind_of(group), self.now()
        for member_id in (*member_ids, GROUP):
            if (when_ms := kind.due_ms(group, member_id, now)) is not None:
                self.alarm.arm((group.group_id, member_id), when_ms)

    def check_deadline(self, key: Key, now_ms: int) -> int | None:
        """Check whether a deadline of a member or of a group has passed; when to check again, None: never."""
        group_id, member_id = key
        group = self.groups.get(group_id)
        if group is None:
            return None
        if group.changing_to:
            return now_ms + CHANGE_CHECK_MS
        kind, now = self.kind_of(group), self.now()
        when_ms = kind.due_ms(group, member_id, now)
        if when_ms is None or when_ms > now_ms:
            return when_ms
        self.carry_out(group, kind.expire(group, member_id, now))
        return None

    def now(self) -> TimePoint:
        return TimePoint(self.monotonic_ms(), self.context.world.now_ms())

    def monotonic_ms(self) -> int:
        return int(self.context.world.monotonic() * 1000)
