"""The groups of the classic protocol in one shard. JoinGroup and SyncGroup wait; `state` decides.

The future of a request goes into the state machine, which returns it with the answer: at once, or after other members
have joined, or after a timeout.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Sequence
from functools import partial

import msgspec
from semel_protocol.errors import KafkaError
from semel_storage.internal_topics import Row

from semel_broker.coordination.shards import TRANSIENT
from semel_broker.groups.classic import state
from semel_broker.groups.classic.group import CLASSIC, ClassicMembership
from semel_broker.groups.classic.records import group_row, group_tombstone
from semel_broker.groups.classic.state import Change, ClassicRules
from semel_broker.groups.deadlines import GROUP
from semel_broker.groups.effects import ChangeRecords, Effects
from semel_broker.groups.group import Group
from semel_broker.groups.host import GroupHost
from semel_broker.groups.offsets.model import OffsetRecord
from semel_broker.groups.requests import Committer, Join, Joined, MemberIdRequiredError, Sync, Synced, TimePoint
from semel_broker.scheduling.parting import Parting


class ClassicGroups:
    """The kind of groups of the classic protocol; see `Kind`."""

    name = CLASSIC

    def __init__(self, host: GroupHost) -> None:
        self._host = host
        config = host.context.config
        self._rules = ClassicRules(
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms, size_max=config.group_max_size
        )

    # --- life ---

    def resume(self, group: Group, grace_ms: int) -> None:
        """The grace is in the deadlines that the replay has set. Members that come from the consumer protocol have to
        join again."""
        members = _classic(group).members
        self._host.watch(group, members)
        if any(member.carried_epoch is not None for member in members.values()):
            self._host.carry_out(group, state.join_again(_classic(group), self._host.now(), self._rules))

    def close(self, group: Group, error: KafkaError) -> Effects:
        return state.shut(_classic(group), error, self._host.now(), self._rules)

    async def finish(self) -> None:
        """There are no tasks."""

    # --- effects ---

    def records(self, group: Group, change: Change, now: TimePoint) -> ChangeRecords:
        return ChangeRecords([group_row(_classic(group), change, now)], frees=isinstance(change, state.Empty))

    def apply(self, group: Group, change: Change, now: TimePoint) -> Effects:
        classic = group.of(ClassicMembership)
        if classic is None:  # a member has withdrawn while the group changed its kind
            return Effects()
        transition = state.apply(classic, change, now, self._rules)
        self._host.context.world.log.info(
            "group_generation_stored",
            group=group.group_id,
            generation=change.generation_id,
            members=len(classic.members),
            state=classic.state.value,
            **msgspec.structs.asdict(classic.because),
        )
        return transition

    def refuse(self, group: Group, change: Change, error: KafkaError, now: TimePoint) -> Effects:
        if not self._host.shard.is_gone:
            is_passing = error.code in TRANSIENT
            tell = self._host.context.world.log.warning if is_passing else self._host.context.world.log.error
            tell("group_not_stored", group=group.group_id, error=str(error))
        classic = group.of(ClassicMembership)
        return Effects() if classic is None else state.refuse(classic, change, error, now, self._rules)

    def tombstones(self, group: Group) -> list[Row]:
        return [group_tombstone(group.group_id)]

    # --- time ---

    def due_ms(self, group: Group, member_id: str, now: TimePoint) -> int | None:
        classic = _classic(group)
        return classic.deadline_ms if member_id == GROUP else state.expiry_of(classic, member_id, now)

    def expire(self, group: Group, member_id: str, now: TimePoint) -> Effects:
        if member_id == GROUP:
            return state.deadline(_classic(group), now, self._rules)
        if (member := _classic(group).members.get(member_id)) is not None:
            self._host.context.world.log.info(
                "group_member_expired",
                group=group.group_id,
                member=member_id,
                client_id=member.client_id,
                client_host=member.client_host,
                session_timeout_ms=member.session_timeout_ms,
            )
        return state.expire(_classic(group), member_id, now, self._rules)

    # --- membership ---

    async def join(self, group_id: str, ask: Join, parting: Parting) -> Joined:
        """JoinGroup. If the connection of `parting` closes meanwhile, the group does not wait for a new member."""
        to = self._join(group_id, ask)
        if not to.done():
            parting.note(to, partial(self._withdraw, group_id, ask.member_id or ask.new_member_id, to))
        try:
            return await to
        except MemberIdRequiredError as error:
            parting.note(("id", group_id), partial(self._withdraw, group_id, error.member_id, None))
            raise
        finally:
            parting.forget(to)

    def _join(self, group_id: str, ask: Join) -> Future[Joined]:
        host = self._host
        group = host.groups.get(group_id) or Group(group_id)
        to: Future[Joined] = get_running_loop().create_future()
        transition = state.join(_classic(group), ask, to, host.now(), self._rules)
        host.groups[group_id] = group
        host.carry_out(group, transition)
        return to

    def _withdraw(self, group_id: str, member_id: str, to: Future[Joined] | None) -> None:
        """The connection is lost over which a member was given this id (`to` None), or waits in JoinGroup."""
        group = self._host.groups.get(group_id)
        if group is not None and group.changing_to:  # a record of this kind must not follow those of the change
            group.after_change.append(partial(self._withdraw, group_id, member_id, to))
            return
        classic = group.of(ClassicMembership) if group is not None else None
        if group is not None and classic is not None and not self._host.shard.is_gone:
            self._host.carry_out(group, state.withdraw(classic, member_id, to, self._host.now(), self._rules))

    async def sync(self, group: Group, ask: Sync) -> Synced:
        to: Future[Synced] = get_running_loop().create_future()
        self._host.carry_out(group, state.sync(_classic(group), ask, to, self._host.now(), self._rules))
        return await to

    def classic_heartbeat(self, group: Group, member_id: str, instance_id: str | None, generation_id: int) -> None:
        state.heartbeat(_classic(group), member_id, instance_id, generation_id, self._host.now())

    async def leave(self, group_id: str, member_id: str, instance_id: str | None) -> None:
        group, now = self._host.groups[group_id], self._host.now()
        self._host.carry_out(group, state.leave(_classic(group), member_id, instance_id, now, self._rules))

    # --- offsets ---

    def check_commit(self, group: Group, records: Sequence[OffsetRecord], by: Committer) -> None:
        state.check_commit(_classic(group), by, self._host.now())

    def check_commit_in_transaction(self, group: Group, by: Committer) -> None:
        state.check_commit_in_transaction(_classic(group), by)

    def check_fetch(self, group: Group, member_id: str, epoch: int) -> None:
        """Members of the classic protocol read offsets without a check."""


def _classic(group: Group) -> ClassicMembership:
    """The membership of a group that `GroupHost.kind_of` has given to this kind."""
    assert isinstance(group.membership, ClassicMembership), (group.group_id, group.membership.kind)
    return group.membership
