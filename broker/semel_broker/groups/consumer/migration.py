"""PURE: Carries the members of a group from one protocol into the other (KIP-848, section "Migration").

Upgrade    the first member of the consumer protocol joins a classic group. The generation becomes the group epoch, and
           the members continue with the partitions that they have.
Downgrade  the last member of the consumer protocol is gone. The group epoch becomes the generation, and all members
           have to join: the partitions of the last member have no owner.

In neither case does a member give up partitions at that moment, and its commits continue to be accepted.
"""

from __future__ import annotations

from collections.abc import Mapping

from semel_protocol.consumer_protocol import PROTOCOL_TYPE, Subscription, version_of
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.groups.classic.group import ClassicMember, ClassicMembership, GroupState
from semel_broker.groups.consumer.model import (
    LEFT_STATIC,
    NOTHING,
    Change,
    Classic,
    ConsumerGroup,
    Current,
    MemberState,
    SetAssignmentEpoch,
    SetCurrent,
    SetEpoch,
    SetMember,
    SetTarget,
    TopicIdPartition,
    TopicIdPartitions,
)
from semel_broker.groups.consumer.model import Member as ConsumerMember
from semel_broker.groups.consumer.requests import JOIN, Catalog, Heartbeat
from semel_broker.groups.embedded import NamedPlaces, assignment_of, encoded_assignment, owned_by, subscription_of
from semel_broker.groups.requests import Join

UPGRADES = "upgrade", "bidirectional"
DOWNGRADES = "downgrade", "bidirectional"


# --- into the consumer protocol ---------------------------------------------------------------------------------------


def check_upgrade(group: ClassicMembership, policy: str, size_max: int) -> None:
    """Whether a classic group may become one of the consumer protocol. Raises GROUP_ID_NOT_FOUND."""
    if group.state is GroupState.EMPTY:
        return
    if policy not in UPGRADES:
        why = f"group.consumer.migration.policy is {policy}: set it to upgrade, or stop its members"
    elif group.protocol_type != PROTOCOL_TYPE:
        why = f"its members have the protocol type {group.protocol_type!r}: choose another group.id"
    elif len(group.members) > size_max:
        why = f"it has more members than group.consumer.max.size = {size_max}: stop some of them"
    else:
        return
    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{group.group_id} stays a classic group, because {why}")


def upgraded(group: ClassicMembership, catalog: Catalog) -> tuple[Change, ...]:
    """The changes that carry a classic group into the consumer protocol; none for a group without members.

    A member that has never been in a generation owns nothing, and joins again. Raises GROUP_ID_NOT_FOUND if the
    coordinator cannot read what the members say.
    """
    members = [member for member in group.members.values() if not member.is_new]
    if not members:
        return ()
    said = {member.member_id: _read(group, member) for member in members}
    taken: set[TopicIdPartition] = set()
    assigned: dict[str, TopicIdPartitions] = {}
    for member_id, (_, named) in said.items():
        assigned[member_id] = _places(named, catalog) - taken
        assert taken.isdisjoint(assigned[member_id]), member_id
        taken |= assigned[member_id]
    changes: list[Change] = [SetEpoch(group.generation_id), SetAssignmentEpoch(group.generation_id)]
    for member in members:
        subscription, _ = said[member.member_id]
        changes.append(SetMember(member.member_id, _consumer_member(member, subscription)))
        changes.append(SetTarget(member.member_id, assigned[member.member_id]))
        # What it owned at its last JoinGroup it may still be revoking: cooperative members revoke after SyncGroup.
        revoking = _places(owned_by(subscription), catalog) - taken
        taken |= revoking
        current = Current(
            epoch=group.generation_id,
            previous_epoch=group.generation_id,
            state=MemberState.UNREVOKED if revoking else MemberState.STABLE,
            assigned=assigned[member.member_id],
            revoking=revoking,
        )
        changes.append(SetCurrent(member.member_id, current))
    return tuple(changes)


def _read(group: ClassicMembership, member: ClassicMember) -> tuple[Subscription, NamedPlaces]:
    name = group.protocol if group.protocol is not None else member.protocols[0][0]
    subscription, assigned = subscription_of(member.metadata_for(name)), assignment_of(member.assignment)
    if subscription is None or assigned is None:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"{group.group_id} stays a classic group, because subscription or assignment of {member.member_id} are not "
            "those of a consumer: stop its members",
        )
    return subscription, assigned


def _consumer_member(member: ClassicMember, subscription: Subscription) -> ConsumerMember:
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=Classic(member.session_timeout_ms, member.protocols),
    )


# --- members of the classic protocol in a group of the consumer protocol ---------------------------------------------


def as_heartbeat(group: ConsumerGroup, ask: Join, catalog: Catalog) -> Heartbeat:
    """A JoinGroup as a request of the consumer protocol. Raises INCONSISTENT_GROUP_PROTOCOL."""
    is_consumer = ask.protocol_type == PROTOCOL_TYPE and ask.protocols
    subscription = subscription_of(ask.protocols[0][1]) if is_consumer else None
    others = [
        member.classic.protocols
        for member in group.members.values()
        if member.classic is not None
        and member.member_id != ask.member_id
        and (ask.instance_id is None or member.instance_id != ask.instance_id)
    ]
    if subscription is None or not _common([*others, ask.protocols]):
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"no protocol of type {ask.protocol_type!r} is spoken by every member of {group.group_id}: give all "
            "members a common assignor (partition.assignment.strategy), or set group.protocol=consumer",
        )
    return Heartbeat(
        member_id=ask.member_id or ask.new_member_id,
        epoch=JOIN,
        instance_id=ask.instance_id,
        rack_id=subscription.rack_id,
        client_id=ask.client_id,
        client_host=ask.client_host,
        rebalance_timeout_ms=ask.rebalance_timeout_ms,
        topics=tuple(subscription.topics),
        regex="",
        owned=_places(owned_by(subscription), catalog),
        classic=Classic(ask.session_timeout_ms, ask.protocols),
    )


def embedded_assignment(group: ConsumerGroup, member_id: str) -> bytes:
    """The partitions that a member of the classic protocol has, as SyncGroup returns them."""
    classic = group.members[member_id].classic
    assert classic is not None
    names = {facts.topic_id: name for name, facts in group.topics.items()}
    metadata = classic.protocols[0][1]
    places = group.current(member_id).assigned
    return encoded_assignment(
        version_of(metadata) if subscription_of(metadata) is not None else 0,
        [(names[topic_id], partition) for topic_id, partition in places if topic_id in names],
    )


# --- into the classic protocol ----------------------------------------------------------------------------------------


def downgraded(group: ConsumerGroup, generation_id: int, policy: str, size_max: int) -> ClassicMembership | None:
    """The group in the classic protocol, if it may change to it: it has members, all of them classic.

    The members have no deadlines yet (`expires_ms`).
    """
    members = list(group.members.values())
    classics = [member.classic for member in members if member.classic is not None]
    if not members or len(classics) < len(members) or policy not in DOWNGRADES or len(members) > size_max:
        return None
    common = _common([classic.protocols for classic in classics])
    if not common:
        return None
    made = ClassicMembership(group_id=group.group_id, generation_id=generation_id)
    carried = [_classic_member(group, member, member.classic) for member in members if member.classic is not None]
    made.restore(carried, common[0], leader=None)
    assert made.members.keys() == group.members.keys(), group.group_id
    return made


def _classic_member(group: ConsumerGroup, member: ConsumerMember, classic: Classic) -> ClassicMember:
    epoch = group.current(member.member_id).epoch
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=classic.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocol_type=PROTOCOL_TYPE,
        protocols=classic.protocols,
        assignment=embedded_assignment(group, member.member_id),
        is_new=False,
        carried_epoch=None if epoch == LEFT_STATIC else epoch,
    )


# --- small things -----------------------------------------------------------------------------------------------------


def _places(named: NamedPlaces, catalog: Catalog) -> TopicIdPartitions:
    """Partitions by topic id, of topics that exist."""
    if not named:
        return NOTHING
    topics: Mapping[str, object] = dict.fromkeys(name for name, _ in named)
    facts = catalog.facts(topics)
    return frozenset((facts[name].topic_id, partition) for name, partition in named if name in facts)


def _common(protocols: list[tuple[tuple[str, bytes], ...]]) -> list[str]:
    """The assignors that all these members support, in the order in which the first one prefers them."""
    sets = [{name for name, _ in each} for each in protocols]
    return [name for name, _ in protocols[0] if all(name in each for each in sets)]
