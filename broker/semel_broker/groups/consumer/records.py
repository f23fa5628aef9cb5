"""PURE: The changes of a group of the consumer protocol as records of `__consumer_offsets`, and back.

Byte for byte Kafka's, key versions 3 to 8 and 16. Kafka 4.1 replaced the record of the topics (key version 4) by a hash
in the group's record; it still reads that record.
"""

from __future__ import annotations

from collections.abc import Sequence

from semel_protocol.schema import Message
from semel_storage.internal_topics import (
    CONSUMER_GROUP_VALUE,
    CONSUMER_GROUP_VALUES,
    VERSIONS,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupCurrentMemberAssignmentValueTopic,
    ConsumerGroupKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMemberMetadataValueClassic,
    ConsumerGroupMemberMetadataValueProtocol,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupPartitionMetadataValueTopic,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMemberValueTopic,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    Row,
    decode_versioned,
    encode_versioned,
)

from semel_broker.groups.consumer.model import (
    Change,
    Classic,
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
    TopicFacts,
    TopicIdPartitions,
    by_topic,
)


def rows(group_id: str, changes: Sequence[Change]) -> list[Row]:
    """The records of these changes."""
    return [_row(*_record(group_id, change)) for change in changes]


def change_of(key: ConsumerGroupKey, raw_value: bytes | None) -> Change:
    """The change that a record stores. Raises ProtocolError for a value that is malformed or of an unknown version."""
    value = None if raw_value is None else decode_versioned(CONSUMER_GROUP_VALUES[type(key)], raw_value)
    match key, value:
        case ConsumerGroupMetadataKey(), ConsumerGroupMetadataValue():
            return SetEpoch(value.epoch)
        case ConsumerGroupPartitionMetadataKey(), ConsumerGroupPartitionMetadataValue():
            return SetTopics({row.topic_name: TopicFacts(row.topic_id, row.num_partitions) for row in value.topics})
        case ConsumerGroupMemberMetadataKey(), ConsumerGroupMemberMetadataValue():
            return SetMember(key.member_id, _member(key.member_id, value))
        case ConsumerGroupTargetAssignmentMetadataKey(), ConsumerGroupTargetAssignmentMetadataValue():
            return SetAssignmentEpoch(value.assignment_epoch)
        case ConsumerGroupTargetAssignmentMemberKey(), ConsumerGroupTargetAssignmentMemberValue():
            return SetTarget(key.member_id, _places(value.topic_partitions))
        case ConsumerGroupCurrentMemberAssignmentKey(), ConsumerGroupCurrentMemberAssignmentValue():
            return SetCurrent(key.member_id, _current(value))
        case ConsumerGroupRegularExpressionKey(), ConsumerGroupRegularExpressionValue():
            return SetRegex(key.regular_expression, Resolved(tuple(value.topics), timestamp_ms=value.timestamp))
    return _deletion(key)


def _deletion(key: ConsumerGroupKey) -> Change:
    match key:
        case ConsumerGroupMetadataKey():
            return SetEpoch(None)
        case ConsumerGroupPartitionMetadataKey():
            return SetTopics(None)
        case ConsumerGroupMemberMetadataKey():
            return SetMember(key.member_id, None)
        case ConsumerGroupTargetAssignmentMetadataKey():
            return SetAssignmentEpoch(None)
        case ConsumerGroupTargetAssignmentMemberKey():
            return SetTarget(key.member_id, None)
        case ConsumerGroupCurrentMemberAssignmentKey():
            return SetCurrent(key.member_id, None)
        case ConsumerGroupRegularExpressionKey():
            return SetRegex(key.regular_expression, None)


def _record(group: str, change: Change) -> tuple[ConsumerGroupKey, Message | None]:
    match change:
        case SetEpoch(epoch):
            return ConsumerGroupMetadataKey(group=group), None if epoch is None else ConsumerGroupMetadataValue(
                epoch=epoch
            )
        case SetTopics(topics):
            return ConsumerGroupPartitionMetadataKey(group=group), None if topics is None else _topics_value(topics)
        case SetMember(member_id, member):
            key = ConsumerGroupMemberMetadataKey(group=group, member_id=member_id)
            return key, None if member is None else _member_value(member)
        case SetAssignmentEpoch(epoch):
            made = None if epoch is None else ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
            return ConsumerGroupTargetAssignmentMetadataKey(group=group), made
        case SetTarget(member_id, places):
            target_key = ConsumerGroupTargetAssignmentMemberKey(group=group, member_id=member_id)
            return target_key, None if places is None else _target_value(places)
        case SetCurrent(member_id, current):
            current_key = ConsumerGroupCurrentMemberAssignmentKey(group=group, member_id=member_id)
            return current_key, None if current is None else _current_value(current)
        case SetRegex(regex, resolved):
            regex_key = ConsumerGroupRegularExpressionKey(group=group, regular_expression=regex)
            return regex_key, None if resolved is None else _regex_value(resolved)


def _row(key: ConsumerGroupKey, value: Message | None) -> Row:
    encoded = None if value is None else encode_versioned(value, CONSUMER_GROUP_VALUE)
    return encode_versioned(key, VERSIONS[type(key)][0]), encoded


# --- values -----------------------------------------------------------------------------------------------------------


def _topics_value(topics: dict[str, TopicFacts]) -> ConsumerGroupPartitionMetadataValue:
    return ConsumerGroupPartitionMetadataValue(
        topics=[
            ConsumerGroupPartitionMetadataValueTopic(
                topic_id=facts.topic_id, topic_name=name, num_partitions=facts.partition_count
            )
            for name, facts in topics.items()
        ]
    )


def _member_value(member: Member) -> ConsumerGroupMemberMetadataValue:
    return ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=None if member.classic is None else _classic_value(member.classic),
    )


def _classic_value(classic: Classic) -> ConsumerGroupMemberMetadataValueClassic:
    row = ConsumerGroupMemberMetadataValueProtocol
    return ConsumerGroupMemberMetadataValueClassic(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=[row(name=name, metadata=metadata) for name, metadata in classic.protocols],
    )


def _member(member_id: str, value: ConsumerGroupMemberMetadataValue) -> Member:
    former = value.classic_member_metadata
    return Member(
        member_id=member_id,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=tuple(value.subscribed_topic_names),
        regex=value.subscribed_topic_regex or None,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=None
        if former is None
        else Classic(former.session_timeout_ms, tuple((row.name, row.metadata) for row in former.supported_protocols)),
    )


def _target_value(places: TopicIdPartitions) -> ConsumerGroupTargetAssignmentMemberValue:
    row = ConsumerGroupTargetAssignmentMemberValueTopic
    return ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[row(topic_id=each, partitions=found) for each, found in by_topic(places).items()]
    )


def _current_value(current: Current) -> ConsumerGroupCurrentMemberAssignmentValue:
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state.value,
        assigned_partitions=_current_rows(current.assigned),
        partitions_pending_revocation=_current_rows(current.revoking),
    )


def _current_rows(places: TopicIdPartitions) -> list[ConsumerGroupCurrentMemberAssignmentValueTopic]:
    row = ConsumerGroupCurrentMemberAssignmentValueTopic
    return [row(topic_id=each, partitions=found) for each, found in by_topic(places).items()]


def _current(value: ConsumerGroupCurrentMemberAssignmentValue) -> Current:
    return Current(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state),
        assigned=_places(value.assigned_partitions),
        revoking=_places(value.partitions_pending_revocation),
    )


def _places(
    rows: Sequence[ConsumerGroupTargetAssignmentMemberValueTopic]
    | Sequence[ConsumerGroupCurrentMemberAssignmentValueTopic],
) -> TopicIdPartitions:
    return frozenset((row.topic_id, partition) for row in rows for partition in row.partitions)


def _regex_value(resolved: Resolved) -> ConsumerGroupRegularExpressionValue:
    return ConsumerGroupRegularExpressionValue(
        topics=list(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
