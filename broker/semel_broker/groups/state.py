"""How a classic group moves: PURE. Each function takes a request, or the passing of time, and makes one turn.

A turn changes the group and says whom to answer now (`answers`), what has to be durable before the rest happens
(`change`: once it is, `apply` makes the next turn) and whose sessions to watch (`watch`). Errors that concern only the
caller are raised. `join` is next door.
"""

from __future__ import annotations

from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.groups.group import Group, Member
from semel_broker.groups.joining import join, replace
from semel_broker.groups.rebalance import complete, complete_if_ready, rebalance, release_sync, remove, renew
from semel_broker.groups.requests import Moment, Rules, Sync, Synced
from semel_broker.groups.turn import (
    COMPLETING,
    EMPTY,
    PREPARING,
    STABLE,
    Assign,
    Change,
    Replace,
    Turn,
    check_alive,
    rebalancing,
)

__all__ = [
    "apply",
    "check_commit",
    "check_commit_in_transaction",
    "deadline",
    "expire",
    "expiry_of",
    "heartbeat",
    "join",
    "leave",
    "refuse",
    "shut",
    "sync",
]


def sync(group: Group, ask: Sync, to: object, now: Moment, rules: Rules) -> Turn:
    """SyncGroup; `to` is answered in this turn or a later one. Raises 15, 22, 23, 25, 27, 82."""
    turn = Turn(group=group, now=now, rules=rules)
    member = _current_member(group, ask.member_id, ask.instance_id, ask.generation_id)
    if ask.protocol_type not in (None, group.protocol_type) or ask.protocol not in (None, group.protocol):
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"generation {group.generation_id} runs {group.protocol_type}/{group.protocol}, "
            f"not {ask.protocol_type}/{ask.protocol}",
        )
    if group.state is PREPARING:
        raise rebalancing(group)
    member.synced = True
    renew(turn, member)
    if group.state is STABLE:
        turn.answer(to, Synced(group.protocol_type, group.protocol, member.assignment))
        return turn
    assert group.state is COMPLETING
    turn.answer(member.syncing, rebalancing(group))  # an earlier try, surely given up
    member.syncing = to
    if member.member_id == group.leader:
        assignments = {member_id: ask.assignments.get(member_id, b"") for member_id in group.members}
        turn.change = Assign(group.generation_id, assignments)
    return turn


def heartbeat(group: Group, member_id: str, instance_id: str | None, generation_id: int, now: Moment) -> None:
    """Heartbeat: the session begins anew. Raises 15, 22, 25, 27, 82."""
    member = _current_member(group, member_id, instance_id, generation_id)
    member.expires_ms = now.monotonic_ms + member.session_timeout_ms
    if group.state is PREPARING:
        raise rebalancing(group)


def leave(group: Group, member_id: str, instance_id: str | None, now: Moment, rules: Rules) -> Turn:
    """LeaveGroup of one member, by its id or (KIP-345) by its instance id alone. Raises 15, 25, 82."""
    turn = Turn(group=group, now=now, rules=rules)
    check_alive(group)
    if member_id in group.pending:
        del group.pending[member_id]
        complete_if_ready(turn)
        return turn
    if not member_id and instance_id is not None:
        member_id = group.static_members.get(instance_id, "")
    remove(turn, group.find(member_id, instance_id), "left")
    return turn


def check_commit(group: Group, member_id: str, instance_id: str | None, generation_id: int, now: Moment) -> None:
    """Whether this member may commit offsets now (OffsetCommit). Raises 15, 22, 25, 27, 82.

    Generation -1 without a member is a simple consumer or an administrator: allowed while the group has no members.
    """
    check_alive(group)
    if generation_id < 0 and not member_id and instance_id is None:
        if group.state is not EMPTY:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"{group.group_id} has members, so only they may commit: stop them first, or commit as one of them",
            )
        return
    member = _current_member(group, member_id, instance_id, generation_id)
    member.expires_ms = now.monotonic_ms + member.session_timeout_ms
    if group.state is COMPLETING:
        raise rebalancing(group)


def check_commit_in_transaction(group: Group, member_id: str, instance_id: str | None, generation_id: int) -> None:
    """Whether this member may commit offsets as part of a transaction (TxnOffsetCommit). Raises 15, 22, 25, 82.

    Those who do not say who they are (before KIP-447) may in any state of the group; those who do may also during a
    rebalance, as long as the next generation has not begun.
    """
    check_alive(group)
    if generation_id >= 0 or member_id or instance_id is not None:
        _current_member(group, member_id, instance_id, generation_id)


# --- what time brings ------------------------------------------------------------------------------------------------


def expiry_of(group: Group, member_id: str, now: Moment) -> int | None:
    """When to look at this member (or pending id) again, on the monotonic clock; None: never, it is gone."""
    if (lapses_ms := group.pending.get(member_id)) is not None:
        return lapses_ms
    member = group.members.get(member_id)
    if member is None:
        return None
    if member.syncing is not None or (member.joining is not None and not member.is_new):  # who waits does not expire
        return max(member.expires_ms, now.monotonic_ms + member.session_timeout_ms)
    return member.expires_ms


def expire(group: Group, member_id: str, now: Moment, rules: Rules) -> Turn:
    """The session of this member, or the patience with this pending id, has ended."""
    turn = Turn(group=group, now=now, rules=rules)
    if member_id in group.pending:
        del group.pending[member_id]
        complete_if_ready(turn)
    else:
        remove(turn, group.members[member_id], "expired")
    return turn


def deadline(group: Group, now: Moment, rules: Rules) -> Turn:
    """`group.deadline_ms` has come: go on without whom is missing."""
    turn = Turn(group=group, now=now, rules=rules)
    if group.state is PREPARING:
        complete(turn)
        return turn
    group.deadline_ms = None
    missing = [member for member in group.members.values() if not member.synced]
    for member in missing:
        remove(turn, member, "never synced")
    return turn


# --- what became durable ---------------------------------------------------------------------------------------------


def apply(group: Group, change: Change, now: Moment, rules: Rules) -> Turn:
    """`change` is durable: it takes effect, if the group has not moved on meanwhile."""
    turn = Turn(group=group, now=now, rules=rules)
    if isinstance(change, Replace):
        owner_id = group.static_members.get(change.ask.instance_id or "")
        if group.state is STABLE and (group.generation_id, owner_id) == (change.generation_id, change.old_member_id):
            replace(turn, change)
            return turn
        return join(group, change.ask, change.to, now, rules)
    if isinstance(change, Assign) and group.state is COMPLETING and group.generation_id == change.generation_id:
        patience_ms = group.deadline_ms
        group.enter(STABLE, now.wall_ms)
        if not all(member.synced for member in group.members.values()):
            group.deadline_ms = patience_ms
        for member in group.members.values():
            member.assignment = change.assignments.get(member.member_id, b"")
            release_sync(turn, member, Synced(group.protocol_type, group.protocol, member.assignment))
    return turn


def refuse(group: Group, change: Change, error: KafkaError, now: Moment, rules: Rules) -> Turn:
    """`change` could not be stored: those who wait for it get `error`, and the generation starts over."""
    turn = Turn(group=group, now=now, rules=rules)
    if isinstance(change, Replace):
        turn.answer(change.to, error)
    elif isinstance(change, Assign) and group.state is COMPLETING and group.generation_id == change.generation_id:
        for member in group.members.values():
            release_sync(turn, member, error)
        rebalance(turn)
    return turn


def shut(group: Group, error: KafkaError, now: Moment, rules: Rules) -> Turn:
    """The broker stops: whoever waits gets `error` now."""
    turn = Turn(group=group, now=now, rules=rules)
    for member in group.waiting():
        turn.answer(group.set_joining(member, None), error)
        release_sync(turn, member, error)
    return turn


def _current_member(group: Group, member_id: str, instance_id: str | None, generation_id: int) -> Member:
    check_alive(group)
    member = group.find(member_id, instance_id)
    if generation_id != group.generation_id:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"{group.group_id} is at generation {group.generation_id}, not {generation_id}: join again",
        )
    return member
