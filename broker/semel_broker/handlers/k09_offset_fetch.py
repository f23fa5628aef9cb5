"""OffsetFetch: a group reads its positions. A partition without one answers offset -1, also in an unknown group.

Topics null: all that the group has committed (v2). v7 adds `require_stable`: offsets whose transaction is undecided
answer 88; none can be while the broker serves no transactions. v8 asks for several groups at once.
"""

from collections.abc import Iterator, Sequence

from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

from semel_broker.context import RequestContext
from semel_broker.groups.offsets import CommittedOffset, GroupOffsets

GROUPS_VERSION = 8
TOP_LEVEL_ERROR_VERSION = 2
NONE_COMMITTED = CommittedOffset(offset=-1)

Topics = Sequence[OffsetFetchRequestTopic] | None


async def handle(request: OffsetFetchRequest, ctx: RequestContext) -> OffsetFetchResponse:
    if ctx.api_version >= GROUPS_VERSION:
        return OffsetFetchResponse(groups=[await _group(row.group_id, row.topics, ctx) for row in request.groups])
    group = await _group(request.group_id, request.topics, ctx)
    if group.error_code and ctx.api_version < TOP_LEVEL_ERROR_VERSION:
        rows = _rows(GroupOffsets(), request.topics, group.error_code)
        return OffsetFetchResponse(topics=list(rows))
    return OffsetFetchResponse(topics=group.topics, error_code=group.error_code)


async def _group(group_id: str, topics: Topics, ctx: RequestContext) -> OffsetFetchResponseGroup:
    try:
        offsets = await ctx.broker.groups.offsets(group_id)
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=group_id, error_code=error.code)
    return OffsetFetchResponseGroup(group_id=group_id, topics=list(_rows(offsets, topics, ErrorCode.NONE)))


def _rows(offsets: GroupOffsets, topics: Topics, error_code: int) -> Iterator[OffsetFetchResponseTopic]:
    if topics is None:
        topics = [
            OffsetFetchRequestTopic(name=name, partition_indexes=list(offsets.of_topic(name)))
            for name in offsets.topics()
        ]
    for topic in topics:
        committed = offsets.of_topic(topic.name)
        yield OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                _row(partition, committed.get(partition, NONE_COMMITTED), error_code)
                for partition in topic.partition_indexes
            ],
        )


def _row(partition: int, committed: CommittedOffset, error_code: int) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=error_code,
    )
