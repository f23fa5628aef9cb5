"""JoinGroup: who comes into a group, who comes back, and who takes another's place. PURE.

KIP-62 (rebalance timeout), KIP-134 (initial delay), KIP-345 (static members), KIP-394 (member ids), KIP-814.
"""

from __future__ import annotations

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.groups.group import Group, Member
from semel_broker.groups.rebalance import complete_if_ready, joined, rebalance, release_sync, renew
from semel_broker.groups.requests import Join, MemberIdRequiredError, Moment, Rules
from semel_broker.groups.turn import COMPLETING, EMPTY, STABLE, Replace, Turn, check_alive, rebalancing

NEW_MEMBER_TIMEOUT_MS = 300_000
"""A newcomer still waiting for its first generation after this is taken for gone (as in Kafka)."""
PENDING_MAX = 10_000
"""Ids handed out and not yet joined with, in one group; beyond it the oldest lapses."""


def join(group: Group, ask: Join, to: object, now: Moment, rules: Rules) -> Turn:
    """JoinGroup; `to` is answered in this turn or a later one. Raises 15, 23, 25, 79, 81, 82."""
    turn = Turn(group=group, now=now, rules=rules)
    check_alive(group)
    owner_id = group.static_members.get(ask.instance_id) if ask.instance_id is not None else None
    if ask.member_id not in group.members and owner_id is None and len(group.members) >= rules.size_max:
        _turn_away(turn, ask, to)
        return turn
    known = None
    if not ask.member_id:
        known = group.members[owner_id] if owner_id is not None else None
    elif ask.member_id not in group.pending or ask.instance_id is not None:
        known = group.find(ask.member_id, ask.instance_id)
    if not group.can_speak(ask.protocol_type, ask.protocols, instead_of=known):
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"no protocol of type {ask.protocol_type!r} is spoken by every member of {group.group_id}: "
            "give all members a common assignor (partition.assignment.strategy)",
        )
    if known is None:
        _come_in(turn, ask, to)
    elif ask.member_id:
        _come_back(turn, known, ask, to)
    else:
        _come_back_as_new(turn, known, ask, to)
    return turn


def _come_in(turn: Turn, ask: Join, to: object) -> None:
    """A newcomer, or one who returns with the id that it was given."""
    group, now = turn.group, turn.now
    member_id = ask.member_id or ask.new_member_id
    if not ask.member_id and ask.must_return and ask.instance_id is None:
        if len(group.pending) >= PENDING_MAX:
            del group.pending[next(iter(group.pending))]
        group.pending[member_id] = now.monotonic_ms + ask.session_timeout_ms
        turn.watch.append(member_id)
        turn.answer(to, MemberIdRequiredError(member_id))
        return
    member = Member(
        member_id=member_id,
        instance_id=ask.instance_id,
        client_id=ask.client_id,
        client_host=ask.client_host,
        session_timeout_ms=ask.session_timeout_ms,
        rebalance_timeout_ms=ask.rebalance_timeout_ms,
        protocol_type=ask.protocol_type,
        protocols=ask.protocols,
        expires_ms=now.monotonic_ms + NEW_MEMBER_TIMEOUT_MS,
        joining=to,
    )
    from_empty = group.state is EMPTY
    group.add(member)
    turn.watch.append(member_id)
    rebalance(turn, wait_for_more=from_empty and turn.rules.initial_rebalance_delay_ms > 0)
    if group.initial_limit_ms is not None:  # others may be about to come: wait a little longer for them
        group.deadline_ms = min(now.monotonic_ms + turn.rules.initial_rebalance_delay_ms, group.initial_limit_ms)


def _come_back(turn: Turn, member: Member, ask: Join, to: object) -> None:
    """A member joins again: its answer got lost, or it saw (or wants) a rebalance."""
    group = turn.group
    settled = group.state in (STABLE, COMPLETING) and member.protocols == ask.protocols
    if settled and not (group.state is STABLE and member.member_id == group.leader):
        renew(turn, member)
        turn.answer(to, joined(group, member))
        return
    _update(turn, member, ask, to)
    rebalance(turn)


def _come_back_as_new(turn: Turn, member: Member, ask: Join, to: object) -> None:
    """A static member's new incarnation takes the old one's place (KIP-345)."""
    group = turn.group
    if group.state is STABLE:
        votes_before = group.protocol
        protocols_before = member.protocols
        group.set_protocols(member, ask.protocols)
        unchanged = group.choose_protocol() == votes_before
        group.set_protocols(member, protocols_before)
        if unchanged:
            turn.change = Replace(group.generation_id, member.member_id, ask, to)
            return
    _fence(turn, member, ask.new_member_id)
    _update(turn, member, ask, to)
    rebalance(turn)


def replace(turn: Turn, change: Replace) -> None:
    """The new incarnation goes on where the old one was, without a rebalance. A leader that cannot be told not to
    assign is told that somebody else leads: who it was before."""
    group, ask = turn.group, change.ask
    member = group.members[change.old_member_id]
    _fence(turn, member, ask.new_member_id)
    _update(turn, member, ask, None)
    renew(turn, member)
    leads = group.leader == member.member_id
    told = change.old_member_id if leads and not ask.may_skip_assignment else group.leader or ""
    place = joined(group, member, leader=told)
    turn.answer(change.to, msgspec.structs.replace(place, skip_assignment=leads and ask.may_skip_assignment))


def _fence(turn: Turn, member: Member, new_member_id: str) -> None:
    """From here on the seat belongs to `new_member_id`; the old id is refused with 82."""
    fenced = KafkaError(ErrorCode.FENCED_INSTANCE_ID, f"{new_member_id} has taken over this instance id")
    turn.answer(turn.group.set_joining(member, None), fenced)
    release_sync(turn, member, fenced)
    turn.group.rename(member, new_member_id)


def _update(turn: Turn, member: Member, ask: Join, to: object | None) -> None:
    """Take over what the member says about itself; `to` waits for the next generation."""
    turn.group.set_protocols(member, ask.protocols)
    member.client_id, member.client_host = ask.client_id, ask.client_host
    member.session_timeout_ms = ask.session_timeout_ms
    member.rebalance_timeout_ms = ask.rebalance_timeout_ms
    member.expires_ms = turn.now.monotonic_ms + ask.session_timeout_ms
    turn.watch.append(member.member_id)  # it may expire sooner than it used to
    if to is not None:
        turn.answer(turn.group.set_joining(member, to), rebalancing(turn.group))  # an earlier try, surely given up


def _turn_away(turn: Turn, ask: Join, to: object) -> None:
    """There is no room; nor is an id that was given out waited for any longer."""
    group = turn.group
    refusal = f"{group.group_id} has all the members that group.max.size = {turn.rules.size_max} allows"
    turn.answer(to, KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, refusal))
    if group.pending.pop(ask.member_id, None) is not None:
        complete_if_ready(turn)
