"""PURE: A group of the classic protocol: its members and its generation, with operations that keep them consistent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import ClassVar, Final

import msgspec
from semel_protocol.consumer_protocol import PROTOCOL_TYPE
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.groups.embedded import assignment_of, owned_by, subscribed_topics, subscription_of
from semel_broker.groups.requests import Protocols

CLASSIC: Final = "classic"


class GroupState(Enum):
    """The states of a classic group, under the names that DescribeGroups and ListGroups show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


NEXT: dict[GroupState, tuple[GroupState, ...]] = {
    GroupState.EMPTY: (GroupState.PREPARING_REBALANCE, GroupState.DEAD),
    GroupState.PREPARING_REBALANCE: (GroupState.COMPLETING_REBALANCE, GroupState.EMPTY),
    GroupState.COMPLETING_REBALANCE: (GroupState.STABLE, GroupState.PREPARING_REBALANCE),
    GroupState.STABLE: (GroupState.PREPARING_REBALANCE,),
    GroupState.DEAD: (),
}
"""All transitions between states."""


class ClassicMember(msgspec.Struct, kw_only=True):
    """One member. `expires_ms`: when its session ends, on the monotonic clock. `joining` and `syncing`: the future to
    resolve when the join or the sync completes (opaque here; None: no request waits). `carried_epoch`: the member's
    epoch in the consumer protocol, which the group has just left; None once the next generation has begun."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    expires_ms: int = 0
    is_new: bool = True
    synced: bool = True
    joining: object | None = None
    syncing: object | None = None
    carried_epoch: int | None = None

    def causes(self, cause: str) -> RebalanceCause:
        """The cause of a rebalance that begins because of this member."""
        return RebalanceCause(cause, self.member_id, self.client_id, self.client_host)

    def metadata_for(self, protocol: str | None) -> bytes:
        """The member's metadata for the assignor `protocol`; b"" if it does not support it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""


class RebalanceCause(msgspec.Struct, frozen=True):
    """Why a generation begins, for the log: the cause, and the member that joined, left or was removed, with its client
    id and host. Empty texts: it is not known, as after a restart."""

    cause: str = ""
    member: str = ""
    client_id: str = ""
    client_host: str = ""


class ClassicMembership(msgspec.Struct, kw_only=True):
    """The members of one group, in the order in which they came, and their generation.

    `pending`: ids given with MEMBER_ID_REQUIRED and not joined with yet -> when they lapse.
    `awaited`: those of them that a rebalance waits for -> until when.
    `deadline_ms`: when the present phase ends without the missing members (monotonic; None: no such phase).
    `initial_limit_ms`: while an empty group waits for more members to come, the latest end of that wait.
    `since_ms`: wall time of the last change of state; offsets of an empty group age from there.
    `because`: why the last rebalance began.
    """

    kind: ClassVar[str] = CLASSIC

    group_id: str
    state: GroupState = GroupState.EMPTY
    protocol_type: str = ""
    protocol: str | None = None
    generation_id: int = 0
    leader: str | None = None
    members: dict[str, ClassicMember] = {}
    static_members: dict[str, str] = {}
    pending: dict[str, int] = {}
    awaited: dict[str, int] = {}
    supported: dict[str, int] = {}
    joining_count: int = 0
    deadline_ms: int | None = None
    initial_limit_ms: int | None = None
    since_ms: int = -1
    because: RebalanceCause = RebalanceCause()

    # --- state ---

    def enter(self, state: GroupState, wall_ms: int) -> None:
        """Change state, as `NEXT` allows."""
        assert state in NEXT[self.state], f"{self.group_id}: {self.state} -> {state}"
        self.state = state
        self.since_ms = wall_ms
        self.deadline_ms = None
        self.initial_limit_ms = None

    @property
    def all_joined(self) -> bool:
        """Whether all members wait for the next generation, and no new member is about to join with its id."""
        return self.joining_count == len(self.members) and not self.awaited

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of a member."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def is_unused(self) -> bool:
        return self.is_empty and not self.pending

    @property
    def is_blank(self) -> bool:
        return self.is_unused and not self.generation_id

    def unused_since_ms(self) -> int | None:
        """Of an empty group the time for which it has been empty counts; of one that never had members, each commit."""
        if self.state not in (GroupState.EMPTY, GroupState.STABLE):
            return None
        return self.since_ms if self.is_empty and self.protocol_type else -1

    def end(self, wall_ms: int) -> None:
        self.enter(GroupState.DEAD, wall_ms)

    # --- members ---

    def add(self, member: ClassicMember) -> None:
        """Add `member`; the first one sets the group's protocol type and leads it."""
        assert member.member_id not in self.members
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members
            self.static_members[member.instance_id] = member.member_id
        self._count(member.protocols, +1)
        self.joining_count += member.joining is not None
        self.forget_id(member.member_id)

    def remove(self, member: ClassicMember) -> None:
        """Remove `member`; if it was the leader, the longest-standing member leads."""
        assert self.members[member.member_id] is member
        del self.members[member.member_id]
        if member.instance_id is not None:
            assert self.static_members[member.instance_id] == member.member_id
            del self.static_members[member.instance_id]
        self._count(member.protocols, -1)
        self.joining_count -= member.joining is not None
        assert 0 <= self.joining_count <= len(self.members), self.group_id
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def forget_id(self, member_id: str) -> bool:
        """Forget an id given with MEMBER_ID_REQUIRED; False: it was none."""
        self.awaited.pop(member_id, None)
        return self.pending.pop(member_id, None) is not None

    def restore(self, members: Iterable[ClassicMember], protocol: str | None, leader: str | None) -> None:
        """Put members into a group that has none; they go on. Without a `leader` they have to join again."""
        assert not self.members
        for member in members:
            assert member.joining is None, "a member of a record waits for nothing"
            self.add(member)
        self.protocol = protocol
        self.leader = leader if leader in self.members else next(iter(self.members), None)
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY

    def rename(self, member: ClassicMember, member_id: str) -> None:
        """A static member's new incarnation takes its place under a new id."""
        assert member_id not in self.members
        old_id = member.member_id
        self.members = {(member_id if key == old_id else key): value for key, value in self.members.items()}
        member.member_id = member_id
        if member.instance_id is not None:
            assert self.static_members[member.instance_id] == old_id
            self.static_members[member.instance_id] = member_id
        if self.leader == old_id:
            self.leader = member_id

    def set_protocols(self, member: ClassicMember, protocols: Protocols) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, +1)

    def set_joining(self, member: ClassicMember, to: object | None) -> object | None:
        """Set the future of `member`'s join (None: no request waits); returns the previous one."""
        assert self.members[member.member_id] is member
        before, member.joining = member.joining, to
        self.joining_count += (to is not None) - (before is not None)
        return before

    def find(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member of this identity. Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another incarnation of
        the same instance has taken over (KIP-345)."""
        if instance_id is not None:
            owner = self.static_members.get(instance_id)
            if owner is None:
                raise KafkaError(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {instance_id}: join again"
                )
            if owner != member_id:
                raise KafkaError(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"a newer member has taken over the instance id {instance_id}: let only one client use it",
                )
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of {self.group_id}: join again")
        return member

    # --- protocols ---

    def supports(self, protocol_type: str, protocols: Protocols, instead_of: ClassicMember | None = None) -> bool:
        """Whether the group and these protocols share one (in the place of `instead_of`, if the member is known)."""
        if not protocol_type or not protocols:
            return False
        others = len(self.members) - (instead_of is not None)
        if others == 0:
            return True
        if protocol_type != self.protocol_type:
            return False
        own = {name for name, _ in instead_of.protocols} if instead_of is not None else ()
        return any(self.supported.get(name, 0) - (name in own) == others for name, _ in protocols)

    def choose_protocol(self) -> str:
        """The assignor that all members support and most prefer; of equals, the first voted for."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next(name for name, _ in member.protocols if self.supported[name] == len(self.members))
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def _count(self, protocols: Protocols, by: int) -> None:
        for name in dict.fromkeys(name for name, _ in protocols):
            self.supported[name] = self.supported.get(name, 0) + by
            assert self.supported[name] >= 0, (self.group_id, name)
            if not self.supported[name]:
                del self.supported[name]

    # --- reading ---

    def topics_read(self) -> frozenset[str] | None:
        """The topics that members read; None: the broker cannot read their metadata."""
        if self.members and self.protocol_type != PROTOCOL_TYPE:
            return None
        return subscribed_topics(member.metadata_for(self.protocol) for member in self.members.values())

    def given_up_by(self, member: ClassicMember) -> frozenset[tuple[str, int]]:
        """The (topic, partition) that `member` owned when it joined this generation, and that no member has in it.

        A cooperative member first revokes such partitions, and then joins again: only the next generation assigns them
        (KIP-429). Empty if the broker cannot read what the members say.
        """
        metadata = member.metadata_for(self.protocol)
        subscription = subscription_of(metadata) if self.protocol_type == PROTOCOL_TYPE else None
        assigned = assignment_of(member.assignment)
        if subscription is None or assigned is None:
            return frozenset()
        given_up = frozenset(owned_by(subscription)).difference(assigned)
        if given_up and (read := self.topics_read()) is not None:
            given_up = frozenset(place for place in given_up if place[0] in read)
        for other in self.members.values() if given_up else ():
            if (assigned := assignment_of(other.assignment)) is None:
                return frozenset()
            given_up = given_up.difference(assigned)
        return given_up

    def waiting(self) -> Iterator[ClassicMember]:
        """Members with a JoinGroup or SyncGroup that waits."""
        return (m for m in self.members.values() if m.joining is not None or m.syncing is not None)
