"""PURE. Who reads which partition: range, roundrobin, sticky, cooperative-sticky, as Kafka's assignors of these names.

The leader of a group calls `assign`; every member calls `user_data` before it joins, so that the next leader, whichever
client library it is, knows what the member had. Rack-aware placement (KIP-881) is not done: it needs replica racks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import ClassVar, Literal

import msgspec
from semel_protocol.errors import ProtocolError

from semel._assignment.protocol import (
    NO_GENERATION,
    Subscription,
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
"""Member id -> partitions; every member has an entry."""


class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member as the leader sees it: what it wants and what it says it owns, as of which generation."""

    member_id: str
    group_instance_id: str | None = None
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION

    @property
    def order(self) -> tuple[bool, str]:
        """Static members first and by instance id, so that a restart under a new member id moves nothing (KIP-345)."""
        if self.group_instance_id is not None:
            return (False, self.group_instance_id)
        return (True, self.member_id)


class Assignor(ABC):
    """One strategy. `protocol` says what its members do with their partitions when a rebalance starts (KIP-429)."""

    name: ClassVar[str]
    protocol: ClassVar[RebalanceProtocol] = "eager"

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        """Bytes of this strategy's own for the subscription. `owned`: what the member had in `generation`."""
        return None

    def member(self, member_id: str, group_instance_id: str | None, subscription: Subscription) -> GroupMember:
        """The member behind a subscription as it came over the wire."""
        return GroupMember(
            member_id=member_id,
            group_instance_id=group_instance_id,
            topics=tuple(subscription.topics),
            owned=partitions_of(subscription.owned_partitions),
            generation=subscription.generation_id,
        )

    @abstractmethod
    def assign(self, members: Sequence[GroupMember], partition_counts: Mapping[str, int]) -> Assignments:
        """Gives each partition of each wanted topic to one member that wants the topic.

        `partition_counts` has the topics that exist; the others are left out until metadata knows them.
        """


class RangeAssignor(Assignor):
    """Topic by topic, each member a run of neighbouring partitions; the first members get one more where it must be.

    Equal partition numbers of different topics meet at the same member, which joins rely on.
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
    """All partitions of all topics dealt out in turn, past the members that do not want the topic."""

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
    """As balanced as subscriptions allow, and among those the assignment that moves the fewest partitions (KIP-54)."""

    name = "sticky"

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        return encode_sticky_user_data(owned, generation)

    def member(self, member_id: str, group_instance_id: str | None, subscription: Subscription) -> GroupMember:
        """Eager members own nothing while they join; what they had stands in the user data."""
        member = super().member(member_id, group_instance_id, subscription)
        if not subscription.user_data:
            return member
        try:
            owned, generation = decode_sticky_user_data(subscription.user_data)
        except ProtocolError:
            # Another library's bytes: without them the member merely has nothing to stick to.
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
        return balance(wants, kept, partition_counts)


class CooperativeStickyAssignor(StickyAssignor):
    """Sticky in two steps (KIP-429): a partition that must move is given to nobody until its owner has let go of it.

    The owner, seeing it gone from its assignment, revokes it and rejoins at once; the next assignment gives it away.
    All other partitions are read without a pause.
    """

    name = "cooperative-sticky"
    protocol = "cooperative"

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
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
    """Who owns each claimed partition: the claim of the latest generation counts.

    None when two members claim it in the same generation: one of them has lost it without knowing, so neither may keep
    it (it is withheld for a round by the cooperative assignor, which makes both let go).
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


RANGE = RangeAssignor()
ROUND_ROBIN = RoundRobinAssignor()
STICKY = StickyAssignor()
COOPERATIVE_STICKY = CooperativeStickyAssignor()

ASSIGNORS: dict[str, Assignor] = {a.name: a for a in (RANGE, ROUND_ROBIN, STICKY, COOPERATIVE_STICKY)}


def assignors_of(strategies: str | Sequence[str | Assignor | type[Assignor]]) -> tuple[Assignor, ...]:
    """The setting `partition_assignment_strategy`: names, assignors, or (as aiokafka takes them) their classes.

    Names may also come as one string with commas between them, and be those of Java's classes, as in Kafka's
    properties. Raises ValueError for an unknown or doubled name, or for none at all.
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
    """By its name, or by Java's: org.apache.kafka.clients.consumer.RangeAssignor."""
    java = name.rpartition(".")[2]
    for assignor in ASSIGNORS.values():
        if name == assignor.name or java == type(assignor).__name__:
            return assignor
    raise ValueError(f"partition_assignment_strategy: {name!r} is none of {', '.join(ASSIGNORS)}")


def rebalance_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """Cooperative only when every listed assignor is: until the group has chosen, a member must suit them all."""
    return "cooperative" if all(a.protocol == "cooperative" for a in assignors) else "eager"


def _takers(members: Sequence[GroupMember], topic: str) -> list[GroupMember]:
    return sorted((member for member in members if topic in member.topics), key=_order)


def _order(member: GroupMember) -> tuple[bool, str]:
    return member.order
