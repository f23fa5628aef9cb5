"""Consumer groups: list, describe, delete; their committed offsets: list, alter, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from semel_protocol.acls import Operation
from semel_protocol.consumer_protocol import PROTOCOL_TYPE, Subscription, decode_embedded
from semel_protocol.errors import ErrorCode, ProtocolError
from semel_protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from semel_protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from semel_protocol.messages.k15_describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseMember,
)
from semel_protocol.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse
from semel_protocol.messages.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from semel_protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from semel_protocol.messages.k69_consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeResponseMember,
    ConsumerGroupDescribeResponseTopicPartitions,
)

from semel._admin.types import GROUP_STATES, ConsumerGroupDescription, ConsumerGroupListing, MemberDescription
from semel._assignment.protocol import decode_assignment
from semel._net.calls import CallOutcomes, Calls, grouped, settled
from semel._net.connection import Connection
from semel._net.pool import ConnectionPurpose
from semel._net.retry import Deadline
from semel.errors import KafkaProtocolError, error_for
from semel.structs import OffsetAndMetadata, TopicPartition

NO_MEMBER = -1
DEAD = "Dead"
CLASSIC, CONSUMER = "classic", "consumer"
STATE_NAMES = {name.lower(): name for name in GROUP_STATES}
MEMBER_TYPES = {0: CLASSIC, 1: CONSUMER}
STATES_VERSION, TYPES_VERSION = 4, 5
"""The first versions of ListGroups with a filter of states (KIP-518) and of types (KIP-848)."""
NOT_OF_CONSUMER_PROTOCOL = frozenset(
    {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_GROUP_ID}
)
"""ConsumerGroupDescribe's answers for which DescribeGroups is asked. UNSUPPORTED_VERSION: Apache Kafka below 4.0, where
the consumer protocol is off by default.
"""


async def list_consumer_groups(
    calls: Calls, broker_ids: Sequence[int] | None, states: Sequence[str], types: Sequence[str]
) -> list[ConsumerGroupListing]:
    """Requests from every broker the groups that it coordinates. A broker filters if it can, and this call if not."""
    states = [STATE_NAMES.get(each.lower(), each) for each in states]
    types = [each.lower() for each in types]

    async def of_broker(node_id: int) -> list[ConsumerGroupListing]:
        async def attempt(deadline: Deadline) -> list[ConsumerGroupListing]:
            connection = await calls.cluster.connection(node_id, ConnectionPurpose.CONTROL)
            request = ListGroupsRequest()
            if connection.serves(ListGroupsRequest, STATES_VERSION):
                request.states_filter = states
            if connection.serves(ListGroupsRequest, TYPES_VERSION):
                request.types_filter = types
            answer: ListGroupsResponse = await calls.request(connection, request, deadline)
            if answer.error_code:
                raise error_for(answer.error_code, f"listing the groups of broker {node_id}")
            return [
                ConsumerGroupListing(
                    row.group_id, row.protocol_type, row.group_state, row.group_type.lower() or CLASSIC
                )
                for row in answer.groups
            ]

        return await calls.retrying(attempt, what="listing groups")

    if broker_ids is None:
        broker_ids = sorted((await calls.cluster.refresh()).brokers)
    answers = await asyncio.gather(*map(of_broker, broker_ids), return_exceptions=True)
    rows = settled(dict(zip(broker_ids, answers, strict=True)))
    found = sorted(group for groups in rows.values() for group in groups)
    if states:
        found = [each for each in await _with_states(calls, found) if each.state in states]
    return [each for each in found if not types or each.group_type in types]


async def _with_states(calls: Calls, listed: Sequence[ConsumerGroupListing]) -> list[ConsumerGroupListing]:
    """Ask for the states that a broker did not list."""
    unknown = [each.group_id for each in listed if not each.state]
    described = await describe_consumer_groups(calls, unknown) if unknown else []
    states = {each.group_id: each.state for each in described}
    return [each._replace(state=each.state or states[each.group_id]) for each in listed]


async def describe_consumer_groups(calls: Calls, group_ids: Sequence[str]) -> list[ConsumerGroupDescription]:
    """A group of the consumer protocol is described by ConsumerGroupDescribe, any other by DescribeGroups."""

    async def of_group(group_id: str) -> ConsumerGroupDescription:
        async def attempt(connection: Connection, deadline: Deadline) -> ConsumerGroupDescription:
            coordinator = await calls.cluster.coordinator(group_id)
            found: ConsumerGroupDescription | None = None
            if connection.serves(ConsumerGroupDescribeRequest):
                request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
                found = _of_consumer_protocol(await calls.request(connection, request, deadline), group_id, coordinator)
            if found is None:
                request_of_classic = DescribeGroupsRequest(groups=[group_id])
                found = _of_classic(
                    await calls.request(connection, request_of_classic, deadline), group_id, coordinator
                )
            return found

        return await calls.on_coordinator(group_id, attempt, what=_describing(group_id))

    answers = await asyncio.gather(*map(of_group, group_ids), return_exceptions=True)
    found = settled(dict(zip(group_ids, answers, strict=True)))
    return [found[group_id] for group_id in group_ids]


def _describing(group_id: str) -> str:
    return f"describing group {group_id!r}"


def _of_consumer_protocol(
    answer: ConsumerGroupDescribeResponse, group_id: str, coordinator: int
) -> ConsumerGroupDescription | None:
    """None for a group that is not of the consumer protocol."""
    for row in answer.groups:
        if row.error_code in NOT_OF_CONSUMER_PROTOCOL:
            return None
        if row.error_code:
            raise error_for(row.error_code, ": ".join(filter(None, (_describing(group_id), row.error_message))))
        return ConsumerGroupDescription(
            group_id=row.group_id,
            state=row.group_state,
            protocol_type=PROTOCOL_TYPE,
            protocol=row.assignor_name,
            coordinator=coordinator,
            members=tuple(map(_member_of_consumer_protocol, row.members)),
            group_type=CONSUMER,
            group_epoch=row.group_epoch,
            assignment_epoch=row.assignment_epoch,
        )
    raise KafkaProtocolError(f"{_describing(group_id)}: the broker's answer does not contain it")


def _of_classic(answer: DescribeGroupsResponse, group_id: str, coordinator: int) -> ConsumerGroupDescription:
    for row in answer.groups:
        if row.error_code:
            raise error_for(row.error_code, _describing(group_id))
        return ConsumerGroupDescription(
            group_id=row.group_id,
            state=row.group_state,
            protocol_type=row.protocol_type,
            protocol=row.protocol_data,
            coordinator=coordinator,
            members=tuple(_member(member, row.protocol_type) for member in row.members),
            group_type=CLASSIC if row.group_state != DEAD else "",
        )
    raise KafkaProtocolError(f"{_describing(group_id)}: the broker's answer does not contain it")


async def delete_consumer_groups(calls: Calls, group_ids: Sequence[str]) -> None:
    async def of_group(group_id: str) -> None:
        async def attempt(connection: Connection, deadline: Deadline) -> None:
            request = DeleteGroupsRequest(groups_names=[group_id])
            answer: DeleteGroupsResponse = await calls.request(connection, request, deadline)
            for row in answer.results:
                if row.error_code:
                    right = calls.cluster.right(Operation.DELETE, group=group_id)
                    raise error_for(row.error_code, f"deleting group {group_id!r}", right)

        await calls.on_coordinator(group_id, attempt, what=f"deleting group {group_id!r}")

    answers = await asyncio.gather(*map(of_group, group_ids), return_exceptions=True)
    settled(dict(zip(group_ids, answers, strict=True)))


async def list_consumer_group_offsets(
    calls: Calls, group_id: str, partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, OffsetAndMetadata]:
    topics = None
    if partitions is not None:
        topics = [
            OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)
            for topic, indexes in grouped(partitions).items()
        ]
    what = f"committed offsets of group {group_id!r}"

    async def attempt(connection: Connection, deadline: Deadline) -> dict[TopicPartition, OffsetAndMetadata]:
        request = OffsetFetchRequest(group_id=group_id, topics=topics)
        answer: OffsetFetchResponse = await calls.request(connection, request, deadline)
        if answer.error_code:
            right = calls.cluster.right(Operation.DESCRIBE, group=group_id)
            raise error_for(answer.error_code, what, right)
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for topic in answer.topics:
            for row in topic.partitions:
                if row.error_code:
                    raise error_for(row.error_code, f"{what}: {topic.name}-{row.partition_index}")
                if row.committed_offset >= 0:
                    at = OffsetAndMetadata(row.committed_offset, row.metadata or "")
                    found[TopicPartition(topic.name, row.partition_index)] = at
        return dict(sorted(found.items()))

    return await calls.on_coordinator(group_id, attempt, what=what)


async def alter_consumer_group_offsets(
    calls: Calls, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> None:
    """Commit without a membership, which only a group without members accepts."""
    outcomes = _of_partitions(offsets, f"offset of group {group_id!r}")

    async def attempt(connection: Connection, deadline: Deadline) -> None:
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=NO_MEMBER,
            member_id="",
            topics=[
                OffsetCommitRequestTopic(
                    name=topic, partitions=[_commit_row(offsets, topic, index) for index in indexes]
                )
                for topic, indexes in grouped(outcomes.open).items()
            ],
        )
        answer: OffsetCommitResponse = await calls.request(connection, request, deadline)
        for topic in answer.topics:
            for row in topic.partitions:
                why = (
                    "the group has members, stop them first" if row.error_code == ErrorCode.UNKNOWN_MEMBER_ID else None
                )
                _note(outcomes, TopicPartition(topic.name, row.partition_index), row.error_code, why)
        outcomes.check()

    if offsets:
        await calls.on_coordinator(group_id, attempt, what=f"altering offsets of group {group_id!r}")
    outcomes.results()


async def delete_consumer_group_offsets(calls: Calls, group_id: str, partitions: Iterable[TopicPartition]) -> None:
    outcomes = _of_partitions(partitions, f"offset of group {group_id!r}")

    async def attempt(connection: Connection, deadline: Deadline) -> None:
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
                )
                for topic, indexes in grouped(outcomes.open).items()
            ],
        )
        answer: OffsetDeleteResponse = await calls.request(connection, request, deadline)
        if answer.error_code:
            right = calls.cluster.right(Operation.DELETE, group=group_id)
            raise error_for(answer.error_code, f"deleting offsets of group {group_id!r}", right)
        for topic in answer.topics:
            for row in topic.partitions:
                _note(outcomes, TopicPartition(topic.name, row.partition_index), row.error_code)
        outcomes.check()

    if outcomes.open:
        await calls.on_coordinator(group_id, attempt, what=f"deleting offsets of group {group_id!r}")
    outcomes.results()


def _of_partitions(partitions: Iterable[TopicPartition], what: str) -> CallOutcomes[TopicPartition, None]:
    return CallOutcomes(partitions, lambda at: f"{what}: {at.topic}-{at.partition}")


def _note(
    outcomes: CallOutcomes[TopicPartition, None], partition: TopicPartition, code: int, why: str | None = None
) -> None:
    if code != ErrorCode.NONE:
        outcomes.refused(partition, code, why)
    else:
        outcomes.succeeded(partition, None)


def _commit_row(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], topic: str, index: int
) -> OffsetCommitRequestPartition:
    at = offsets[TopicPartition(topic, index)]
    return OffsetCommitRequestPartition(
        partition_index=index, committed_offset=at.offset, committed_metadata=at.metadata
    )


def _member(row: DescribeGroupsResponseMember, protocol_type: str) -> MemberDescription:
    subscription: tuple[str, ...] = ()
    assignment: tuple[TopicPartition, ...] = ()
    if protocol_type == PROTOCOL_TYPE:
        try:
            subscription = (
                tuple(decode_embedded(Subscription, row.member_metadata).topics) if row.member_metadata else ()
            )
            assignment = decode_assignment(row.member_assignment)
        except ProtocolError:
            pass  # the coordinator does not check these bytes; the rest of the description is valid
    return MemberDescription(
        member_id=row.member_id,
        client_id=row.client_id,
        client_host=row.client_host.removeprefix("/"),  # Java's form of an address without a host name
        group_instance_id=row.group_instance_id,
        subscription=subscription,
        assignment=assignment,
        silent_ms=_known(row.silent_ms),
    )


def _member_of_consumer_protocol(row: ConsumerGroupDescribeResponseMember) -> MemberDescription:
    return MemberDescription(
        member_id=row.member_id,
        client_id=row.client_id,
        client_host=row.client_host.removeprefix("/"),
        group_instance_id=row.instance_id,
        subscription=tuple(row.subscribed_topic_names),
        assignment=_partitions(row.assignment.topic_partitions),
        rack_id=row.rack_id,
        pattern=row.subscribed_topic_regex or None,  # Kafka: "" without one
        member_epoch=row.member_epoch,
        target_assignment=_partitions(row.target_assignment.topic_partitions),
        member_type=MEMBER_TYPES.get(row.member_type),
        silent_ms=_known(row.silent_ms),
    )


def _known(silent_ms: int) -> int | None:
    return silent_ms if silent_ms >= 0 else None


def _partitions(rows: Iterable[ConsumerGroupDescribeResponseTopicPartitions]) -> tuple[TopicPartition, ...]:
    """In order, without topics that were deleted, which have no name."""
    named = (row for row in rows if row.topic_name)
    return tuple(sorted(TopicPartition(row.topic_name, index) for row in named for index in row.partitions))
