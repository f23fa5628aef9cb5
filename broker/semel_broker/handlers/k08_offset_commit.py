"""OffsetCommit (key 8): a group stores its offsets; answered once they are durable.

Errors of one row: see `offset_rows`. A request with very many rows is stored in portions: when an error of the group
comes between two of them, the rows before it are stored and carry no error. v2 to v4 may ask for an expiry time of
their own (removed by KIP-211). v6 adds the leader epoch, v7 the instance id. v9 answers an unknown group with
GROUP_ID_NOT_FOUND and a stale generation with ILLEGAL_GENERATION; before, both get ILLEGAL_GENERATION. In v9 the
generation may be the epoch of a member of the consumer protocol (KIP-848); a stale one gets STALE_MEMBER_EPOCH, and
earlier versions get UNSUPPORTED_VERSION. v10 names topics by id, so that no offset of a deleted topic is stored for its
successor: UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from semel_protocol.acls import Operation
from semel_protocol.api_key import ApiKey
from semel_protocol.errors import KafkaError
from semel_protocol.fields import first_version
from semel_protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

from semel_broker.authorization.administration import OWN_GROUP
from semel_broker.authorization.requirements import Requirements, on_group, on_topics
from semel_broker.config.settings import INT64_MAX
from semel_broker.context import RequestContext
from semel_broker.coordination.errors import for_version
from semel_broker.groups.offsets.model import NO_EXPIRY, OffsetRecord
from semel_broker.groups.requests import Committer
from semel_broker.handlers.offset_rows import OffsetRows

EPOCHS_SINCE = 9
BY_ID_FROM = first_version(OffsetCommitRequestTopic, "topic_id")


async def handle(request: OffsetCommitRequest, ctx: RequestContext) -> OffsetCommitResponse:
    async def store(records: list[OffsetRecord]) -> None:
        ctx.broker.groups.check_ids(request.group_id)
        shard = await ctx.broker.groups.shards.ready(request.group_id)
        by = Committer(
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            ctx.api_version >= EPOCHS_SINCE,
        )
        await shard.commit(request.group_id, records, by, ctx.connection)

    id_of = (lambda topic: topic.topic_id) if ctx.api_version >= BY_ID_FROM else None
    rows = OffsetRows(request.topics, ctx, id_of=id_of)
    now_ms = ctx.broker.world.now_ms()
    await rows.check(NO_EXPIRY if request.retention_time_ms < 0 else min(now_ms + request.retention_time_ms, INT64_MAX))
    try:
        await rows.store(store)
    except KafkaError as error:
        rows.refusal = for_version(error, ApiKey.OFFSET_COMMIT, ctx.api_version).code
    topics = await rows.answer(
        lambda asked, partitions: OffsetCommitResponseTopic(
            name=asked.name, topic_id=asked.topic_id, partitions=partitions
        ),
        lambda index, code: OffsetCommitResponsePartition(partition_index=index, error_code=code),
    )
    return OffsetCommitResponse(topics=topics)


NEEDS: Requirements = (on_group(Operation.READ), on_topics(Operation.READ, OffsetCommitRequest))
NOT_AUDITED = OWN_GROUP
