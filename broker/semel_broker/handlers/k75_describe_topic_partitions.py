"""DescribeTopicPartitions (key 75): topics page by page, with their partitions (KIP-966).

Topics come in the order of their names. An empty list asks for all topics that the principal may describe. A page has
at most `response_partition_limit` partitions, and at most `max.request.partition.size.limit`; at least one. The next
cursor names the first partition that did not fit; it is null on the last page. Topics before the request's cursor are
left out.

UNKNOWN_TOPIC_OR_PARTITION or INVALID_TOPIC_EXCEPTION: a topic that was named and does not exist. INVALID_REQUEST for
each topic: the cursor names a topic that the request does not, or a negative partition. A partition without a leader
has leader -1 and no error code. There are no eligible leader replicas: a leader is elected from the ISR, so both lists
of them are empty.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from semel_protocol.acls import Operation, ResourceType, every_operation
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k03_metadata import MetadataResponsePartition
from semel_protocol.messages.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
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
    topic_name,
)
from semel_broker.context import RequestContext
from semel_broker.handlers.describable import may_describe
from semel_broker.handlers.k03_metadata import partition_rows
from semel_broker.scheduling.turns import Slices
from semel_broker.topics.topics import Topic


async def handle(request: DescribeTopicPartitionsRequest, ctx: RequestContext) -> DescribeTopicPartitionsResponse:
    wants_all, cursor, topics = not request.topics, request.cursor, ctx.broker.topics
    names = topics.names() if wants_all else sorted({topic.name for topic in request.topics})
    if cursor is not None and (cursor.partition_index < 0 or not (wants_all or cursor.topic_name in names)):
        return DescribeTopicPartitionsResponse(topics=[] if wants_all else [_refused(name) for name in names])
    response = DescribeTopicPartitionsResponse(topics=[])
    is_visible = may_describe(ctx, ResourceType.TOPIC)
    left = max(1, min(request.response_partition_limit, ctx.broker.config.max_request_partition_size_limit))
    slices = ctx.slices()
    for name in names if cursor is None else names[bisect_left(names, cursor.topic_name) :]:
        if slices.is_over():
            await slices.next()
        if wants_all and not is_visible(name):
            continue
        if not left:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(topic_name=name)
            break
        topic = topics.get(name)
        if topic is None:
            if not wants_all:
                response.topics.append(_missing(name, ctx))
            continue
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        indexes = range(first, min(topic.partition_count, first + left))
        try:
            response.topics.append(await _described(topic, indexes, ctx, slices))
        except KafkaError:  # it has just been deleted
            if not wants_all:
                response.topics.append(_missing(name, ctx))
            continue
        if indexes.stop < topic.partition_count:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=indexes.stop)
            break
        left -= len(indexes)
    return response


def _refused(name: str) -> DescribeTopicPartitionsResponseTopic:
    return refused_row(DescribeTopicPartitionsResponseTopic, name, ErrorCode.INVALID_REQUEST)


def _missing(name: str, ctx: RequestContext) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # also of a topic that was deleted and created anew meanwhile
    try:
        ctx.broker.topics.required(name)
    except KafkaError as error:
        code = error.code
    return refused_row(DescribeTopicPartitionsResponseTopic, name, code)


async def _described(
    topic: Topic, indexes: range, ctx: RequestContext, slices: Slices
) -> DescribeTopicPartitionsResponseTopic:
    """Raise UNKNOWN_TOPIC_OR_PARTITION if it is deleted meanwhile."""
    rows = await partition_rows(topic, indexes, ctx, slices)
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=await slices.each(rows, _partition),
        topic_authorized_operations=every_operation(ResourceType.TOPIC),
    )


def _partition(row: MetadataResponsePartition) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        partition_index=row.partition_index,
        leader_id=row.leader_id,
        leader_epoch=row.leader_epoch,
        replica_nodes=row.replica_nodes,
        isr_nodes=row.isr_nodes,
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=row.offline_replicas,
    )


# --- rights and audit ----------------------------------------------------------------------------------------


def _check(request: DescribeTopicPartitionsRequest, ctx: RequestContext, access: Access) -> Steps:
    """Describe on each topic that is named, from the cursor on; a refused one is on the page where it would be.

    If the request asks for all topics, the handler leaves out those without Describe, because they do not count for the
    limit of the page. Authorized operations are those of the principal (KIP-430).
    """
    cursor = request.cursor
    before: list[Any] = []
    allowed: list[Any] = []
    refused: dict[str, Any] = {}
    for topic in request.topics:
        yield 1
        if cursor is not None and topic.name < cursor.topic_name:
            before.append(topic)  # the handler leaves it out
        elif access.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            allowed.append(topic)
        else:
            row = DescribeTopicPartitionsResponseTopic(error_code=REFUSAL_OF[ResourceType.TOPIC], name=topic.name)
            refused[topic.name] = row
    if cursor is not None and cursor.topic_name in refused:
        request.cursor = None  # all that is left is behind it
        request.topics = allowed
    else:
        request.topics = before + allowed

    def complete(response: Any) -> Message:
        for topic in response.topics:
            if not topic.error_code:
                topic.topic_authorized_operations = access.operations(ResourceType.TOPIC, topic.name)
        end = response.next_cursor
        shown = [row for name, row in refused.items() if end is None or name < end.topic_name]
        response.topics = sorted([*response.topics, *shown], key=topic_name)
        completed: Message = response
        return completed

    is_answered = bool(refused) and not request.topics
    answer = complete(DescribeTopicPartitionsResponse()) if is_answered else None
    return CheckedRequest(request, answer, [complete])


NEEDS: Requirements = (CustomRequirement([(Operation.DESCRIBE, ResourceType.TOPIC, "each row")], _check),)
NOT_AUDITED = CHANGES_NOTHING
LONG_ANSWER = True
