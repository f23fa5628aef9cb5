"""The requests of group members and their answers, independent of API versions."""

from __future__ import annotations

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.groups.group import Protocols


class GroupRules(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that decide (`group.initial.rebalance.delay.ms`, `group.max.size`)."""

    initial_rebalance_delay_ms: int = 0
    size_max: int = (1 << 31) - 1


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


class MemberIdRequiredError(KafkaError):
    """A new member has to join again as `member_id` (KIP-394)."""

    def __init__(self, member_id: str) -> None:
        super().__init__(ErrorCode.MEMBER_ID_REQUIRED, f"join again as {member_id}")
        self.member_id = member_id


class UpgradedError(KafkaError):
    """The group has changed to the consumer protocol while this JoinGroup or SyncGroup waited."""

    def __init__(self, group_id: str) -> None:
        super().__init__(ErrorCode.REBALANCE_IN_PROGRESS, f"{group_id} is rebalancing: join again")


class Answer(msgspec.Struct, frozen=True):
    """The answer to one request. `to` is the object that came with the request."""

    to: object
    result: Joined | Synced | KafkaError
