"""PURE: Members of the classic protocol in a group of the consumer protocol (KIP-848, section "Migration").

JoinGroup is a step towards the target assignment, as a heartbeat of the consumer protocol is. Its generation is the
member epoch. SyncGroup returns the partitions that the member has. Heartbeat tells it to join again when the group
epoch has grown, when it has to revoke partitions, and when all partitions that it waits for are free.
"""

from __future__ import annotations

from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.groups.consumer.model import LEFT_STATIC, NOTHING, ConsumerGroup, Member, MemberState
from semel_broker.groups.consumer.requests import Catalog, ConsumerRules, Heartbeat, HeartbeatAnswer, HeartbeatDecision
from semel_broker.groups.consumer.state import NO_MATCHES, Draft, assign, identified, join, refresh, start_again, step


def join_group(
    group: ConsumerGroup, ask: Heartbeat, catalog: Catalog, rules: ConsumerRules, wall_ms: int, *, is_named: bool
) -> HeartbeatDecision:
    """JoinGroup. `is_named`: the client knows its member id; otherwise `ask` has a new one.

    Raises FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID, GROUP_MAX_SIZE_REACHED.
    """
    if is_named and ask.instance_id is not None:
        identified(group, ask.member_id, ask.instance_id)
    draft = Draft(group)
    is_known = ask.member_id in group.members and group.current(ask.member_id).epoch != LEFT_STATIC
    held = join(draft, ask, rules)
    refresh(draft, catalog, NO_MATCHES, wall_ms)
    if draft.group.epoch > draft.group.assignment_epoch:
        assign(draft, rules)
    if not is_known:
        start_again(draft, ask.member_id, held)
    current = step(draft, ask)
    if current.state is MemberState.UNREVOKED and not (ask.owned or NOTHING) & current.revoking:
        current = step(draft, ask)  # it has revoked already: eager members revoke everything before they join
    return draft.decision(HeartbeatAnswer(member_id=ask.member_id, epoch=current.epoch, assigned=current.assigned))


def classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int) -> Member:
    """The member of the classic protocol with this identity, at this generation. Raises UNKNOWN_MEMBER_ID,
    FENCED_INSTANCE_ID, ILLEGAL_GENERATION."""
    member = identified(group, member_id, instance_id)
    if member.classic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"{member_id} uses the consumer protocol in {group.group_id}: set group.protocol=consumer",
        )
    epoch = group.current(member_id).epoch
    if generation_id != epoch:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION, f"{member_id} is at generation {epoch}, not {generation_id}: join again"
        )
    return member


def must_join(group: ConsumerGroup, member_id: str) -> bool:
    """Whether a member of the classic protocol has to join again."""
    current = group.current(member_id)
    if current.epoch < group.epoch or current.state is MemberState.UNREVOKED:
        return True
    if current.state is MemberState.STABLE:
        return False
    wanted = group.targets.get(member_id, NOTHING) - current.assigned
    return all(group.owners.get(place, member_id) == member_id for place in wanted)


def may_sync(group: ConsumerGroup, member_id: str) -> bool:
    """Whether SyncGroup may return what the member has. Partitions that it has to revoke are not among that, so it
    needs the answer to revoke them."""
    current = group.current(member_id)
    return current.epoch >= group.epoch or current.state is MemberState.UNREVOKED


def leaver(group: ConsumerGroup, member_id: str, instance_id: str | None) -> str:
    """The member that a LeaveGroup names, by its id or (KIP-345) by its instance id alone. Raises UNKNOWN_MEMBER_ID,
    FENCED_INSTANCE_ID."""
    if not member_id and instance_id is not None:
        member_id = group.instances.get(instance_id, "")
    return identified(group, member_id, instance_id).member_id
