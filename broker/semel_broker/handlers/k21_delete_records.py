"""DeleteRecords (key 21): move the log start offset of partitions up; -1 moves it to the high watermark (KIP-107).

Served: v0 to v2. The low watermark of the answer is the new log start offset. An offset above the high watermark is
answered with OFFSET_OUT_OF_RANGE.
"""

from __future__ import annotations

from functools import partial

from semel_protocol.acls import Operation, ResourceType
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsResponse,
    DeleteRecordsResponsePartition,
    DeleteRecordsResponseTopic,
)

from semel_broker.authorization.administration import Administration, AdministrativeChange, codes_by, deed_on
from semel_broker.authorization.requirements import Requirements, on_topics
from semel_broker.cluster.topic_plan import INTERNAL_TOPICS
from semel_broker.context import RequestContext
from semel_broker.partitions.partition import Partition


async def handle(request: DeleteRecordsRequest, ctx: RequestContext) -> DeleteRecordsResponse:
    slices = ctx.slices()
    topics = []
    opened: list[Partition] = []
    for topic in request.topics:
        partitions = await slices.each(topic.partitions, partial(_delete, topic.name, opened=opened, ctx=ctx))
        topics.append(DeleteRecordsResponseTopic(name=topic.name, partitions=partitions))
    if opened:  # one file has the log starts of all
        await opened[0].log_start_saved()
    return DeleteRecordsResponse(topics=topics)


def _delete(
    topic: str, row: DeleteRecordsRequestPartition, *, opened: list[Partition], ctx: RequestContext
) -> DeleteRecordsResponsePartition:
    try:
        if topic in INTERNAL_TOPICS:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal: only the broker deletes its records"
            )
        partition = ctx.broker.topics.partition(topic, row.partition_index)
        low_watermark = partition.delete_records(row.offset)
        if partition.is_open:
            opened.append(partition)
    except KafkaError as error:
        return DeleteRecordsResponsePartition(
            partition_index=row.partition_index, low_watermark=-1, error_code=error.code
        )
    return DeleteRecordsResponsePartition(partition_index=row.partition_index, low_watermark=low_watermark)


# --- rights and audit ----------------------------------------------------------------------------------------


def _deletions(request: DeleteRecordsRequest, ctx: RequestContext) -> list[AdministrativeChange]:
    return [
        deed_on(
            Operation.DELETE,
            ResourceType.TOPIC,
            row.name,
            [f"partition {each.partition_index}: below offset {each.offset}" for each in row.partitions],
        )
        for row in request.topics
    ]


NEEDS: Requirements = (on_topics(Operation.DELETE, DeleteRecordsRequest),)
AUDIT = Administration(_deletions, codes_by("topics", "name"))
