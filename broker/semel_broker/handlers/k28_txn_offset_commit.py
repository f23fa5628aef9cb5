"""TxnOffsetCommit (key 28): a group stores its offsets as part of a transaction; answered once they are durable.

Served: v0 to v3; up to v6 with transaction version 2. The offsets become visible when the transaction commits. v3
carries the member's generation, so that a replaced member cannot commit (KIP-447). v4 adds TRANSACTION_ABORTABLE. v5
adds the group to the transaction by itself (KIP-890); before, AddOffsetsToTxn does so. v6 names topics by id, so that
no offset of a deleted topic is stored for its successor, and answers GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH, which
are ILLEGAL_GENERATION before (KIP-1319). Errors of rows, and requests with very many of them: as OffsetCommit. Below v5
only the newest connection of a producer may commit offsets: the request itself does not say which transaction it
belongs to.
"""

from __future__ import annotations

from semel_protocol.acls import Operation
from semel_protocol.api_key import ApiKey
from semel_protocol.errors import KafkaError
from semel_protocol.fields import first_version
from semel_protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from semel_storage.internal_topics import CONSUMER_OFFSETS

from semel_broker.authorization.administration import OWN_RECORDS
from semel_broker.authorization.requirements import Requirements, on_group, on_topics, on_transactional_id
from semel_broker.context import RequestContext
from semel_broker.coordination.errors import for_version
from semel_broker.coordination.journal import RecordProducer
from semel_broker.coordination.producer_owners import owner_of
from semel_broker.groups.offsets.model import OffsetRecord
from semel_broker.groups.requests import Committer
from semel_broker.handlers.offset_rows import OffsetRows
from semel_broker.txn.model.state import check_named

JOINING_VERSION = 5
BY_ID_FROM = first_version(TxnOffsetCommitRequestTopic, "topic_id")


async def handle(request: TxnOffsetCommitRequest, ctx: RequestContext) -> TxnOffsetCommitResponse:
    id_of = (lambda topic: topic.topic_id) if ctx.api_version >= BY_ID_FROM else None
    rows = OffsetRows(request.topics, ctx, id_of=id_of)
    try:
        await _commit(request, ctx, rows)
    except KafkaError as error:
        rows.refusal = for_version(error, ApiKey.TXN_OFFSET_COMMIT, ctx.api_version).code
    topics = await rows.answer(
        lambda asked, partitions: TxnOffsetCommitResponseTopic(
            name=asked.name, topic_id=asked.topic_id, partitions=partitions
        ),
        lambda index, code: TxnOffsetCommitResponsePartition(partition_index=index, error_code=code),
    )
    return TxnOffsetCommitResponse(topics=topics)


async def _commit(
    request: TxnOffsetCommitRequest, ctx: RequestContext, rows: OffsetRows[TxnOffsetCommitRequestTopic]
) -> None:
    groups = ctx.broker.groups
    groups.check_ids(request.group_id)
    check_named(request.transactional_id)
    ctx.broker.transactions.shards.check_length(request.transactional_id)
    owner = owner_of(request.transactional_id, ctx.principal)
    ctx.broker.producer_ids.owners.check(owner, request.producer_id, ctx.principal)
    partition = (await groups.shard(request.group_id)).partition
    joins = ctx.api_version >= JOINING_VERSION
    admission = await ctx.broker.transactions.admit(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [partition],
        joins=joins,
        connection=0 if joins else ctx.connection,
    )

    async def store(records: list[OffsetRecord]) -> None:
        shard = await groups.shard(request.group_id)  # the group may have another coordinator by now
        await shard.commit_in_transaction(
            request.group_id,
            records,
            RecordProducer(request.producer_id, request.producer_epoch),
            lambda index: admission.check((CONSUMER_OFFSETS, index)),
            Committer(request.member_id, request.group_instance_id, request.generation_id),
        )

    try:
        await rows.check()  # once the group is part of the transaction
        await rows.store(store)
    finally:
        admission.close()


NEEDS: Requirements = (
    on_transactional_id(Operation.WRITE),
    on_group(Operation.READ),
    on_topics(Operation.READ, TxnOffsetCommitRequest),
)
NOT_AUDITED = OWN_RECORDS
