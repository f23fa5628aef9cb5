"""Safeguards of groups of the consumer protocol (KIP-848): epochs, revocations, sessions and records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from semel_broker.groups.consumer import groups as consumer_groups
from semel_broker.groups.consumer import state
from semel_broker.groups.consumer.groups import ConsumerGroups, MemberSession
from semel_broker.groups.consumer.model import (
    NOTHING,
    Change,
    ConsumerGroup,
    Current,
    MemberState,
    SetCurrent,
    SetEpoch,
    TopicIdPartition,
    TopicIdPartitions,
)
from semel_broker.groups.consumer.reconcile import reconcile
from semel_broker.groups.consumer.records import rows
from semel_broker.groups.consumer.requests import ConsumerRules, Heartbeat
from semel_broker.groups.consumer.state import Draft
from semel_broker.groups.group import Group
from semel_broker.groups.requests import Committer
from semel_broker.groups.shard import GroupShard
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.internal_topics import Row

from sim.ablations.ablation import Seam, broker_ends, faults, safeguard
from sim.ablations.durability import POWER_LOSS_ON_SLOW_DISK
from sim.ablations.occasions import (
    deposed_unawares,
    has_both_protocols,
    late_commits,
    late_heartbeats,
    lost_heartbeat_answers,
    removals_stored_late,
)
from sim.workloads import CONSUMER_CHURN, CONSUMER_PIPELINE, CONSUMERS

NEVER_MS = 1 << 62


# --- one owner --------------------------------------------------------------------------------------------------------


@safeguard(
    "partitions wait for their owner",
    "a partition is given to a member only after its former owner has revoked it (KIP-848)",
    CONSUMERS,
)
def partitions_wait(seam: Seam) -> None:
    def hasty(
        member_id: str,
        current: Current,
        target: TopicIdPartitions,
        assignment_epoch: int,
        owners: Mapping[TopicIdPartition, str],
        owned: TopicIdPartitions | None,
    ) -> Current:
        return reconcile(member_id, current, target, assignment_epoch, {}, owned)

    seam.replace(state, "reconcile", hasty)


@safeguard(
    "partitions wait for their owner of either protocol",
    "the same while some members of the group are classic ones",
    CONSUMER_CHURN,
    shows=has_both_protocols,
)
def partitions_wait_in_both(seam: Seam) -> None:
    partitions_wait(seam)


@safeguard(
    "revocations are acknowledged",
    "a partition counts as revoked when its owner says that it no longer owns it",
    CONSUMERS,
)
def revocations_acknowledged(seam: Seam) -> None:
    def credulous(
        member_id: str,
        current: Current,
        target: TopicIdPartitions,
        assignment_epoch: int,
        owners: Mapping[TopicIdPartition, str],
        owned: TopicIdPartitions | None,
    ) -> Current:
        return reconcile(member_id, current, target, assignment_epoch, owners, NOTHING)

    seam.replace(state, "reconcile", credulous)


@safeguard(
    "what was never heard of is acknowledged",
    "a member need not acknowledge the revocation of partitions whose assignment it never heard of",
    CONSUMERS,
    occasion=lost_heartbeat_answers,
)
def revocations_of_the_unheard(seam: Seam) -> None:
    seam.replace(ConsumerGroups, "_completed", lambda self, group, ask: ask)


@safeguard(
    "an epoch for each revocation",
    "a member that has more to revoke commits no offsets of what it has revoked",
    CONSUMER_PIPELINE,
)
def epoch_of_revocation(seam: Seam) -> None:
    def patient(
        member_id: str,
        current: Current,
        target: TopicIdPartitions,
        assignment_epoch: int,
        owners: Mapping[TopicIdPartition, str],
        owned: TopicIdPartitions | None,
    ) -> Current:
        found = reconcile(member_id, current, target, assignment_epoch, owners, owned)
        is_second = current.state is found.state is MemberState.UNREVOKED
        return msgspec.structs.replace(found, epoch=current.epoch) if is_second else found

    seam.replace(state, "reconcile", patient)


@safeguard(
    "instance ids in use",
    "a static member that has not left is not replaced before its session ends",
    CONSUMERS,
    shows=faults("kill client", "pause client"),
)
def instance_ids_in_use(seam: Seam) -> None:
    join = state.join

    def replace_any(draft: Draft, ask: Heartbeat, rules: ConsumerRules) -> TopicIdPartitions:
        owner_id = draft.group.instances.get(ask.instance_id or "")
        try:
            return join(draft, ask, rules)
        except KafkaError as error:
            if error.code is not ErrorCode.UNRELEASED_INSTANCE_ID or owner_id is None:
                raise
            held = draft.group.current(owner_id).assigned
            state._replace(draft, owner_id, ask)
            return held

    seam.replace(state, "join", replace_any)


@safeguard(
    "connections of heartbeats with an epoch",
    "a heartbeat that arrives late over an abandoned connection acknowledges nothing and takes no assignment",
    CONSUMERS,
    occasion=late_heartbeats,
)
def connections_of_heartbeats(seam: Seam) -> None:
    seam.replace(ConsumerGroups, "_has_beaten_over", lambda *_: None)


@safeguard(
    "a removal under way ends the session",
    "no answer extends the session of a member while its removal is being stored",
    CONSUMERS,
    brokers=3,
    occasion=removals_stored_late,
)
def ending_sessions(seam: Seam) -> None:
    seam.replace(ConsumerGroups, "_is_ending", lambda *_: False)


@safeguard(
    "sessions outlast a former coordinator",
    "after a load no member is removed whose heartbeats a former coordinator may still have answered",
    CONSUMERS,
    brokers=3,
    occasion=deposed_unawares,
)
def sessions_outlast(seam: Seam) -> None:
    resume = ConsumerGroups.resume
    seam.replace(ConsumerGroups, "resume", lambda self, group, grace_ms: resume(self, group, 0))


# --- commits ----------------------------------------------------------------------------------------------------------


def _forgiving(seam: Seam, forgiven: ErrorCode) -> None:
    check = state.check_member_epoch

    def forgiving(group: ConsumerGroup, member_id: str, instance_id: str | None, epoch: int) -> None:
        try:
            check(group, member_id, instance_id, epoch)
        except KafkaError as error:
            if error.code is not forgiven:
                raise

    seam.replace(state, "check_member_epoch", forgiving)


@safeguard("member epoch of OffsetCommit", "a commit of an earlier epoch is refused", CONSUMERS)
def epoch_of_commit(seam: Seam) -> None:
    _forgiving(seam, ErrorCode.STALE_MEMBER_EPOCH)


@safeguard("membership of commits with an epoch", "a member that was removed cannot commit offsets", CONSUMERS)
def membership_of_epoch_commit(seam: Seam) -> None:
    _forgiving(seam, ErrorCode.UNKNOWN_MEMBER_ID)


def _forgiving_in_transactions(seam: Seam, forgiven: ErrorCode) -> None:
    check = state.check_commit

    def forgiving(
        group: ConsumerGroup,
        by: Committer,
        joining_for: Iterable[tuple[str, int]] | None = None,
        *,
        in_transaction: bool = False,
    ) -> None:
        try:
            check(group, by, joining_for, in_transaction=in_transaction)
        except KafkaError as error:
            if error.code is not forgiven or not in_transaction:
                raise

    seam.replace(state, "check_commit", forgiving)


@safeguard(
    "member epoch of TxnOffsetCommit",
    "a transaction commits no offsets of an earlier epoch of a member",
    CONSUMER_PIPELINE,
)
def epoch_of_transactional_commit(seam: Seam) -> None:
    _forgiving_in_transactions(seam, ErrorCode.STALE_MEMBER_EPOCH)


@safeguard(
    "membership of TxnOffsetCommit with an epoch",
    "a transaction commits no offsets of a member that was removed",
    CONSUMER_PIPELINE,
)
def membership_of_transactional_commit(seam: Seam) -> None:
    _forgiving_in_transactions(seam, ErrorCode.UNKNOWN_MEMBER_ID)


@safeguard(
    "connections of commits with an epoch",
    "a commit that arrives late over an abandoned connection does not overwrite a newer one",
    CONSUMERS,
    occasion=late_commits,
)
def connections_of_epoch_commits(seam: Seam) -> None:
    seam.replace(GroupShard, "_has_committed_over", lambda *_: None)


# --- progress ---------------------------------------------------------------------------------------------------------


@safeguard("sessions of the consumer protocol", "the partitions of a dead member go to others", CONSUMERS)
def epoch_sessions(seam: Seam) -> None:
    seam.replace(MemberSession, "due_ms", property(lambda self: NEVER_MS if self.due_by_ms is None else self.due_by_ms))


@safeguard(
    "sessions start again after a load",
    "a member that dies while its coordinator moves is removed by the next coordinator",
    CONSUMERS,
    shows=broker_ends,
)
def sessions_after_load(seam: Seam) -> None:
    seam.replace(ConsumerGroups, "resume", lambda self, group, grace_ms: None)


@safeguard("partitions of removed members are free", "no partition waits for a member that is gone", CONSUMERS)
def removed_members_free(seam: Seam) -> None:
    set_current = ConsumerGroup._set_current

    def clinging(self: ConsumerGroup, member_id: str, current: Current | None) -> None:
        owners = dict(self.owners)
        set_current(self, member_id, current)
        if current is None:
            self.owners = owners

    seam.replace(ConsumerGroup, "_set_current", clinging)


@safeguard("a change bumps the group epoch", "each change of members leads to a new target assignment", CONSUMERS)
def change_bumps(seam: Seam) -> None:
    bump = Draft.bump

    def once(self: Draft) -> None:
        if not self.group.epoch:
            bump(self)

    seam.replace(Draft, "bump", once)


# --- records ----------------------------------------------------------------------------------------------------------


def _unwritten(seam: Seam, kind: type) -> None:
    def without(group_id: str, changes: Sequence[Change]) -> list[Row]:
        return rows(group_id, [change for change in changes if not isinstance(change, kind)])

    seam.replace(consumer_groups, "rows", without)


@safeguard("current assignments are written", "the next coordinator knows what each member has", CONSUMERS)
def currents_written(seam: Seam) -> None:
    _unwritten(seam, SetCurrent)


@safeguard("group epochs are written", "the next coordinator does not use an epoch again", CONSUMERS)
def epochs_written(seam: Seam) -> None:
    _unwritten(seam, SetEpoch)


@safeguard(
    "assignments are durable before they are told",
    "a member is told nothing that a power loss takes back",
    CONSUMERS,
    shows=POWER_LOSS_ON_SLOW_DISK,
)
def assignments_durable(seam: Seam) -> None:
    async def hasty(self: ConsumerGroups, group: Group, changes: tuple[Change, ...], cause: str = "") -> None:
        consumer = group.of(ConsumerGroup)
        if changes and consumer is not None:
            self._host.journal.write(rows(group.group_id, changes), lambda: None, lambda error: None)
            for change in changes:
                consumer.apply(change)

    seam.replace(ConsumerGroups, "_store", hasty)
