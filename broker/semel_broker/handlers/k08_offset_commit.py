"""OffsetCommit (key 8): a group stores its offsets; answered once they are durable.

Errors of one row: UNKNOWN_TOPIC_OR_PARTITION for a missing partition, OFFSET_OUT_OF_RANGE for a negative offset
(Kafka's broker stores it; its clients refuse to send it), OFFSET_METADATA_TOO_LARGE for long metadata. An error of the
member or its generation fails all rows. v2 to v4 may ask for an expiry time of their own (removed by KIP-211). v6 adds
the leader epoch, v7 the instance id. v9 answers an unknown group with GROUP_ID_NOT_FOUND and a stale generation with
ILLEGAL_GENERATION; before, both get ILLEGAL_GENERATION.
"""

from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from semel_protocol.messages.k28_txn_offset_commit import TxnOffsetCommitRequestPartition

from semel_broker.config.settings import INT64_MAX
from semel_broker.context import RequestContext
from semel_broker.coordination.errors import OFFSET_COMMIT, for_version
from semel_broker.groups.offsets import NO_EXPIRY, CommittedOffset, OffsetRecord

Row = OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition


async def handle(request: OffsetCommitRequest, ctx: RequestContext) -> OffsetCommitResponse:
    codes: dict[tuple[str, int], ErrorCode] = {}
    records: dict[tuple[str, int], OffsetRecord] = {}  # the last one of each partition
    now_ms = ctx.broker.world.now_ms()
    expire_ms = NO_EXPIRY if request.retention_time_ms < 0 else min(now_ms + request.retention_time_ms, INT64_MAX)
    slices = ctx.slices()
    for topic in request.topics:
        for row in topic.partitions:
            code = codes[topic.name, row.partition_index] = check_row(topic.name, row, ctx)
            if code is ErrorCode.NONE:
                committed = committed_of(topic.name, row, ctx, expire_ms)
                records[topic.name, row.partition_index] = OffsetRecord(topic.name, row.partition_index, committed)
            if slices.is_over():
                await slices.next()
    refusal = ErrorCode.NONE
    try:
        shard = await ctx.broker.groups.shards.ready(request.group_id)
        await shard.commit(
            request.group_id,
            list(records.values()),
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation_id=request.generation_id_or_member_epoch,
            connection=ctx.connection,
        )
    except KafkaError as error:
        refusal = for_version(error, OFFSET_COMMIT, ctx.api_version).code
    topics = []
    for topic in request.topics:
        answered = OffsetCommitResponseTopic(name=topic.name, partitions=[])
        topics.append(answered)
        for row in topic.partitions:
            code = refusal or codes[topic.name, row.partition_index]
            answered.partitions.append(
                OffsetCommitResponsePartition(partition_index=row.partition_index, error_code=code)
            )
            if slices.is_over():
                await slices.next()
    return OffsetCommitResponse(topics=topics)


def check_row(name: str, row: Row, ctx: RequestContext) -> ErrorCode:
    """The error of this row, without regard to its group; NONE if it is valid."""
    topic = ctx.broker.topics.get(name)
    if topic is None or not 0 <= row.partition_index < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if row.committed_offset < 0:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    metadata = row.committed_metadata or ""
    bytes_max = ctx.broker.config.offset_metadata_max_bytes
    if len(metadata) > bytes_max or (not metadata.isascii() and len(metadata.encode()) > bytes_max):
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def committed_of(name: str, row: Row, ctx: RequestContext, expire_ms: int = NO_EXPIRY) -> CommittedOffset:
    """The offset that a valid row commits."""
    return CommittedOffset(
        row.committed_offset,
        row.committed_leader_epoch,
        row.committed_metadata or "",
        ctx.broker.world.now_ms(),
        expire_ms,
        ctx.broker.topics.required(name).topic_id,
    )
