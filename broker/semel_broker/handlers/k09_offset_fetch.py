"""OffsetFetch: a group reads its positions. A partition without one answers offset -1, also in an unknown group, and
one whose offset was committed for an earlier topic of that name.

Topics null: all that the group has committed (v2). v7 adds `require_stable` (KIP-447): a partition for which an open
transaction has written an offset answers UNSTABLE_OFFSET_COMMIT until the outcome is decided. Otherwise a transactional
reader would process records again that are committed already. v8 asks for several groups at once.

An error of the whole group has a place of its own from v2 on. Up to v7 each partition asked for has it too: aiokafka
looks only there, and took NOT_COORDINATOR at the top for "nothing is committed". Kafka leaves the rows out.
"""

from collections.abc import Iterable, Sequence

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
NONE_COMMITTED = CommittedOffset(offset=-1)

Topics = Sequence[OffsetFetchRequestTopic] | None


async def handle(request: OffsetFetchRequest, ctx: RequestContext) -> OffsetFetchResponse:
    stable = request.require_stable
    if ctx.api_version >= GROUPS_VERSION:
        distinct = {row.group_id: row for row in request.groups}
        return OffsetFetchResponse(
            groups=[await _group(row.group_id, row.topics, stable, ctx) for row in distinct.values()]
        )
    group = await _group(request.group_id, request.topics, stable, ctx)
    topics = _refused(request.topics or (), group.error_code) if group.error_code else group.topics
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


def _refused(topics: Sequence[OffsetFetchRequestTopic], group_code: int) -> list[OffsetFetchResponseTopic]:
    """The group's error in each partition. Clients that look only there retry NOT_COORDINATOR and
    COORDINATOR_LOAD_IN_PROGRESS, and give up at COORDINATOR_NOT_AVAILABLE."""
    code = ErrorCode.NOT_COORDINATOR if group_code == ErrorCode.COORDINATOR_NOT_AVAILABLE else group_code
    return [
        OffsetFetchResponseTopic(
            name=topic.name, partitions=[_row(index, NONE_COMMITTED, code) for index in topic.partition_indexes]
        )
        for topic in topics
    ]


async def _group(group_id: str, topics: Topics, stable: bool, ctx: RequestContext) -> OffsetFetchResponseGroup:
    try:
        shard = await ctx.broker.groups.shards.ready_if_any(group_id)
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=group_id, error_code=error.code)
    offsets = shard.offsets(group_id) if shard is not None else GroupOffsets()
    book = shard.offset_store if stable and shard is not None else None
    if topics is None:
        topics = _all(offsets, book.unstable(group_id) if book is not None else (), ctx)
    slices = ctx.slices()
    answered = []
    for topic in topics:
        rows = []
        for partition in topic.partition_indexes:
            if book is not None and book.is_unstable(group_id, topic.name, partition):
                rows.append(_row(partition, NONE_COMMITTED, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            else:
                rows.append(_row(partition, _committed(offsets, topic.name, partition, ctx), ErrorCode.NONE))
            if slices.is_over():
                await slices.next()
        answered.append(OffsetFetchResponseTopic(name=topic.name, partitions=rows))
    return OffsetFetchResponseGroup(group_id=group_id, topics=answered)


def _committed(offsets: GroupOffsets, name: str, partition: int, ctx: RequestContext) -> CommittedOffset:
    committed = offsets.get(name, partition)
    return committed if committed is not None and ctx.broker.groups.counts(name, committed) else NONE_COMMITTED


def _all(
    offsets: GroupOffsets, unstable: Iterable[tuple[str, int]], ctx: RequestContext
) -> list[OffsetFetchRequestTopic]:
    """Every partition with an offset, or with one in an open transaction."""
    found: dict[str, dict[int, None]] = {}
    for name, partition, committed in offsets:
        if ctx.broker.groups.counts(name, committed):
            found.setdefault(name, {})[partition] = None
    for name, partition in unstable:
        found.setdefault(name, {})[partition] = None
    return [OffsetFetchRequestTopic(name=name, partition_indexes=list(rows)) for name, rows in found.items()]


def _row(partition: int, committed: CommittedOffset, error_code: int) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=error_code,
    )
