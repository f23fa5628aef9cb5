"""ConsumerGroupDescribe (key 69): groups of the consumer protocol with members and assignments (KIP-848).

GROUP_ID_NOT_FOUND: there is no such group, or it is classic. INVALID_GROUP_ID: the name is empty. A topic that was
deleted has the empty name. v1 adds the protocol of each member: 0 classic, 1 consumer.
"""

from __future__ import annotations

from typing import Any

from semel_protocol.acls import Operation, ResourceType
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k69_consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeResponseAssignment,
    ConsumerGroupDescribeResponseGroup,
    ConsumerGroupDescribeResponseMember,
    ConsumerGroupDescribeResponseTargetAssignment,
    ConsumerGroupDescribeResponseTopicPartitions,
)
from semel_protocol.refusals import refused_row
from semel_protocol.schema import Message

from semel_broker.authorization.access import Access
from semel_broker.authorization.administration import CHANGES_NOTHING
from semel_broker.authorization.requirements import (
    REFUSAL_OF,
    CheckedRequest,
    CustomRequirement,
    Requirements,
    Steps,
    on_each,
)
from semel_broker.context import RequestContext
from semel_broker.groups.consumer.model import NOTHING, ConsumerGroup, TopicIdPartitions, by_topic
from semel_broker.groups.consumer.state import preferred_assignor
from semel_broker.groups.shard import GroupShard

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


async def handle(request: ConsumerGroupDescribeRequest, ctx: RequestContext) -> ConsumerGroupDescribeResponse:
    """One row per group, in the order of the request."""
    slices = ctx.slices()
    groups = []
    for group_id in dict.fromkeys(request.group_ids):
        try:
            shard, group = await _described(group_id, ctx)
        except KafkaError as error:
            row = refused_row(ConsumerGroupDescribeResponseGroup, group_id, error.code, error.message)
        else:
            row = ConsumerGroupDescribeResponseGroup(
                group_id=group_id,
                group_state=group.state_name,
                group_epoch=group.epoch,
                assignment_epoch=group.assignment_epoch,
                assignor_name=preferred_assignor(group, tuple(ctx.broker.config.group_consumer_assignors)),
                members=[
                    _member(group, member_id, shard.consumers.silent_ms(group, member_id), ctx)
                    for member_id in group.members
                ],
            )
        groups.append(row)
        if slices.is_over(1 + len(row.members)):
            await slices.next()
    return ConsumerGroupDescribeResponse(groups=groups)


async def _described(group_id: str, ctx: RequestContext) -> tuple[GroupShard, ConsumerGroup]:
    """Raise GROUP_ID_NOT_FOUND, INVALID_GROUP_ID, NOT_COORDINATOR, COORDINATOR_*."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group needs a name: name the one to describe")
    shard = await ctx.broker.groups.shard_of_known(group_id)
    group = shard.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
    if (consumer := group.of(ConsumerGroup)) is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{group_id} is a classic group: use DescribeGroups")
    return shard, consumer


def _member(
    group: ConsumerGroup, member_id: str, silent_ms: int, ctx: RequestContext
) -> ConsumerGroupDescribeResponseMember:
    member, current = group.members[member_id], group.current(member_id)
    return ConsumerGroupDescribeResponseMember(
        member_id=member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=current.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=ConsumerGroupDescribeResponseAssignment(topic_partitions=_rows(current.assigned, ctx)),
        target_assignment=ConsumerGroupDescribeResponseTargetAssignment(
            topic_partitions=_rows(group.targets.get(member_id, NOTHING), ctx)
        ),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
        silent_ms=silent_ms,
    )


def _rows(places: TopicIdPartitions, ctx: RequestContext) -> list[ConsumerGroupDescribeResponseTopicPartitions]:
    rows = []
    for topic_id, partitions in by_topic(places).items():
        topic = ctx.broker.topics.get_by_id(topic_id)
        name = topic.name if topic is not None else ""
        rows.append(
            ConsumerGroupDescribeResponseTopicPartitions(topic_id=topic_id, topic_name=name, partitions=partitions)
        )
    return rows


# --- rights and audit ----------------------------------------------------------------------------------------


_ROWS = on_each(Operation.DESCRIBE, ResourceType.GROUP, ConsumerGroupDescribeRequest)


def _check(request: ConsumerGroupDescribeRequest, ctx: RequestContext, access: Access) -> Steps:
    """Describe on each group, and on the topics of its members; with the authorized operations if asked for."""
    permitted = yield from _ROWS.check(request, ctx, access)

    def complete(response: Any) -> Message:
        for at, group in enumerate(response.groups):
            if group.error_code:
                continue
            if not all(
                access.allows_quietly(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in _topics_shown(group)
            ):
                response.groups[at] = ConsumerGroupDescribeResponseGroup(
                    group_id=group.group_id,
                    error_code=REFUSAL_OF[ResourceType.TOPIC],
                    error_message="members read topics that you may not describe",
                )
            elif request.include_authorized_operations:
                group.authorized_operations = access.operations(ResourceType.GROUP, group.group_id)
        completed: Message = response
        return completed

    return CheckedRequest(permitted.request, permitted.answer, [complete, *permitted.complete])


def _topics_shown(group: Any) -> set[str]:
    """The names of the topics in a described group."""
    found: set[str] = set()
    for member in group.members:
        found.update(member.subscribed_topic_names)
        for assignment in (member.assignment, member.target_assignment):
            found.update(row.topic_name for row in assignment.topic_partitions if row.topic_name)
    return found


NEEDS: Requirements = (
    CustomRequirement(
        [
            (Operation.DESCRIBE, ResourceType.GROUP, "each row"),
            (Operation.DESCRIBE, ResourceType.TOPIC, "the topics of members"),
        ],
        _check,
    ),
)
NOT_AUDITED = CHANGES_NOTHING
LONG_ANSWER = True
