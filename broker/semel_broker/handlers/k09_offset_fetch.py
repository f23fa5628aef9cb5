"""OffsetFetch (key 9): a group reads its offsets.

A partition without an offset is answered with -1, also in an unknown group. The same holds for an offset that was
committed for an earlier topic of that name. Topics null (v2) asks for all offsets that the group has committed. v7 adds
`require_stable` (KIP-447): a partition is answered with UNSTABLE_OFFSET_COMMIT while an open transaction has written an
offset for it; otherwise a transactional reader would process records twice. v8 asks for several groups at once. v9 adds
the member and its epoch (KIP-848): STALE_MEMBER_EPOCH or UNKNOWN_MEMBER_ID if the member is not up to date. v10 names
topics by id: UNKNOWN_TOPIC_ID if there is no such topic.

From v2 on the response has a top-level field for an error of the group. Up to v7 each partition asked for carries that
error, too: aiokafka reads only this field, and took NOT_COORDINATOR at the top for "nothing is committed". Kafka leaves
the rows out.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from semel_protocol.acls import Operation, ResourceType
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.fields import first_version
from semel_protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from semel_protocol.refusals import refused, refused_row
from semel_protocol.schema import Message

from semel_broker.authorization.access import Access
from semel_broker.authorization.administration import CHANGES_NOTHING
from semel_broker.authorization.requirements import (
    REFUSAL_OF,
    CheckedRequest,
    CustomRequirement,
    Requirements,
    Steps,
    on_topics,
)
from semel_broker.context import RequestContext
from semel_broker.groups.offsets.model import CommittedOffset, GroupOffsets
from semel_broker.scheduling.turns import Slices

GROUPS_VERSION = 8
BY_ID_FROM = first_version(OffsetFetchRequestTopic, "topic_id")
NONE_COMMITTED = CommittedOffset(offset=-1)

Topics = Sequence[OffsetFetchRequestTopic] | None


async def handle(request: OffsetFetchRequest, ctx: RequestContext) -> OffsetFetchResponse:
    stable, slices = request.require_stable, ctx.slices()
    if ctx.api_version >= GROUPS_VERSION:
        groups = []
        for row in {row.group_id: row for row in request.groups}.values():
            groups.append(await _group(row.group_id, row.topics, stable, ctx, slices, row.member_id, row.member_epoch))
            if slices.is_over():
                await slices.next()
        return OffsetFetchResponse(groups=groups)
    group = await _group(request.group_id, request.topics, stable, ctx, slices)
    topics = _refused(request.topics or (), group.error_code) if group.error_code else group.topics
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


def _refused(topics: Sequence[OffsetFetchRequestTopic], group_code: int) -> list[OffsetFetchResponseTopic]:
    """The group's error in each partition. Clients that read only this field retry NOT_COORDINATOR and
    COORDINATOR_LOAD_IN_PROGRESS, but give up at COORDINATOR_NOT_AVAILABLE."""
    code = ErrorCode.NOT_COORDINATOR if group_code == ErrorCode.COORDINATOR_NOT_AVAILABLE else group_code
    return [
        OffsetFetchResponseTopic(
            name=topic.name, partitions=[_row(index, NONE_COMMITTED, code) for index in topic.partition_indexes]
        )
        for topic in topics
    ]


async def _group(
    group_id: str,
    topics: Topics,
    stable: bool,
    ctx: RequestContext,
    slices: Slices,
    member_id: str | None = None,
    member_epoch: int = -1,
) -> OffsetFetchResponseGroup:
    try:
        shard = await ctx.broker.groups.shards.ready_if_any(group_id)
        if shard is not None:
            shard.check_fetch(group_id, member_id, member_epoch)
    except KafkaError as error:
        return refused_row(OffsetFetchResponseGroup, group_id, error.code)
    offsets = shard.offsets(group_id) if shard is not None else GroupOffsets()
    book = shard.offset_store if stable and shard is not None else None
    if topics is None:
        topics = _all(offsets, book.unstable(group_id) if book is not None else (), ctx)
    has_ids = ctx.api_version >= BY_ID_FROM
    answered = []
    for topic in topics:
        rows = []
        for partition in topic.partition_indexes:
            if has_ids:  # found anew after each slice: the topic may be deleted and created anew meanwhile
                topic.name = ctx.broker.topics.name_of(topic.topic_id) or ""
            if has_ids and not topic.name:
                rows.append(_row(partition, NONE_COMMITTED, ErrorCode.UNKNOWN_TOPIC_ID))
            elif book is not None and book.is_unstable(group_id, topic.name, partition):
                rows.append(_row(partition, NONE_COMMITTED, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            else:
                rows.append(_row(partition, _committed(offsets, topic.name, partition, ctx), ErrorCode.NONE))
            if slices.is_over():
                await slices.next()
        answered.append(OffsetFetchResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=rows))
    return OffsetFetchResponseGroup(group_id=group_id, topics=answered)


def _committed(offsets: GroupOffsets, name: str, partition: int, ctx: RequestContext) -> CommittedOffset:
    committed = offsets.get(name, partition)
    return (
        committed
        if committed is not None and ctx.broker.groups.context.is_of_current_topic(name, committed)
        else NONE_COMMITTED
    )


def _all(
    offsets: GroupOffsets, unstable: Iterable[tuple[str, int]], ctx: RequestContext
) -> list[OffsetFetchRequestTopic]:
    """All partitions with a committed or an unstable offset."""
    found: dict[str, dict[int, None]] = {}
    for name, partition, committed in offsets:
        if ctx.broker.groups.context.is_of_current_topic(name, committed):
            found.setdefault(name, {})[partition] = None
    for name, partition in unstable:
        found.setdefault(name, {})[partition] = None
    if ctx.api_version < BY_ID_FROM:
        return [OffsetFetchRequestTopic(name=name, partition_indexes=list(rows)) for name, rows in found.items()]
    return [
        OffsetFetchRequestTopic(topic_id=topic.topic_id, partition_indexes=list(rows))
        for name, rows in found.items()
        if (topic := ctx.broker.topics.get(name)) is not None
    ]


def _row(partition: int, committed: CommittedOffset, error_code: int) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=error_code,
    )


# --- rights and audit ----------------------------------------------------------------------------------------


_TOPICS = on_topics(Operation.DESCRIBE, OffsetFetchRequest)


def _check(request: OffsetFetchRequest, ctx: RequestContext, access: Access) -> Steps:
    """Describe on the group, and Describe on each topic; a request for all topics shows those with Describe."""
    if request.groups:
        return (yield from _check_groups(request, ctx, access))
    yield 1
    if not access.allows(Operation.DESCRIBE, ResourceType.GROUP, request.group_id):
        return CheckedRequest(request, refused(request, REFUSAL_OF[ResourceType.GROUP]))
    return (yield from _TOPICS.check(request, ctx, access))


def _check_groups(request: OffsetFetchRequest, ctx: RequestContext, access: Access) -> Steps:
    """As `_check`, for each of several groups (v8)."""
    allowed: list[Any] = []
    refused_groups: list[Any] = []
    hidden: dict[str, list[Any]] = {}
    everything: dict[str, None] = {}
    has_ids = ctx.api_version >= BY_ID_FROM
    for group in request.groups:
        yield 1
        if not access.allows(Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
            refused_groups.append(refused_row(OffsetFetchResponseGroup, group, REFUSAL_OF[ResourceType.GROUP]))
            continue
        allowed.append(group)
        if group.topics is None:
            everything[group.group_id] = None
            continue
        kept = []
        for topic in group.topics:
            yield 1
            name = ctx.broker.topics.name_of(topic.topic_id) if has_ids else topic.name
            if name is not None and access.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
                kept.append(topic)
            else:
                code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else REFUSAL_OF[ResourceType.TOPIC]
                hidden.setdefault(group.group_id, []).append(refused_row(OffsetFetchResponseTopic, topic, code))
        group.topics = kept
    request.groups = allowed

    def complete(response: Any) -> Message:
        for group in response.groups:
            if group.group_id in everything:
                group.topics = [
                    each
                    for each in group.topics
                    if access.allows_quietly(Operation.DESCRIBE, ResourceType.TOPIC, each.name)
                ]
            if not group.error_code:
                group.topics = [*group.topics, *hidden.get(group.group_id, ())]
        response.groups = [*response.groups, *refused_groups]
        completed: Message = response
        return completed

    return CheckedRequest(request, None if allowed else complete(OffsetFetchResponse()), [complete])


NEEDS: Requirements = (
    CustomRequirement(
        [(Operation.DESCRIBE, ResourceType.GROUP, ""), (Operation.DESCRIBE, ResourceType.TOPIC, "each row")], _check
    ),
)
NOT_AUDITED = CHANGES_NOTHING
LONG_ANSWER = True
