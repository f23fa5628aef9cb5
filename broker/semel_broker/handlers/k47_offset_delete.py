"""OffsetDelete (key 47): delete the offsets of topics from a group; answered once durable (KIP-496).

GROUP_SUBSCRIBED_TO_TOPIC: a member of the group subscribes to the topic.
"""

from semel_protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from semel_broker.context import RequestContext


async def handle(request: OffsetDeleteRequest, ctx: RequestContext) -> OffsetDeleteResponse:
    partitions = [(topic.name, row.partition_index) for topic in request.topics for row in topic.partitions]
    shard = await ctx.broker.groups.shard_of_known(request.group_id)
    codes = await shard.delete_offsets(request.group_id, partitions)
    code_of = dict(zip(partitions, codes, strict=True))
    topics = [
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(
                    partition_index=row.partition_index, error_code=code_of[topic.name, row.partition_index]
                )
                for row in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return OffsetDeleteResponse(topics=topics)
