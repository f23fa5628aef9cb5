"""The requests of members of the classic protocol and their answers, independent of API versions.

A group of the consumer protocol may have such members, too.
"""

from __future__ import annotations

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of the assignors that a member supports, in the order of its preference."""


class TimePoint(msgspec.Struct, frozen=True, gc=False):
    """A point in time. Sessions and deadlines use the monotonic clock; records carry wall time."""

    monotonic_ms: int
    wall_ms: int


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """JoinGroup. `new_member_id`: the id to give if the request has none (`member_id` ""). `must_return`: a dynamic
    new member first gets its id and has to join again with it (KIP-394, v4). `may_skip_assignment`: it understands
    a leader that is not to assign (KIP-814, v9)."""

    member_id: str
    new_member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    must_return: bool = False
    may_skip_assignment: bool = False


class JoinedMember(msgspec.Struct, frozen=True):
    """One member as the leader gets it, with its metadata for the assignor."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """A member's place in a generation. `members`: all of them, for the leader alone."""

    member_id: str
    generation_id: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class Sync(msgspec.Struct, frozen=True, kw_only=True):
    """SyncGroup. `protocol_type` and `protocol`: the member's view of the choice (v5), None: not said."""

    member_id: str
    instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol: str | None
    assignments: dict[str, bytes]


class Synced(msgspec.Struct, frozen=True):
    """A member's assignment, with the protocol it was made by."""

    protocol_type: str
    protocol: str | None
    assignment: bytes


class Committer(msgspec.Struct, frozen=True, gc=False):
    """The sender of a commit of offsets, as the request names it. Generation -1: no member, a simple consumer or an
    administrator. `has_epochs`: whether the version of the request has member epochs (KIP-848)."""

    member_id: str = ""
    instance_id: str | None = None
    generation_id: int = -1
    has_epochs: bool = True

    @property
    def is_anonymous(self) -> bool:
        """Whether the request names no member."""
        return not self.member_id and self.instance_id is None


class MemberIdRequiredError(KafkaError):
    """A new member has to join again as `member_id` (KIP-394)."""

    def __init__(self, member_id: str) -> None:
        super().__init__(ErrorCode.MEMBER_ID_REQUIRED, f"join again as {member_id}")
        self.member_id = member_id


class KindChangedError(KafkaError):
    """The group has become one of another kind while this JoinGroup, SyncGroup or LeaveGroup waited."""

    def __init__(self, group_id: str) -> None:
        super().__init__(ErrorCode.REBALANCE_IN_PROGRESS, f"{group_id} is rebalancing: join again")
