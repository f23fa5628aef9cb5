"""PURE: Groups of the classic protocol as records of `__consumer_offsets`, and back.

Byte for byte Kafka's: key version 2, value version 3.
"""

from __future__ import annotations

from semel_storage.internal_topics import (
    GROUP_METADATA_KEY,
    GROUP_METADATA_VALUE,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupMetadataValueMember,
    Row,
    encode_versioned,
)

from semel_broker.groups.classic.group import ClassicMember, ClassicMembership
from semel_broker.groups.classic.state import Assign, Change, Empty, Replace
from semel_broker.groups.requests import TimePoint


def group_row(group: ClassicMembership, change: Change, now: TimePoint) -> Row:
    """The record of the group as it will be once `change` is applied."""
    emptied = isinstance(change, Empty)
    leader = group.leader
    if isinstance(change, Replace) and leader == change.old_member_id:
        leader = change.ask.new_member_id
    value = GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=change.generation_id,
        protocol=None if emptied else group.protocol,
        leader=None if emptied else leader,
        current_state_timestamp=now.wall_ms,
        members=[] if emptied else [_member_value(group, member, change) for member in group.members.values()],
    )
    return _group_key(group.group_id), encode_versioned(value, GROUP_METADATA_VALUE)


def downgraded_row(group: ClassicMembership) -> Row:
    """The record of a group that leaves the consumer protocol. It names no leader: all members have to join."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation_id,
        protocol=group.protocol,
        leader=None,
        current_state_timestamp=group.since_ms,
        members=[_member_value(group, member) for member in group.members.values()],
    )
    return _group_key(group.group_id), encode_versioned(value, GROUP_METADATA_VALUE)


def group_tombstone(group_id: str) -> Row:
    """The tombstone of a group."""
    return _group_key(group_id), None


def restore(group: ClassicMembership, value: GroupMetadataValue, now: TimePoint, grace_ms: int = 0) -> None:
    """Put a stored generation into a group that has no members: its members continue, each with a full session
    timeout until its next heartbeat. A generation without a leader was stored when the group left the consumer
    protocol. `grace_ms`: for so long a former coordinator may still answer heartbeats."""
    members = []
    group.protocol_type = value.protocol_type
    group.generation_id = value.generation
    group.since_ms = value.current_state_timestamp
    for row in value.members:
        member = ClassicMember(
            member_id=row.member_id,
            instance_id=row.group_instance_id,
            client_id=row.client_id,
            client_host=row.client_host,
            session_timeout_ms=row.session_timeout,
            rebalance_timeout_ms=row.rebalance_timeout or row.session_timeout,
            protocol_type=value.protocol_type,
            protocols=((value.protocol or "", row.subscription),),
            assignment=row.assignment,
            expires_ms=now.monotonic_ms + row.session_timeout + grace_ms,
            is_new=False,
            carried_epoch=value.generation if value.leader is None else None,
        )
        members.append(member)
    group.restore(members, value.protocol, value.leader)


def _group_key(group_id: str) -> bytes:
    return encode_versioned(GroupMetadataKey(group=group_id), GROUP_METADATA_KEY)


def _member_value(
    group: ClassicMembership, member: ClassicMember, change: Change | None = None
) -> GroupMetadataValueMember:
    value = GroupMetadataValueMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.metadata_for(group.protocol),
        assignment=member.assignment,
    )
    if isinstance(change, Assign):
        value.assignment = change.assignments.get(member.member_id, b"")
    elif isinstance(change, Replace) and member.member_id == change.old_member_id:
        ask = change.ask
        value.member_id = ask.new_member_id
        value.client_id, value.client_host = ask.client_id, ask.client_host
        value.rebalance_timeout, value.session_timeout = ask.rebalance_timeout_ms, ask.session_timeout_ms
        value.subscription = dict(reversed(ask.protocols)).get(group.protocol or "", b"")
    return value
