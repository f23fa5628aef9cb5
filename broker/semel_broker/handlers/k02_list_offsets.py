"""ListOffsets (key 2): the first and last offsets of a log, and offsets by timestamp.

Served: v1 to v7. Timestamp -1 asks for the latest offset (the high watermark; the last stable offset for
read_committed), -2 for the earliest, -3 for the record with the greatest timestamp (v7). Other negative timestamps are
answered with INVALID_REQUEST. If no record has the timestamp or a later one, offset and timestamp are -1, without an
error. OFFSET_NOT_AVAILABLE (before v5 LEADER_NOT_AVAILABLE): the leader is too new to know its high watermark.
"""

from __future__ import annotations

from functools import partial

from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)

from semel_broker.context import RequestContext

NOT_AVAILABLE_VERSION = 5


async def handle(request: ListOffsetsRequest, ctx: RequestContext) -> ListOffsetsResponse:
    slices = ctx.slices()
    topics = []
    for topic in request.topics:
        look_up = partial(_look_up, topic.name, isolation=request.isolation_level, ctx=ctx)
        partitions = await slices.each(topic.partitions, look_up)
        topics.append(ListOffsetsResponseTopic(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


def _look_up(
    topic: str, row: ListOffsetsRequestPartition, *, isolation: int, ctx: RequestContext
) -> ListOffsetsResponsePartition:
    try:
        partition = ctx.broker.topics.partition(topic, row.partition_index)
        partition.check_leading()
        partition.check_leader_epoch(row.current_leader_epoch)
        offset, timestamp = partition.offset_for(row.timestamp, isolation)
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.OFFSET_NOT_AVAILABLE and ctx.api_version < NOT_AVAILABLE_VERSION:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return ListOffsetsResponsePartition(partition_index=row.partition_index, error_code=code)
    return ListOffsetsResponsePartition(
        partition_index=row.partition_index, offset=offset, timestamp=timestamp, leader_epoch=partition.leader_epoch
    )
