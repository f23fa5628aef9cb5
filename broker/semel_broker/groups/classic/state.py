"""PURE: The state machine of a consumer group in the classic protocol: requests and time in, transitions out.

A partition must have one owner at a time, and a former owner must not commit offsets over those of the next one. So
members do not own partitions for good, they own them in a generation:

1. A change of the members begins a rebalance. Each member joins again. Those that do not join before the rebalance
   timeout are removed.
2. All members get the next generation. One of them, the leader, gets all subscriptions, too, and assigns.
3. The assignment is durable before a member gets its part: the next coordinator must not use the number of the
   generation for another assignment.

A commit names its generation and its member. One of an earlier generation gets ILLEGAL_GENERATION, one of a removed
member UNKNOWN_MEMBER_ID: that is the fence of groups, and docs/exactly-once.md needs it in order 5. A member is removed
when its session ends without a heartbeat. A static member keeps its place when it returns within its session: it gets
a new member id, which fences the former instance, and its assignment stays.

Each function takes a request, or the passing of time, and makes one `Transition`. A transition changes the group. It
says which requests to answer now (`answers`), which record has to be durable before the rest happens (`change`: then
`apply` makes the next transition), and which sessions to watch (`watch`). An error that concerns only the caller is
raised.

    Stable -> PreparingRebalance: until all members have joined, or the rebalance timeout ends -> generation + 1
           -> CompletingRebalance: until the leader's assignment is durable -> Stable

Sources: KIP-62 (rebalance timeout), KIP-134 (initial delay), KIP-345 (static members), KIP-394 (member ids), KIP-814
(a returning leader does not assign).
"""

from __future__ import annotations

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.groups.classic.group import ClassicMember, ClassicMembership, GroupState, RebalanceCause
from semel_broker.groups.effects import Effects
from semel_broker.groups.requests import (
    Committer,
    Join,
    Joined,
    JoinedMember,
    MemberIdRequiredError,
    Sync,
    Synced,
    TimePoint,
)

NEW_MEMBER_TIMEOUT_MS = 300_000
"""A new member that still waits for its first generation after this is removed, as in Kafka."""
AWAITED_MS = 5_000
"""A rebalance waits for so long for a member that was given an id to join with it (KIP-394). Clients do that at once.
The id stays valid for a session timeout, and Kafka waits for as long."""
PENDING_MAX = 10_000
"""Ids given to new members that have not joined with them yet, in one group; beyond it the oldest lapses."""

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState


class Assign(msgspec.Struct, frozen=True):
    """The leader's assignments for generation `generation_id`, by member id."""

    generation_id: int
    assignments: dict[str, bytes]


class Replace(msgspec.Struct, frozen=True):
    """The static member `old_member_id` of a stable group rejoins as `ask.new_member_id` with the same protocols."""

    generation_id: int
    old_member_id: str
    ask: Join
    to: object


class Empty(msgspec.Struct, frozen=True):
    """The last member has left the group."""

    generation_id: int


Change = Assign | Replace | Empty


class ClassicRules(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that decide (`group.initial.rebalance.delay.ms`, `group.max.size`)."""

    initial_rebalance_delay_ms: int = 0
    size_max: int = (1 << 31) - 1


class Transition(Effects, kw_only=True):
    """One transition of one group: its inputs, and its effects."""

    group: ClassicMembership
    now: TimePoint
    rules: ClassicRules
    change: Change | None = None


def check_alive(group: ClassicMembership) -> None:
    if group.state is DEAD:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group was deleted just now: try again")


def rebalancing(group: ClassicMembership) -> KafkaError:
    return KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, f"{group.group_id} is rebalancing: join again")


# --- joining ----------------------------------------------------------------------------------------------------------


def join(group: ClassicMembership, ask: Join, to: object, now: TimePoint, rules: ClassicRules) -> Transition:
    """JoinGroup; this transition or a later one answers `to`. Raises COORDINATOR_NOT_AVAILABLE,
    INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID, MEMBER_ID_REQUIRED, GROUP_MAX_SIZE_REACHED, FENCED_INSTANCE_ID."""
    transition = Transition(group=group, now=now, rules=rules)
    check_alive(group)
    owner_id = group.static_members.get(ask.instance_id) if ask.instance_id is not None else None
    if ask.member_id not in group.members and owner_id is None and len(group.members) >= rules.size_max:
        _refuse_full(transition, ask, to)
        return transition
    known = None
    if not ask.member_id:
        known = group.members[owner_id] if owner_id is not None else None
    elif ask.member_id not in group.pending or ask.instance_id is not None:
        known = group.find(ask.member_id, ask.instance_id)
    if not group.supports(ask.protocol_type, ask.protocols, instead_of=known):
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"no protocol of type {ask.protocol_type!r} is spoken by every member of {group.group_id}: "
            "give all members a common assignor (partition.assignment.strategy)",
        )
    if known is None:
        _join_new(transition, ask, to)
    elif ask.member_id:
        _rejoin(transition, known, ask, to)
    else:
        _rejoin_as_new(transition, known, ask, to)
    return transition


def _join_new(transition: Transition, ask: Join, to: object) -> None:
    """A new member, or one that returns with the id it was given (KIP-394)."""
    group, now = transition.group, transition.now
    member_id = ask.member_id or ask.new_member_id
    if not ask.member_id and ask.must_return and ask.instance_id is None:
        _keep_id(transition, member_id, ask.session_timeout_ms)
        group.awaited[member_id] = now.monotonic_ms + min(ask.session_timeout_ms, AWAITED_MS)
        transition.answer(to, MemberIdRequiredError(member_id))
        return
    member = ClassicMember(
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
    transition.watch.append(member_id)
    rebalance(
        transition,
        member.causes("joined"),
        wait_for_more=from_empty and transition.rules.initial_rebalance_delay_ms > 0,
    )
    if group.initial_limit_ms is not None:  # more members may be about to join: wait longer for them
        group.deadline_ms = min(now.monotonic_ms + transition.rules.initial_rebalance_delay_ms, group.initial_limit_ms)


def _keep_id(transition: Transition, member_id: str, session_timeout_ms: int) -> None:
    """The id of a new member stays valid for a session timeout."""
    group = transition.group
    if len(group.pending) >= PENDING_MAX:
        group.forget_id(next(iter(group.pending)))
    group.pending[member_id] = transition.now.monotonic_ms + session_timeout_ms
    transition.watch.append(member_id)


def _rejoin(transition: Transition, member: ClassicMember, ask: Join, to: object) -> None:
    """A member joins again: its answer was lost, or it saw (or wants) a rebalance."""
    group = transition.group
    settled = group.state in (STABLE, COMPLETING) and member.protocols == ask.protocols
    if settled and not (group.state is STABLE and member.member_id == group.leader):
        renew(transition, member)
        transition.answer(to, joined(group, member))
        return
    _update(transition, member, ask, to)
    rebalance(transition, member.causes("joined_again"))


def _rejoin_as_new(transition: Transition, member: ClassicMember, ask: Join, to: object) -> None:
    """A static member's new incarnation takes the old one's place (KIP-345), without a rebalance if it can.

    It cannot if the old one had to revoke partitions and did not join again. The new one does not know of them, and
    until the next generation they have no owner. (Kafka does not look at this.)
    """
    group = transition.group
    if group.state is STABLE and not group.given_up_by(member):
        votes_before = group.protocol
        protocols_before = member.protocols
        group.set_protocols(member, ask.protocols)
        unchanged = group.choose_protocol() == votes_before
        group.set_protocols(member, protocols_before)
        if unchanged:
            transition.change = Replace(group.generation_id, member.member_id, ask, to)
            return
    _fence(transition, member, ask.new_member_id)
    _update(transition, member, ask, to)
    rebalance(transition, member.causes("replaced"))


def replace(transition: Transition, change: Replace) -> None:
    """The new incarnation continues in the place of the old one, without a rebalance.

    A leader must not assign again. Its answer says so (KIP-814), or, in older versions, names the old member id as the
    leader.
    """
    group, ask = transition.group, change.ask
    member = group.members[change.old_member_id]
    _fence(transition, member, ask.new_member_id)
    _update(transition, member, ask, None)
    renew(transition, member)
    group.because = member.causes("replaced")
    leads = group.leader == member.member_id
    leader = change.old_member_id if leads and not ask.may_skip_assignment else group.leader or ""
    place = joined(group, member, leader=leader)
    transition.answer(change.to, msgspec.structs.replace(place, skip_assignment=leads and ask.may_skip_assignment))


def _fence(transition: Transition, member: ClassicMember, new_member_id: str) -> None:
    """Give the member's place to `new_member_id`; the old id gets FENCED_INSTANCE_ID."""
    fenced = KafkaError(ErrorCode.FENCED_INSTANCE_ID, f"{new_member_id} has taken over this instance id")
    transition.answer(transition.group.set_joining(member, None), fenced)
    release_sync(transition, member, fenced)
    transition.group.rename(member, new_member_id)


def _update(transition: Transition, member: ClassicMember, ask: Join, to: object | None) -> None:
    """Update the member from its JoinGroup; `to` waits for the next generation."""
    transition.group.set_protocols(member, ask.protocols)
    member.client_id, member.client_host = ask.client_id, ask.client_host
    member.session_timeout_ms = ask.session_timeout_ms
    member.rebalance_timeout_ms = ask.rebalance_timeout_ms
    member.expires_ms = transition.now.monotonic_ms + ask.session_timeout_ms
    transition.watch.append(member.member_id)  # it may expire sooner than it used to
    if to is not None:
        transition.answer(
            transition.group.set_joining(member, to), rebalancing(transition.group)
        )  # an earlier attempt of the same member


def _refuse_full(transition: Transition, ask: Join, to: object) -> None:
    """The group is full: refuse the member, and forget the id that it was given."""
    group = transition.group
    refusal = f"{group.group_id} has all the members that group.max.size = {transition.rules.size_max} allows"
    transition.answer(to, KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, refusal))
    if group.forget_id(ask.member_id):
        complete_if_ready(transition)


def join_again(group: ClassicMembership, now: TimePoint, rules: ClassicRules) -> Transition:
    """The group has just left the consumer protocol, or its stored generation has no leader: all members have to join,
    because the partitions of former members have no owner."""
    transition = Transition(group=group, now=now, rules=rules)
    rebalance(transition, RebalanceCause("downgraded"))
    return transition


# --- the rebalance ----------------------------------------------------------------------------------------------------


def rebalance(transition: Transition, because: RebalanceCause, *, wait_for_more: bool = False) -> None:
    """Begin a rebalance unless one is under way, and end it if all members have joined. `wait_for_more`: the group was
    empty and waits for more members (KIP-134). `because`: for the counters and the log."""
    group = transition.group
    if group.state is not PREPARING or not group.members:
        group.because = because
    if group.state is not PREPARING:
        for member in group.waiting():  # these requests wait for an assignment of the old generation
            release_sync(transition, member, rebalancing(group))
        group.enter(PREPARING, transition.now.wall_ms)
        transition.cause = because.cause
        group.deadline_ms = transition.now.monotonic_ms + group.rebalance_timeout_ms
        group.initial_limit_ms = group.deadline_ms if wait_for_more else None
    complete_if_ready(transition)


def complete_if_ready(transition: Transition) -> None:
    group = transition.group
    if group.state is PREPARING and (not group.members or (group.all_joined and group.initial_limit_ms is None)):
        complete(transition)


def complete(transition: Transition) -> None:
    """Begin the next generation with the members that have joined. Static members stay until their sessions end."""
    group, now = transition.group, transition.now
    assert group.state is PREPARING, group.state
    missing = [member for member in group.members.values() if member.joining is None and member.instance_id is None]
    for member in missing:
        group.remove(member)
    if group.members and not group.joining_count:
        group.initial_limit_ms = None
        group.deadline_ms = now.monotonic_ms + group.rebalance_timeout_ms
        return
    group.generation_id += 1
    if not group.members:
        if missing:
            group.because = missing[-1].causes("rebalance_timed_out")
        group.protocol = group.leader = None
        group.enter(EMPTY, now.wall_ms)
        assert transition.change is None
        transition.change = Empty(group.generation_id)
        return
    _elect(group)
    assert group.leader in group.members, group.group_id
    group.protocol = group.choose_protocol()
    group.enter(COMPLETING, now.wall_ms)
    group.deadline_ms = now.monotonic_ms + group.rebalance_timeout_ms
    for member in group.members.values():
        to = group.set_joining(member, None)
        member.synced, member.carried_epoch = to is None, None
        if to is not None:
            if member.is_new:
                member.is_new = False
                transition.watch.append(member.member_id)
            renew(transition, member)
            transition.answer(to, joined(group, member))


def _elect(group: ClassicMembership) -> None:
    """Keep the leader if it has joined; else elect the first member that has."""
    if group.leader is None or group.members[group.leader].joining is None:
        group.leader = next(member.member_id for member in group.members.values() if member.joining is not None)


def joined(group: ClassicMembership, member: ClassicMember, leader: str | None = None) -> Joined:
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


def remove(transition: Transition, member: ClassicMember, why: str, cause: str) -> None:
    gone = KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member.member_id} {why}: join again")
    transition.answer(member.joining, gone)
    transition.answer(member.syncing, gone)
    transition.group.remove(member)
    rebalance(transition, member.causes(cause))


def release_sync(transition: Transition, member: ClassicMember, result: Synced | KafkaError) -> None:
    """Answer the member's SyncGroup, if one waits. Its session starts again: a waiting member sends nothing."""
    to, member.syncing = member.syncing, None
    if to is not None:
        renew(transition, member)
        transition.answer(to, result)


def renew(transition: Transition, member: ClassicMember) -> None:
    member.expires_ms = transition.now.monotonic_ms + member.session_timeout_ms


# --- requests of members ----------------------------------------------------------------------------------------------


def sync(group: ClassicMembership, ask: Sync, to: object, now: TimePoint, rules: ClassicRules) -> Transition:
    """SyncGroup; this transition or a later one answers `to`. Raises COORDINATOR_NOT_AVAILABLE, ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID."""
    transition = Transition(group=group, now=now, rules=rules)
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
    renew(transition, member)
    if group.state is STABLE:
        transition.answer(to, Synced(group.protocol_type, group.protocol, member.assignment))
        return transition
    assert group.state is COMPLETING
    transition.answer(member.syncing, rebalancing(group))  # an earlier attempt of the same member
    member.syncing = to
    if member.member_id == group.leader:
        assignments = {member_id: ask.assignments.get(member_id, b"") for member_id in group.members}
        transition.change = Assign(group.generation_id, assignments)
    return transition


def heartbeat(
    group: ClassicMembership, member_id: str, instance_id: str | None, generation_id: int, now: TimePoint
) -> None:
    """Heartbeat: the session starts again. Raises COORDINATOR_NOT_AVAILABLE, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID,
    REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID."""
    member = _current_member(group, member_id, instance_id, generation_id)
    member.expires_ms = now.monotonic_ms + member.session_timeout_ms
    if group.state is PREPARING:
        raise rebalancing(group)


def leave(
    group: ClassicMembership, member_id: str, instance_id: str | None, now: TimePoint, rules: ClassicRules
) -> Transition:
    """LeaveGroup of one member, by its id or (KIP-345) by its instance id alone. Raises COORDINATOR_NOT_AVAILABLE,
    UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    transition = Transition(group=group, now=now, rules=rules)
    check_alive(group)
    if group.forget_id(member_id):
        complete_if_ready(transition)
        return transition
    if not member_id and instance_id is not None:
        member_id = group.static_members.get(instance_id, "")
    remove(transition, group.find(member_id, instance_id), "left", "left")
    return transition


def withdraw(
    group: ClassicMembership, member_id: str, to: object | None, now: TimePoint, rules: ClassicRules
) -> Transition:
    """The connection is lost over which a member waits in JoinGroup (`to`), or was given its id (`to` None).

    A rebalance waits no longer for a new member, which has not been in a generation. Its id stays valid: it may come
    back over another connection. All others keep their places until their sessions end.
    """
    transition = Transition(group=group, now=now, rules=rules)
    member = group.members.get(member_id)
    if to is None:
        if group.awaited.pop(member_id, None) is not None:
            transition.watch.append(member_id)
            complete_if_ready(transition)
    elif member is not None and member.is_new and member.joining is to:
        if member.instance_id is None:
            _keep_id(transition, member_id, member.session_timeout_ms)
        remove(transition, member, "closed its connection", "left")
    return transition


def check_commit(group: ClassicMembership, by: Committer, now: TimePoint) -> None:
    """Whether `by` may commit offsets now (OffsetCommit). Raises COORDINATOR_NOT_AVAILABLE, ILLEGAL_GENERATION,
    UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID.

    Generation -1 is a simple consumer or an administrator: allowed while the group has no members. The client may name
    a member: clients that make their member ids themselves do (KIP-1082).
    """
    check_alive(group)
    if by.generation_id < 0 and group.state is EMPTY:
        return
    if by.generation_id < 0 and by.is_anonymous:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"{group.group_id} has members, so only they may commit: stop them first, or commit as one of them",
        )
    member = _current_member(group, by.member_id, by.instance_id, by.generation_id)
    member.expires_ms = now.monotonic_ms + member.session_timeout_ms
    if group.state is COMPLETING:
        raise rebalancing(group)


def check_commit_in_transaction(group: ClassicMembership, by: Committer) -> None:
    """Whether `by` may commit offsets as part of a transaction (TxnOffsetCommit). Raises
    COORDINATOR_NOT_AVAILABLE, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.

    Those who do not say who they are (before KIP-447) may in any state of the group; those who do may also during a
    rebalance, as long as the next generation has not begun.
    """
    check_alive(group)
    if by.generation_id < 0 and group.state is EMPTY:
        return
    if by.generation_id >= 0 or not by.is_anonymous:
        _current_member(group, by.member_id, by.instance_id, by.generation_id)


# --- timeouts --------------------------------------------------------------------------------------------------------


def expiry_of(group: ClassicMembership, member_id: str, now: TimePoint) -> int | None:
    """When to check this member (or pending id) again, on the monotonic clock; None: never, it is gone."""
    if (lapses_ms := group.pending.get(member_id)) is not None:
        return group.awaited.get(member_id, lapses_ms)
    member = group.members.get(member_id)
    if member is None:
        return None
    if member.syncing is not None or (
        member.joining is not None and not member.is_new
    ):  # a waiting member does not expire
        return max(member.expires_ms, now.monotonic_ms + member.session_timeout_ms)
    return member.expires_ms


def expire(group: ClassicMembership, member_id: str, now: TimePoint, rules: ClassicRules) -> Transition:
    """The session of this member has ended, or the time for which a rebalance waits for this pending id, or the id."""
    transition = Transition(group=group, now=now, rules=rules)
    if (lapses_ms := group.pending.get(member_id)) is not None:
        if now.monotonic_ms < lapses_ms:
            group.awaited.pop(member_id, None)
            transition.watch.append(member_id)
        else:
            group.forget_id(member_id)
        complete_if_ready(transition)
    else:
        remove(transition, group.members[member_id], "expired", "session_expired")
    return transition


def deadline(group: ClassicMembership, now: TimePoint, rules: ClassicRules) -> Transition:
    """`group.deadline_ms` has passed: continue without the missing members."""
    transition = Transition(group=group, now=now, rules=rules)
    if group.state is PREPARING:
        complete(transition)
        return transition
    group.deadline_ms = None
    missing = [member for member in group.members.values() if not member.synced]
    for member in missing:
        remove(transition, member, "never synced", "sync_timed_out")
    return transition


# --- durable changes -------------------------------------------------------------------------------------------------


def apply(group: ClassicMembership, change: Change, now: TimePoint, rules: ClassicRules) -> Transition:
    """`change` is durable: put it into effect, unless the group has changed its generation or state meanwhile.

    Raises nothing: an error would be one of the journal, whose other rows are durable, too.
    """
    assert change.generation_id <= group.generation_id, (group.group_id, change.generation_id, group.generation_id)
    transition = Transition(group=group, now=now, rules=rules)
    if isinstance(change, Replace):
        owner_id = group.static_members.get(change.ask.instance_id or "")
        if group.state is STABLE and (group.generation_id, owner_id) == (change.generation_id, change.old_member_id):
            replace(transition, change)
            return transition
        try:
            return join(group, change.ask, change.to, now, rules)
        except KafkaError as error:
            transition.answer(change.to, error)
            return transition
    if isinstance(change, Assign) and group.state is COMPLETING and group.generation_id == change.generation_id:
        deadline_ms = group.deadline_ms
        group.enter(STABLE, now.wall_ms)
        if not all(member.synced for member in group.members.values()):
            group.deadline_ms = deadline_ms
        for member in group.members.values():
            member.assignment = change.assignments.get(member.member_id, b"")
            release_sync(transition, member, Synced(group.protocol_type, group.protocol, member.assignment))
    return transition


def refuse(
    group: ClassicMembership, change: Change, error: KafkaError, now: TimePoint, rules: ClassicRules
) -> Transition:
    """`change` could not be stored: its requests get `error`, and the group rebalances again."""
    transition = Transition(group=group, now=now, rules=rules)
    if isinstance(change, Replace):
        transition.answer(change.to, error)
    elif isinstance(change, Assign) and group.state is COMPLETING and group.generation_id == change.generation_id:
        for member in group.members.values():
            release_sync(transition, member, error)
        rebalance(transition, RebalanceCause("not_stored"))
    return transition


def shut(group: ClassicMembership, error: KafkaError, now: TimePoint, rules: ClassicRules) -> Transition:
    """The shard closes: answer all requests that wait with `error`."""
    transition = Transition(group=group, now=now, rules=rules)
    for member in group.waiting():
        transition.answer(group.set_joining(member, None), error)
        release_sync(transition, member, error)
    return transition


def _current_member(
    group: ClassicMembership, member_id: str, instance_id: str | None, generation_id: int
) -> ClassicMember:
    check_alive(group)
    member = group.find(member_id, instance_id)
    if generation_id not in (group.generation_id, member.carried_epoch):
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"{group.group_id} is at generation {group.generation_id}, not {generation_id}: join again",
        )
    return member
