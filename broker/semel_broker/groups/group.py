"""What a consumer group is: its members, its generation, its offsets. Data and the small moves that keep it whole.

Nothing here waits, reads a clock or answers anybody; `state.py` decides, `coordinator.py` carries out.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.answers import CloseConnectionError
from semel_broker.groups.offsets import GroupOffsets
from semel_broker.groups.subscription import subscribed_topics

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of the assignors that a member speaks, the one it likes best first."""

CONSUMER = "consumer"
"""The protocol type of consumers, whose metadata the broker can read as far as their topics."""


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
"""Which state may follow which. Any other pair is a bug of ours."""


class Member(msgspec.Struct, kw_only=True):
    """One member. `expires_ms`: when its session ends, on the monotonic clock. `joining` and `syncing`: whom to
    answer when the join or the sync completes (opaque here; None: nobody waits). `commits_over`: the number of the
    newest connection that it has committed offsets over."""

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
    commits_over: int = 0

    def has_committed_over(self, connection: int) -> None:
        """The newest connection wins: an OffsetCommit that was given up with its connection, and sent again, must not
        take offsets back when it arrives at last. `connection`: its number; 0 if it does not matter.

        Raises CloseConnectionError; nobody listens at the other end.
        """
        if 0 < connection < self.commits_over:
            raise CloseConnectionError("stale_connection", member=self.member_id)
        self.commits_over = connection or self.commits_over

    def metadata_for(self, protocol: str | None) -> bytes:
        """What the member says to the assignor `protocol`; b"" if it does not speak it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""


class Group(msgspec.Struct, kw_only=True):
    """One group. Members are kept in the order in which they came.

    `pending`: ids handed out with MEMBER_ID_REQUIRED that nobody has joined with yet, and when they lapse.
    `deadline_ms`: when the phase under way ends without those who are missing (monotonic; None: no such phase).
    `initial_limit_ms`: while an empty group waits for more members to come, the latest end of that wait.
    `since_ms`: wall time of the last change of state; offsets of an empty group age from there.
    """

    group_id: str
    state: GroupState = GroupState.EMPTY
    protocol_type: str = ""
    protocol: str | None = None
    generation_id: int = 0
    leader: str | None = None
    members: dict[str, Member] = {}
    static_members: dict[str, str] = {}
    pending: dict[str, int] = {}
    supported: dict[str, int] = {}
    joining_count: int = 0
    deadline_ms: int | None = None
    initial_limit_ms: int | None = None
    since_ms: int = -1
    offsets: GroupOffsets = msgspec.field(default_factory=GroupOffsets)

    # --- state ---

    def enter(self, state: GroupState, wall_ms: int) -> None:
        """Change state, as `NEXT` allows."""
        assert state in NEXT[self.state], f"{self.group_id}: {self.state} -> {state}"
        self.state = state
        self.since_ms = wall_ms
        self.deadline_ms = None
        self.initial_limit_ms = None

    @property
    def everybody_joined(self) -> bool:
        """All members wait for the next generation, and nobody was asked to come back with an id."""
        return self.joining_count == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The most patient member's."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def is_disposable(self) -> bool:
        """Nothing would be forgotten with it: it never had a generation and holds no offsets."""
        return self.state is GroupState.EMPTY and not (self.generation_id or self.pending or self.offsets)

    # --- members ---

    def add(self, member: Member) -> None:
        """Take `member` in; the first one sets the group's protocol type and leads it."""
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
        self.pending.pop(member.member_id, None)

    def remove(self, member: Member) -> None:
        """Let `member` go; if it led, the one who came next leads."""
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        self._count(member.protocols, -1)
        self.joining_count -= member.joining is not None
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def rename(self, member: Member, member_id: str) -> None:
        """A static member's new incarnation takes its place: same seat, new id."""
        assert member_id not in self.members
        old_id = member.member_id
        self.members = {(member_id if key == old_id else key): value for key, value in self.members.items()}
        member.member_id = member_id
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member_id
        if self.leader == old_id:
            self.leader = member_id

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, +1)

    def set_joining(self, member: Member, to: object | None) -> object | None:
        """From now on `to` waits for `member`'s join (None: nobody); returns who did until now."""
        before, member.joining = member.joining, to
        self.joining_count += (to is not None) - (before is not None)
        return before

    def find(self, member_id: str, instance_id: str | None) -> Member:
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

    def can_speak(self, protocol_type: str, protocols: Protocols, instead_of: Member | None = None) -> bool:
        """Whether a member of these protocols fits in (in the place of `instead_of`, if it is one already)."""
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
        """The assignor that all members speak and most like best; of equals, the first voted for."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next(name for name, _ in member.protocols if self.supported[name] == len(self.members))
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def _count(self, protocols: Protocols, by: int) -> None:
        for name in dict.fromkeys(name for name, _ in protocols):
            self.supported[name] = self.supported.get(name, 0) + by
            if not self.supported[name]:
                del self.supported[name]

    # --- for those who look on ---

    def topics_read(self) -> frozenset[str] | None:
        """The topics that members read; None: the broker cannot tell."""
        if self.members and self.protocol_type != CONSUMER:
            return None
        return subscribed_topics(member.metadata_for(self.protocol) for member in self.members.values())

    def waiting(self) -> Iterator[Member]:
        """Members that somebody waits for."""
        return (m for m in self.members.values() if m.joining is not None or m.syncing is not None)
