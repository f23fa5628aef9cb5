"""PURE: Groups and offsets as records of `__consumer_offsets`, and back.

Byte for byte Kafka's: key version 1 for an offset, 2 for a group; an offset's value has version 4, which can say which
topic of that name it is for (one whose committer asked for an expiry of its own: version 1, which has a field for that
and none for the topic's id), a group's version 3.
"""

from __future__ import annotations

from collections.abc import Sequence

from semel_storage.internal_topics import (
    GROUP_METADATA_KEY,
    GROUP_METADATA_VALUE,
    OFFSET_COMMIT_KEY,
    OFFSET_COMMIT_VALUE,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupMetadataValueMember,
    OffsetCommitKey,
    OffsetCommitValue,
    Row,
    encode_versioned,
)

from semel_broker.groups.group import CONSUMER, ClassicMember, Group
from semel_broker.groups.migration import Downgrade
from semel_broker.groups.offsets import NO_EXPIRY, CommittedOffset, OffsetRecord
from semel_broker.groups.requests import TimePoint
from semel_broker.groups.state import Assign, Change, Empty, Replace

OFFSET_COMMIT_VALUE_WITH_EXPIRY = 1


def offset_rows(group_id: str, records: Sequence[OffsetRecord]) -> list[Row]:
    """The records that store these commits, and tombstones for deleted offsets."""
    return [
        (
            encode_versioned(
                OffsetCommitKey(group=group_id, topic=record.topic, partition=record.partition), OFFSET_COMMIT_KEY
            ),
            None if record.committed is None else _offset_value(record.committed),
        )
        for record in records
    ]


def _offset_value(committed: CommittedOffset) -> bytes:
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    asks = committed.expire_timestamp_ms != NO_EXPIRY
    return encode_versioned(value, OFFSET_COMMIT_VALUE_WITH_EXPIRY if asks else OFFSET_COMMIT_VALUE)


def offset_of(key: OffsetCommitKey, value: OffsetCommitValue | None) -> OffsetRecord:
    """The commit that an offset's record stores."""
    if value is None:
        return OffsetRecord(key.topic, key.partition, None)
    committed = CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )
    return OffsetRecord(key.topic, key.partition, committed)


def group_row(group: Group, change: Change, now: TimePoint) -> Row:
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


def downgraded_row(downgrade: Downgrade, wall_ms: int) -> Row:
    """The record of a group that leaves the consumer protocol. It names no leader: all members have to join."""
    value = GroupMetadataValue(
        protocol_type=CONSUMER,
        generation=downgrade.generation_id,
        protocol=downgrade.protocol,
        leader=None,
        current_state_timestamp=wall_ms,
        members=[
            GroupMetadataValueMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata_for(downgrade.protocol),
                assignment=member.assignment,
            )
            for member in downgrade.members
        ],
    )
    return _group_key(downgrade.group_id), encode_versioned(value, GROUP_METADATA_VALUE)


def group_tombstone(group_id: str) -> Row:
    """The tombstone of a group."""
    return _group_key(group_id), None


def restore(group: Group, value: GroupMetadataValue, now: TimePoint, grace_ms: int = 0) -> None:
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


def _member_value(group: Group, member: ClassicMember, change: Change) -> GroupMetadataValueMember:
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
