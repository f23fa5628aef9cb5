"""ListOffsets (key 2): the first and last offsets of a log, and offsets by timestamp.

Served: v1 to v11. Timestamp -1 asks for the latest offset (the high watermark; the last stable offset for
read_committed), -2 for the earliest, -3 for the record with the greatest timestamp (v7). All records are local, as in
Kafka without remote storage (KIP-1005): the earliest local offset, -4 (v8), is the earliest one, and the latest tiered
offset, -5 (v9), and the earliest that is not tiered yet, -6 (v11), are -1. Special values of later versions are
answered with UNSUPPORTED_VERSION, others that are negative with INVALID_REQUEST. If no record has the timestamp or a
later one, offset, timestamp and leader epoch are -1, without an error. The leader epoch is that of the found record; of
the latest offset, the current one. Markers are not found by time (`lookup`). A partition that a request names twice is
answered once, with INVALID_REQUEST. OFFSET_NOT_AVAILABLE (before v5 LEADER_NOT_AVAILABLE): the
leader is too new to know its high watermark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial

from semel_protocol.acls import Operation
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from semel_protocol.refusals import refused_row

from semel_broker.authorization.administration import CHANGES_NOTHING
from semel_broker.authorization.requirements import Requirements, on_topics
from semel_broker.context import RequestContext
from semel_broker.partitions.partition import (
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)

NOT_AVAILABLE_VERSION = 5
SPECIAL_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
"""CustomRequirement value -> the first version that may ask for it."""


async def handle(request: ListOffsetsRequest, ctx: RequestContext) -> ListOffsetsResponse:
    slices = ctx.slices()
    topics = []
    named = Counter((topic.name, row.partition_index) for topic in request.topics for row in topic.partitions)
    answered: set[tuple[str, int]] = set()
    for topic in request.topics:
        look_up = partial(_look_up, topic.name, isolation=request.isolation_level, named=named, ctx=ctx)
        rows = {
            row.partition_index: row for row in topic.partitions if (topic.name, row.partition_index) not in answered
        }
        answered.update((topic.name, index) for index in rows)
        partitions = await slices.each(list(rows.values()), look_up)
        topics.append(ListOffsetsResponseTopic(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


def _look_up(
    topic: str,
    row: ListOffsetsRequestPartition,
    *,
    isolation: int,
    named: Mapping[tuple[str, int], int],
    ctx: RequestContext,
) -> ListOffsetsResponsePartition:
    try:
        if named[topic, row.partition_index] > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the request names {topic}-{row.partition_index} twice")
        if ctx.api_version < SPECIAL_SINCE.get(row.timestamp, 0):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"v{ctx.api_version} has no special value {row.timestamp}")
        partition = ctx.broker.topics.partition(topic, row.partition_index)
        partition.check_leading()
        partition.check_leader_epoch(row.current_leader_epoch)
        offset, timestamp = partition.offset_for(row.timestamp, isolation)
        epoch = partition.leader_epoch if row.timestamp == LATEST else partition.epoch_at(offset)
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.OFFSET_NOT_AVAILABLE and ctx.api_version < NOT_AVAILABLE_VERSION:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return refused_row(ListOffsetsResponsePartition, row, code)
    return ListOffsetsResponsePartition(
        partition_index=row.partition_index, offset=offset, timestamp=timestamp, leader_epoch=epoch
    )


NEEDS: Requirements = (on_topics(Operation.DESCRIBE, ListOffsetsRequest),)
NOT_AUDITED = CHANGES_NOTHING
