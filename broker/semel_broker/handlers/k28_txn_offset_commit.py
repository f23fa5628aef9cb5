"""TxnOffsetCommit (key 28): a group stores its offsets as part of a transaction; answered once they are durable.

Served: v0 to v3; up to v5 with transaction version 2. The offsets become visible when the transaction commits. v3
carries the member's generation, so that a replaced member cannot commit (KIP-447). v4 adds TRANSACTION_ABORTABLE. v5
adds the group to the transaction by itself (KIP-890); before, AddOffsetsToTxn does so. Errors of rows are those of
OffsetCommit. Below v5 only the newest connection of a producer may commit offsets: the request itself does not say
which transaction it belongs to.
"""

from __future__ import annotations

from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from semel_storage.internal_topics import CONSUMER_OFFSETS

from semel_broker.context import RequestContext
from semel_broker.coordination.errors import TXN_OFFSET_COMMIT, for_version
from semel_broker.coordination.journal import Producer
from semel_broker.groups.offsets import OffsetRecord
from semel_broker.handlers.k08_offset_commit import check_row, committed_of

JOINING_VERSION = 5


async def handle(request: TxnOffsetCommitRequest, ctx: RequestContext) -> TxnOffsetCommitResponse:
    codes: dict[tuple[str, int], ErrorCode] = {}
    refusal = ErrorCode.NONE
    try:
        await _commit(request, ctx, codes)
    except KafkaError as error:
        refusal = for_version(error, TXN_OFFSET_COMMIT, ctx.api_version).code
    topics = []
    slices = ctx.slices()
    for topic in request.topics:
        answered = TxnOffsetCommitResponseTopic(name=topic.name, partitions=[])
        topics.append(answered)
        for row in topic.partitions:
            code = refusal or codes[topic.name, row.partition_index]
            answered.partitions.append(
                TxnOffsetCommitResponsePartition(partition_index=row.partition_index, error_code=code)
            )
            if slices.is_over():
                await slices.next()
    return TxnOffsetCommitResponse(topics=topics)


async def _commit(
    request: TxnOffsetCommitRequest, ctx: RequestContext, codes: dict[tuple[str, int], ErrorCode]
) -> None:
    """Fills `codes` with the error of each row, checked once the group is part of the transaction."""
    groups = ctx.broker.groups
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
    try:
        records: dict[tuple[str, int], OffsetRecord] = {}  # the last one of each partition
        slices = ctx.slices()
        for topic in request.topics:
            for row in topic.partitions:
                code = codes[topic.name, row.partition_index] = check_row(topic.name, row, ctx)
                if code is ErrorCode.NONE:
                    committed = committed_of(topic.name, row, ctx)
                    records[topic.name, row.partition_index] = OffsetRecord(topic.name, row.partition_index, committed)
                if slices.is_over():
                    await slices.next()
        shard = await groups.shard(request.group_id)  # the group may have another coordinator by now
        await shard.commit_in_transaction(
            request.group_id,
            list(records.values()),
            Producer(request.producer_id, request.producer_epoch),
            lambda index: admission.check((CONSUMER_OFFSETS, index)),
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation_id=request.generation_id,
        )
    finally:
        admission.close()
