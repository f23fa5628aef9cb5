"""PURE: The state machine of a group of the consumer protocol: a request or a timeout in, changes and an answer out.

A decision works on a copy of the group (`Draft`). Each change is applied to the copy at once and listed, so a heartbeat
may join, bump the group epoch, make the target assignment and reconcile the member in one step. The caller stores the
changes and then applies the same list to the group.

Sources: KIP-848; KIP-345 and KIP-848 for static members (the epochs 0, -1 and -2).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Final

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.groups.consumer.assignors import ASSIGNORS, Subscriber
from semel_broker.groups.consumer.model import (
    LEFT_STATIC,
    NOTHING,
    Change,
    ConsumerGroup,
    Current,
    Member,
    MemberState,
    Resolved,
    SetAssignmentEpoch,
    SetCurrent,
    SetEpoch,
    SetMember,
    SetRegex,
    SetTarget,
    SetTopics,
    TopicIdPartitions,
)
from semel_broker.groups.consumer.reconcile import reconcile
from semel_broker.groups.consumer.requests import (
    JOIN,
    LEAVE,
    Catalog,
    ConsumerRules,
    Heartbeat,
    HeartbeatAnswer,
    HeartbeatDecision,
)
from semel_broker.groups.requests import Committer
from semel_broker.regex import compiled
from semel_broker.scheduling.turns import ELEMENTS_PER_STEP


class Draft:
    """A copy of the group that a decision changes, and the list of its changes."""

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group.copy()
        self.changes: list[Change] = []
        self._has_bumped = False

    def put(self, change: Change) -> None:
        self.changes.append(change)
        self.group.apply(change)

    def bump(self) -> None:
        """The next group epoch, once in a decision."""
        if not self._has_bumped:
            self._has_bumped = True
            self.put(SetEpoch(self.group.epoch + 1))

    def decision(self, answer: HeartbeatAnswer) -> HeartbeatDecision:
        return HeartbeatDecision(tuple(self.changes), answer)


# --- heartbeats -------------------------------------------------------------------------------------------------------


def heartbeat(
    group: ConsumerGroup, ask: Heartbeat, catalog: Catalog, matched: Matched, rules: ConsumerRules, wall_ms: int
) -> HeartbeatDecision:
    """ConsumerGroupHeartbeat of a member that joins (epoch 0), stays or leaves (epochs -1 and -2). `matched`: the
    result of `matching` for the same request.

    Raises UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID, FENCED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED,
    UNSUPPORTED_ASSIGNOR, INVALID_REGULAR_EXPRESSION.
    """
    if ask.epoch < JOIN:
        return _leave(group, ask)
    if ask.assignor is not None and ask.assignor not in rules.assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"there is no assignor {ask.assignor!r}: set group.remote.assignor to one of {', '.join(rules.assignors)}",
        )
    if ask.regex:
        compiled(ask.regex)
    draft = Draft(group)
    held = NOTHING
    if ask.epoch == JOIN:
        held = join(draft, ask, rules)
    else:
        check_epoch(identified(group, ask.member_id, ask.instance_id), group, ask)
        _update(draft, ask)
    refresh(draft, catalog, matched, wall_ms)
    if draft.group.epoch > draft.group.assignment_epoch:
        assign(draft, rules)
    if ask.epoch == JOIN:
        start_again(draft, ask.member_id, held)
    assert draft.group.epoch == draft.group.assignment_epoch, group.group_id
    before = group.current(ask.member_id)
    current = step(draft, ask)
    assert current.epoch <= draft.group.epoch, (group.group_id, current)
    is_news = current.assigned != before.assigned or (ask.owned is not None and ask.owned != current.assigned)
    says = ask.epoch != current.epoch or ask.is_full or is_news
    return draft.decision(
        HeartbeatAnswer(member_id=ask.member_id, epoch=current.epoch, assigned=current.assigned if says else None)
    )


def is_quiet(group: ConsumerGroup, ask: Heartbeat) -> bool:
    """Whether this heartbeat of a member changes nothing, provided that the topics are the same."""
    current = group.currents.get(ask.member_id)
    return (
        current is not None
        and ask.epoch > JOIN
        and ask.epoch == current.epoch == group.epoch == group.assignment_epoch
        and current.state is MemberState.STABLE
        and group.members[ask.member_id].classic is None
        and (ask.topics, ask.regex, ask.owned, ask.assignor, ask.rack_id) == (None,) * 5
        and ask.rebalance_timeout_ms < 0
        and group.members[ask.member_id].instance_id == ask.instance_id
    )


def identified(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    """The member of this identity. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if instance_id is not None:
        owner_id = group.instances.get(instance_id)
        if owner_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {instance_id}: join again")
        if owner_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"a newer member has taken over the instance id {instance_id}: let only one client use it",
            )
    member = group.members.get(member_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of {group.group_id}: join again")
    return member


def check_epoch(member: Member, group: ConsumerGroup, ask: Heartbeat) -> None:
    """Whether the epoch of a heartbeat is the member's, or the one before: then the last answer was lost, and the
    member cannot own more than it was given. Raises FENCED_MEMBER_EPOCH."""
    current = group.current(member.member_id)
    if ask.epoch == current.epoch:
        return
    has_lost_answer = ask.epoch == current.previous_epoch and ask.owned is not None and ask.owned <= current.held
    if not has_lost_answer:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"{member.member_id} is at epoch {current.epoch}, not {ask.epoch}: give up all partitions and join again",
        )


def check_member_epoch(group: ConsumerGroup, member_id: str, instance_id: str | None, epoch: int) -> None:
    """Whether a commit or a fetch of offsets comes from a member at its present epoch. Raises UNKNOWN_MEMBER_ID,
    FENCED_INSTANCE_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION (a member of the classic protocol)."""
    member = identified(group, member_id, instance_id)
    current = group.current(member.member_id)
    if epoch != current.epoch:
        if member.classic is not None:
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION, f"{member_id} is at generation {current.epoch}, not {epoch}: join again"
            )
        raise KafkaError(
            ErrorCode.STALE_MEMBER_EPOCH,
            f"{member_id} is at epoch {current.epoch}, not {epoch}: heartbeat, then try again",
        )


def check_commit(
    group: ConsumerGroup,
    by: Committer,
    joining_for: Iterable[tuple[str, int]] | None = None,
    *,
    in_transaction: bool = False,
) -> None:
    """Whether `by` may commit offsets now. `joining_for`: the member is between JoinGroup and SyncGroup, and commits
    offsets of these partitions (topic, partition); None: it is not. Raises as `check_member_epoch`, and
    UNSUPPORTED_VERSION.

    A negative epoch is a simple consumer or an administrator: allowed while the group has no members, and in a
    transaction that does not name a member.
    """
    epoch = by.generation_id
    if epoch < 0 and (not group.members or (in_transaction and by.is_anonymous)):
        return
    if not by.has_epochs and identified(group, by.member_id, by.instance_id).classic is None:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{by.member_id} uses group.protocol=consumer: commit with OffsetCommit v9 or later",
        )
    if joining_for is not None:
        epoch = _known_generation(group, by.member_id, epoch, joining_for)
    check_member_epoch(group, by.member_id, by.instance_id, epoch)


def _known_generation(group: ConsumerGroup, member_id: str, epoch: int, named: Iterable[tuple[str, int]]) -> int:
    """The generation of a commit. A cooperative member reads on while it joins, so a commit may come at the generation
    before: it counts as one at the present generation, if no other member can have the partitions."""
    current = group.current(member_id)
    if epoch != current.previous_epoch:
        return epoch
    ids = {name: facts.topic_id for name, facts in group.topics.items()}
    holds_all = all((ids.get(name, b""), partition) in current.held for name, partition in named)
    return current.epoch if holds_all else epoch


# --- joining, changing, leaving -----------------------------------------------------------------------------------


def join(draft: Draft, ask: Heartbeat, rules: ConsumerRules) -> TopicIdPartitions:
    """A new member, a member that joins again, or the next incarnation of a static member that has left.

    A static member that changes its protocol need not have left: members of the classic protocol never say that they
    do. Returns the partitions that have waited for it. Raises UNRELEASED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED.
    """
    group = draft.group
    owner_id = group.instances.get(ask.instance_id) if ask.instance_id is not None else None
    if owner_id is not None and owner_id != ask.member_id:
        left = group.current(owner_id)
        if left.epoch != LEFT_STATIC and ask.classic is None and group.members[owner_id].classic is None:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"{owner_id} uses the instance id {ask.instance_id}: stop it, or wait until its session has ended",
            )
        _replace(draft, owner_id, ask)
        return left.assigned
    if ask.member_id not in group.members:
        if len(group.members) >= rules.size_max:
            refusal = f"{group.group_id} has all the members that group.consumer.max.size = {rules.size_max} allows"
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, refusal)
        draft.put(SetMember(ask.member_id, _updated(Member(member_id=ask.member_id), ask)))
        draft.bump()
        return NOTHING
    _update(draft, ask)
    return group.current(ask.member_id).assigned


def start_again(draft: Draft, member_id: str, held: TopicIdPartitions) -> None:
    """A member that joins owns nothing. It gets back what it held, as far as the target assignment gives it that."""
    draft.put(SetCurrent(member_id, Current(assigned=held & draft.group.targets.get(member_id, NOTHING))))


def _replace(draft: Draft, old_id: str, ask: Heartbeat) -> None:
    """The next incarnation of a static member takes the place of the one that has left."""
    group = draft.group
    old, target = group.members[old_id], group.targets.get(old_id)
    _forget(draft, old_id)
    member = _updated(msgspec.structs.replace(old, member_id=ask.member_id), ask)
    draft.put(SetMember(ask.member_id, member))
    if target is not None:
        draft.put(SetTarget(ask.member_id, target))
    if (member.topics, member.regex) != (old.topics, old.regex):
        draft.bump()


def _update(draft: Draft, ask: Heartbeat) -> None:
    """Take what the heartbeat says about the member."""
    old = draft.group.members[ask.member_id]
    member = _updated(old, ask)
    if member != old:
        draft.put(SetMember(ask.member_id, member))
        if (member.topics, member.regex) != (old.topics, old.regex):
            draft.bump()


def _updated(member: Member, ask: Heartbeat) -> Member:
    return msgspec.structs.replace(
        member,
        instance_id=ask.instance_id if ask.instance_id is not None else member.instance_id,
        rack_id=ask.rack_id if ask.rack_id is not None else member.rack_id,
        client_id=ask.client_id,
        client_host=ask.client_host,
        topics=tuple(sorted(set(ask.topics))) if ask.topics is not None else member.topics,
        regex=(ask.regex or None) if ask.regex is not None else member.regex,
        rebalance_timeout_ms=ask.rebalance_timeout_ms if ask.rebalance_timeout_ms >= 0 else member.rebalance_timeout_ms,
        assignor=ask.assignor if ask.assignor is not None else member.assignor,
        classic=ask.classic,
    )


def _leave(group: ConsumerGroup, ask: Heartbeat) -> HeartbeatDecision:
    """Epoch -1: the member leaves. Epoch -2: a static member leaves for a while; its partitions wait for it."""
    member = identified(group, ask.member_id, ask.instance_id)
    if ask.epoch == LEAVE:
        changes = remove(group, member.member_id)
    else:
        current = group.current(member.member_id)
        left = Current(epoch=LEFT_STATIC, previous_epoch=LEFT_STATIC, assigned=current.assigned)
        changes = (SetCurrent(member.member_id, left),)
    return HeartbeatDecision(changes, HeartbeatAnswer(member_id=ask.member_id, epoch=ask.epoch))


def remove(group: ConsumerGroup, member_id: str) -> tuple[Change, ...]:
    """The changes that remove a member: it leaves, its session ends, or it revokes too slowly."""
    draft = Draft(group)
    _forget(draft, member_id)
    _drop_unused_regexes(draft)
    draft.bump()
    return tuple(draft.changes)


def _forget(draft: Draft, member_id: str) -> None:
    draft.put(SetCurrent(member_id, None))
    if member_id in draft.group.targets:
        draft.put(SetTarget(member_id, None))
    draft.put(SetMember(member_id, None))


def forget_group(group: ConsumerGroup) -> tuple[Change, ...]:
    """The tombstones of a group with all its members."""
    draft = Draft(group)
    for member_id in group.members:
        _forget(draft, member_id)
    regexes = [SetRegex(regex, None) for regex in group.regexes]
    return (*draft.changes, *regexes, SetAssignmentEpoch(None), SetTopics(None), SetEpoch(None))


# --- topics -----------------------------------------------------------------------------------------------------------


Matched = Mapping[str, tuple[str, ...]]
"""The topics that match each regular expression that has to be evaluated again."""
NO_MATCHES: Final[Matched] = {}
"""Of a request of the classic protocol, which evaluates no regular expressions."""


def matching(group: ConsumerGroup, ask: Heartbeat, catalog: Catalog) -> Generator[int, None, Matched]:
    """Evaluate the regular expressions of the group whose topics may have changed, in steps: yields the number of array
    elements whose time a step takes. The sender of the request has to be allowed to read the topics.

    An expression that cannot be evaluated matches nothing. A broker of another version has stored it; if it is the
    sender's, `heartbeat` refuses it.
    """
    if ask.epoch < JOIN:
        return NO_MATCHES
    wanted = {member.regex for member in group.members.values()} | {ask.regex}
    stale = sorted(regex for regex in wanted if regex and _is_stale(group.regexes.get(regex), catalog))
    names = []
    for name in list(catalog.names()) if stale else ():
        if ask.may_read(name):
            names.append(name)
        yield ELEMENTS_PER_STEP
    matched: dict[str, tuple[str, ...]] = {}
    for regex in stale:
        try:
            expression = compiled(regex)
        except KafkaError:
            matched[regex] = ()
            continue
        found = []
        for name in names:
            if expression.matches(name):
                found.append(name)
            yield expression.steps(name) * ELEMENTS_PER_STEP
        matched[regex] = tuple(found)
    return matched


def refresh(draft: Draft, catalog: Catalog, matched: Matched, wall_ms: int) -> None:
    """Look again at the topics of all subscriptions. If they have changed, there is a new group epoch."""
    group = draft.group
    _drop_unused_regexes(draft)
    used = {member.regex for member in group.members.values()}
    for regex, topics in matched.items():
        if regex not in used:
            continue
        known = group.regexes.get(regex)
        draft.put(SetRegex(regex, Resolved(topics, catalog.version, wall_ms)))
        if known is None or known.topics != topics:
            draft.bump()
    topics_now = dict(catalog.facts(group.topics_read()))
    if topics_now != group.topics:
        draft.put(SetTopics(topics_now))
        draft.bump()


def _is_stale(known: Resolved | None, catalog: Catalog) -> bool:
    return known is None or known.version != catalog.version


def _drop_unused_regexes(draft: Draft) -> None:
    used = {member.regex for member in draft.group.members.values()}
    for regex in [regex for regex in draft.group.regexes if regex not in used]:
        draft.put(SetRegex(regex, None))


# --- assignments ------------------------------------------------------------------------------------------------------


def assign(draft: Draft, rules: ConsumerRules) -> None:
    """Make the target assignment of the present group epoch."""
    group = draft.group
    ids = {name: facts.topic_id for name, facts in group.topics.items()}
    subscribers = {
        member_id: Subscriber(
            frozenset(ids[name] for name in group.topics_of(member) if name in ids),
            group.targets.get(member_id, NOTHING),
            member.instance_id,
            group.current(member_id).assigned,
        )
        for member_id, member in group.members.items()
    }
    assignor = ASSIGNORS[preferred_assignor(group, rules.assignors)]
    targets = assignor(subscribers, {facts.topic_id: facts.partition_count for facts in group.topics.values()})
    assert targets.keys() == group.members.keys(), group.group_id
    for member_id, target in targets.items():
        if group.targets.get(member_id) != target:
            draft.put(SetTarget(member_id, target))
    draft.put(SetAssignmentEpoch(group.epoch))


def preferred_assignor(group: ConsumerGroup, assignors: tuple[str, ...]) -> str:
    """The assignor that most members ask for; the first of `group.consumer.assignors` if none does."""
    votes: dict[str, int] = {}
    for member in group.members.values():
        if member.assignor is not None and member.assignor in assignors:
            votes[member.assignor] = votes.get(member.assignor, 0) + 1
    return max(sorted(votes), key=votes.__getitem__) if votes else assignors[0]


def step(draft: Draft, ask: Heartbeat) -> Current:
    """Move the member of this request towards its target assignment; its current assignment after that."""
    group, member_id = draft.group, ask.member_id
    before = group.current(member_id)
    current = reconcile(
        member_id,
        before,
        group.targets.get(member_id, NOTHING),
        group.assignment_epoch,
        group.owners,
        ask.owned,
    )
    if current is not before:
        draft.put(SetCurrent(member_id, current))
    return current
