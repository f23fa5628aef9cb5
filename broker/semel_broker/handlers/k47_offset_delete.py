"""OffsetDelete (key 47): delete the offsets of topics from a group; answered once durable (KIP-496).

GROUP_SUBSCRIBED_TO_TOPIC: a member of the group subscribes to the topic. UNKNOWN_TOPIC_OR_PARTITION: there is no such
partition. INVALID_GROUP_ID: the name of the group is empty. A request with very many rows deletes in
portions: an error of the group between two of them fails the request, although the rows before it are deleted.
"""

from semel_protocol.acls import Operation, ResourceType
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from semel_broker.authorization.administration import Administration, AdministrativeChange, code_of_first, deed_on
from semel_broker.authorization.requirements import Requirements, on_group, on_topics
from semel_broker.context import RequestContext

PORTION_ROWS = 500
"""Rows that are deleted in one turn of the event loop."""


async def handle(request: OffsetDeleteRequest, ctx: RequestContext) -> OffsetDeleteResponse:
    if not request.group_id:
        raise KafkaError(
            ErrorCode.INVALID_GROUP_ID, "a group needs a name: name the one whose offsets are to be deleted"
        )
    partitions = [(topic.name, row.partition_index) for topic in request.topics for row in topic.partitions]
    slices = ctx.slices()
    code_of: dict[tuple[str, int], ErrorCode] = {}
    for start in range(0, len(partitions) or 1, PORTION_ROWS):
        if start:
            await slices.next()
        portion = partitions[start : start + PORTION_ROWS]
        shard = await ctx.broker.groups.shard_of_known(request.group_id)
        known = [place for place in portion if _exists(*place, ctx)]
        code_of.update(dict.fromkeys(portion, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        code_of.update(zip(known, await shard.delete_offsets(request.group_id, known), strict=True))
    topics = []
    for topic in request.topics:
        rows = []
        for row in topic.partitions:
            code = code_of[topic.name, row.partition_index]
            rows.append(OffsetDeleteResponsePartition(partition_index=row.partition_index, error_code=code))
            if slices.is_over():
                await slices.next()
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=rows))
    return OffsetDeleteResponse(topics=topics)


def _exists(name: str, partition: int, ctx: RequestContext) -> bool:
    topic = ctx.broker.topics.get(name)
    return topic is not None and 0 <= partition < topic.partition_count


# --- rights and audit ----------------------------------------------------------------------------------------


def _deletions(request: OffsetDeleteRequest, ctx: RequestContext) -> list[AdministrativeChange]:
    changes = [
        f"offset of {row.name}, partition {each.partition_index}" for row in request.topics for each in row.partitions
    ]
    return [deed_on(Operation.DELETE, ResourceType.GROUP, request.group_id, changes)]


NEEDS: Requirements = (on_group(Operation.DELETE), on_topics(Operation.READ, OffsetDeleteRequest))
AUDIT = Administration(_deletions, code_of_first)
