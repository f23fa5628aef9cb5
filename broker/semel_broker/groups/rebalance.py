"""The rebalance: from the first who stirs to the next generation. PURE; `joining.py` and `state.py` call it.

Stable -> PreparingRebalance: until all members are here or the rebalance timeout ends -> generation + 1
       -> CompletingRebalance: until the leader's assignment is durable -> Stable
"""

from __future__ import annotations

from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.groups.group import Group, Member
from semel_broker.groups.requests import Joined, JoinedMember, Synced
from semel_broker.groups.turn import COMPLETING, EMPTY, PREPARING, Empty, Turn, rebalancing


def rebalance(turn: Turn, *, wait_for_more: bool = False) -> None:
    """Begin a rebalance unless one is on, and end it if all are here. `wait_for_more`: a group that was empty gives
    others the time to come (KIP-134)."""
    group = turn.group
    if group.state is not PREPARING:
        for member in group.waiting():  # for an assignment that will not come
            release_sync(turn, member, rebalancing(group))
        group.enter(PREPARING, turn.now.wall_ms)
        group.deadline_ms = turn.now.monotonic_ms + group.rebalance_timeout_ms
        group.initial_limit_ms = group.deadline_ms if wait_for_more else None
    complete_if_ready(turn)


def complete_if_ready(turn: Turn) -> None:
    group = turn.group
    if group.state is PREPARING and (not group.members or (group.everybody_joined and group.initial_limit_ms is None)):
        complete(turn)


def complete(turn: Turn) -> None:
    """The next generation, of those who are here. Static members keep their seats until their sessions end."""
    group, now = turn.group, turn.now
    missing = [member for member in group.members.values() if member.joining is None and member.instance_id is None]
    for member in missing:
        group.remove(member)
    if group.members and not group.joining_count:
        group.initial_limit_ms = None
        group.deadline_ms = now.monotonic_ms + group.rebalance_timeout_ms
        return
    group.generation_id += 1
    if not group.members:
        group.protocol = group.leader = None
        group.enter(EMPTY, now.wall_ms)
        assert turn.change is None
        turn.change = Empty(group.generation_id)
        return
    _elect(group)
    group.protocol = group.choose_protocol()
    group.enter(COMPLETING, now.wall_ms)
    group.deadline_ms = now.monotonic_ms + group.rebalance_timeout_ms
    for member in group.members.values():
        to = group.set_joining(member, None)
        member.synced = to is None
        if to is not None:
            if member.is_new:
                member.is_new = False
                turn.watch.append(member.member_id)
            renew(turn, member)
            turn.answer(to, joined(group, member))


def _elect(group: Group) -> None:
    """The leader stays if it is here; else the first of those who are."""
    if group.leader is None or group.members[group.leader].joining is None:
        group.leader = next(member.member_id for member in group.members.values() if member.joining is not None)


def joined(group: Group, member: Member, leader: str | None = None) -> Joined:
    leader = leader or group.leader or ""
    members = group.members.values() if leader == member.member_id else ()
    return Joined(
        member_id=member.member_id,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol=group.protocol or "",
        leader=leader,
        members=tuple(JoinedMember(m.member_id, m.instance_id, m.metadata_for(group.protocol)) for m in members),
    )


def remove(turn: Turn, member: Member, why: str) -> None:
    gone = KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member.member_id} {why}: join again")
    turn.answer(member.joining, gone)
    turn.answer(member.syncing, gone)
    turn.group.remove(member)
    rebalance(turn)


def release_sync(turn: Turn, member: Member, result: Synced | KafkaError) -> None:
    """Answer whoever waits for the member's assignment; its session begins anew, for it was silent by our will."""
    to, member.syncing = member.syncing, None
    if to is not None:
        renew(turn, member)
        turn.answer(to, result)


def renew(turn: Turn, member: Member) -> None:
    member.expires_ms = turn.now.monotonic_ms + member.session_timeout_ms
