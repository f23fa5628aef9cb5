"""PURE. The assignors range, roundrobin, sticky and cooperative-sticky, compatible with Kafka's of the same names.

The leader of a group calls `assign`. Every member calls `user_data` before it joins, so that the next leader, with any
client library, knows the member's previous assignment. Rack-aware assignment (KIP-881) is not supported, because it
needs the racks of replicas.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import ClassVar, Literal

import msgspec
from semel_protocol.consumer_protocol import NO_GENERATION, Assignment, Subscription
from semel_protocol.errors import ProtocolError

from semel._assignment.protocol import (
    decode_cooperative_user_data,
    decode_sticky_user_data,
    encode_cooperative_user_data,
    encode_sticky_user_data,
    partitions_of,
)
from semel._assignment.sticky import balance
from semel.structs import TopicPartition

RebalanceProtocol = Literal["eager", "cooperative"]
Assignments = dict[str, list[TopicPartition]]
"""Member id -> partitions. Every member has an entry."""


class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member as the leader sees it: its topics, and the partitions that it claims to own as of a generation."""

    member_id: str
    group_instance_id: str | None = None
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION

    @property
    def order(self) -> tuple[bool, str]:
        """Static members first, by instance id, so that a restart under a new member id moves nothing (KIP-345)."""
        if self.group_instance_id is not None:
            return (False, self.group_instance_id)
        return (True, self.member_id)


class Assignor(ABC):
    """One strategy. protocol: how its members treat their partitions when a rebalance starts (KIP-429)."""

    name: str
    protocol: ClassVar[RebalanceProtocol] = "eager"

    def user_data(self, owned: Sequence[TopicPartition], generation: int, topics: Sequence[str] = ()) -> bytes | None:
        """The strategy's own bytes for the subscription to `topics`. owned: the member's assignment in `generation`."""
        return None

    def member(self, member_id: str, group_instance_id: str | None, subscription: Subscription) -> GroupMember:
        """The member that a decoded subscription describes."""
        return GroupMember(
            member_id=member_id,
            group_instance_id=group_instance_id,
            topics=tuple(subscription.topics),
            owned=partitions_of(subscription.owned_partitions),
            generation=subscription.generation_id,
        )

    @abstractmethod
    def assign(self, members: Sequence[GroupMember], partition_counts: Mapping[str, int]) -> Assignments:
        """Assign each partition of each subscribed topic to one member that subscribes to the topic.

        partition_counts: the topics that exist. Others are left out until metadata has them.
        """

    def assignment_data(self, member_id: str) -> bytes | None:
        """The strategy's own bytes in the assignment of this member, after `assign`."""
        return None

    def adopted(self, assignment: Assignment) -> None:
        """Called with this member's own assignment."""
        return


class RangeAssignor(Assignor):
    """Topic by topic, each member gets a range of consecutive partitions; the first members get one more if needed.

    The same partition numbers of different topics go to the same member, as joins require.
    """

    name = "range"

    def assign(self, members: Sequence[GroupMember], partition_counts: Mapping[str, int]) -> Assignments:
        result: Assignments = {member.member_id: [] for member in members}
        for topic in sorted(partition_counts):
            takers = _takers(members, topic)
            if not takers:
                continue
            share, extra = divmod(partition_counts[topic], len(takers))
            at = 0
            for i, member in enumerate(takers):
                end = at + share + (i < extra)
                result[member.member_id].extend(TopicPartition(topic, partition) for partition in range(at, end))
                at = end
        return result


class RoundRobinAssignor(Assignor):
    """Assigns the partitions of all topics in turn, skipping members that do not subscribe to the topic."""

    name = "roundrobin"

    def assign(self, members: Sequence[GroupMember], partition_counts: Mapping[str, int]) -> Assignments:
        result: Assignments = {member.member_id: [] for member in members}
        turn = cycle(sorted(members, key=_order))
        for topic in sorted(partition_counts):
            if not any(topic in member.topics for member in members):
                continue
            for partition in range(partition_counts[topic]):
                taker = next(member for member in turn if topic in member.topics)
                result[taker.member_id].append(TopicPartition(topic, partition))
        return result


class StickyAssignor(Assignor):
    """As balanced as subscriptions allow, with as few moved partitions as possible (KIP-54)."""

    name = "sticky"

    def user_data(self, owned: Sequence[TopicPartition], generation: int, topics: Sequence[str] = ()) -> bytes | None:
        return encode_sticky_user_data(owned, generation)

    def member(self, member_id: str, group_instance_id: str | None, subscription: Subscription) -> GroupMember:
        """Eager members own nothing while they join. Their previous assignment is in the user data."""
        member = super().member(member_id, group_instance_id, subscription)
        if not subscription.user_data:
            return member
        try:
            owned, generation = decode_sticky_user_data(subscription.user_data)
        except ProtocolError:
            # Bytes of another library. Without them the member has no previous assignment to keep.
            return member
        return msgspec.structs.replace(member, owned=owned, generation=generation)

    def assign(self, members: Sequence[GroupMember], partition_counts: Mapping[str, int]) -> Assignments:
        ordered = sorted(members, key=_order)
        wants = {member.member_id: member.topics for member in ordered}
        kept: Assignments = {member.member_id: [] for member in ordered}
        for partition, owner in owners(ordered).items():
            exists = partition.partition < partition_counts.get(partition.topic, 0)
            if owner is not None and exists and partition.topic in wants[owner]:
                kept[owner].append(partition)
        return balance(wants, kept, partition_counts, _earlier_owners(ordered))


class CooperativeStickyAssignor(StickyAssignor):
    """Sticky in two steps (KIP-429): a partition that must move is assigned to no member until its owner has revoked
    it.

    The owner sees that the partition is not in its assignment, revokes it and rejoins at once. The next assignment
    gives it to its new owner. All other partitions are read without a pause.
    """

    name = "cooperative-sticky"
    protocol = "cooperative"

    def user_data(self, owned: Sequence[TopicPartition], generation: int, topics: Sequence[str] = ()) -> bytes | None:
        return encode_cooperative_user_data(generation)

    def member(self, member_id: str, group_instance_id: str | None, subscription: Subscription) -> GroupMember:
        member = Assignor.member(self, member_id, group_instance_id, subscription)
        if member.generation != NO_GENERATION or not subscription.user_data:
            return member
        try:
            generation = decode_cooperative_user_data(subscription.user_data)
        except ProtocolError:
            return member
        return msgspec.structs.replace(member, generation=generation)

    def assign(self, members: Sequence[GroupMember], partition_counts: Mapping[str, int]) -> Assignments:
        owner_of = owners(members)
        return {
            member_id: [partition for partition in given if owner_of.get(partition, member_id) == member_id]
            for member_id, given in super().assign(members, partition_counts).items()
        }


def owners(members: Sequence[GroupMember]) -> dict[TopicPartition, str | None]:
    """The owner of each claimed partition: the claim of the latest generation counts.

    None when two members claim it in the same generation: one of them has lost it without knowing, so neither may keep
    it. The cooperative assignor withholds it for one round, in which both revoke it.
    """
    found: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in members:
        for partition in member.owned:
            generation, _ = found.get(partition, (NO_GENERATION - 1, None))
            if member.generation > generation:
                found[partition] = (member.generation, member.member_id)
            elif member.generation == generation:
                found[partition] = (generation, None)
    return {partition: owner for partition, (_, owner) in found.items()}


def _earlier_owners(members: Sequence[GroupMember]) -> dict[TopicPartition, str]:
    """Partitions that a member claims in an older generation than another: a member that was away claims them."""
    latest = owners(members)
    return {
        partition: member.member_id
        for member in members
        for partition in member.owned
        if latest[partition] is not None and latest[partition] != member.member_id
    }


RANGE = RangeAssignor()
ROUND_ROBIN = RoundRobinAssignor()
STICKY = StickyAssignor()
COOPERATIVE_STICKY = CooperativeStickyAssignor()

ASSIGNORS: dict[str, Assignor] = {a.name: a for a in (RANGE, ROUND_ROBIN, STICKY, COOPERATIVE_STICKY)}


def assignors_of(strategies: str | Sequence[str | Assignor | type[Assignor]]) -> tuple[Assignor, ...]:
    """The setting `partition_assignment_strategy`: names, assignors, or their classes (as in aiokafka).

    Names may be one comma-separated string, and may be Java class names, as in Kafka's properties. Raises ValueError
    for an unknown or repeated name, or without any.
    """
    listed = [name.strip() for name in strategies.split(",")] if isinstance(strategies, str) else strategies
    chosen: dict[str, Assignor] = {}
    for strategy in listed:
        if isinstance(strategy, str):
            assignor = _named(strategy)
        else:
            assignor = strategy() if isinstance(strategy, type) else strategy
        if assignor.name in chosen:
            raise ValueError(f"partition_assignment_strategy: {assignor.name!r} is listed twice")
        chosen[assignor.name] = assignor
    if not chosen:
        raise ValueError("partition_assignment_strategy: name at least one assignor")
    return tuple(chosen.values())


def _named(name: str) -> Assignor:
    """The assignor by its name, or by Java's: org.apache.kafka.clients.consumer.RangeAssignor."""
    java = name.rpartition(".")[2]
    for assignor in ASSIGNORS.values():
        if name == assignor.name or java == type(assignor).__name__:
            return assignor
    raise ValueError(f"partition_assignment_strategy: {name!r} is unknown; use one of {', '.join(ASSIGNORS)}")


def rebalance_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """Cooperative only when every assignor is: until the group has chosen one, a member must be able to follow each."""
    return "cooperative" if all(a.protocol == "cooperative" for a in assignors) else "eager"


def _takers(members: Sequence[GroupMember], topic: str) -> list[GroupMember]:
    return sorted((member for member in members if topic in member.topics), key=_order)


def _order(member: GroupMember) -> tuple[bool, str]:
    return member.order
