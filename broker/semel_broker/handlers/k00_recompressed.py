"""Produce for topics with a `compression.type` of their own: recompresses batches of another codec before their append.

Batches that have the topic's codec are stored as they are. Small batches are recompressed at once. The partitions of a
request with other batches are appended one by one, so that it holds one recompressed batch at a time. As in Kafka,
max.message.bytes applies to the batch as received and as stored. Header and sequences stay unchanged, so a duplicate
batch is answered with the offset of the first.
"""

from __future__ import annotations

from asyncio import gather, get_running_loop
from collections.abc import Coroutine, Iterator
from typing import Any

import msgspec
from semel_protocol.batch import ZSTD_PRODUCE_VERSION, BatchHeader, CorruptBatch, check_produced
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)

from semel_broker.context import RequestContext
from semel_broker.handlers.k00_appends import Appended, answered, append
from semel_broker.handlers.k00_records import ACKS_NONE
from semel_broker.handlers.leader_hints import with_leaders
from semel_broker.scheduling.recompressor import Target, target_of


def at_once(request: ProduceRequest, ctx: RequestContext) -> RequestContext | None:
    """Recompress the batches of the request where needed, if they are small; return the context to append them with.

    None: this takes long, so call `one_by_one`.
    """
    recompressing = ctx.broker.topics.recompressing
    if not any(topic.name in recompressing for topic in request.topic_data):
        return ctx
    made = []
    for topic, row in _rows(request):
        try:
            wanted = _wanted(topic, row, ctx)
            if wanted is None:
                continue
            batch = ctx.broker.recompressor.at_once(row.records or b"", *wanted)
        except KafkaError:
            batch = None  # refused later, in its own row
        if batch is None:
            return None
        made.append((row, batch))
    for row, batch in made:
        row.records = batch
    return _for_recompressed(ctx) if made else ctx


async def one_by_one(request: ProduceRequest, ctx: RequestContext) -> ProduceResponse | None:
    """Recompress and append one batch after the other; then wait for their durability."""
    tasks = [get_running_loop().create_task(await _append(request, topic, row, ctx)) for topic, row in _rows(request)]
    rows = iter(await gather(*tasks))
    if request.acks == ACKS_NONE:
        return None
    response = ProduceResponse(
        responses=[
            ProduceResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[next(rows) for _ in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )
    return with_leaders(response, ctx)


async def _append(
    request: ProduceRequest, topic: ProduceRequestTopic, row: ProduceRequestPartition, ctx: RequestContext
) -> Coroutine[Any, Any, ProduceResponsePartition]:
    """Recompress one batch and append it; return what waits for its durability."""
    try:
        if (wanted := _wanted(topic, row, ctx)) is not None:
            row.records = await ctx.broker.recompressor.recompressed(row.records or b"", *wanted)
            ctx = _for_recompressed(ctx)
    except KafkaError as error:
        if request.acks == ACKS_NONE:
            raise
        return _row(_refused(topic, row, error), row, request, ctx)
    alone = msgspec.structs.replace(request, topic_data=[_alone(topic, row)])
    appended = await append(alone, ctx)
    return _row(appended, row, alone, ctx)


async def _row(
    appended: Appended, row: ProduceRequestPartition, request: ProduceRequest, ctx: RequestContext
) -> ProduceResponsePartition:
    response = await answered(appended, request, ctx)
    if response is None:
        return ProduceResponsePartition(index=row.index)
    return response.responses[0].partition_responses[0]


def _alone(topic: ProduceRequestTopic, row: ProduceRequestPartition) -> ProduceRequestTopic:
    return ProduceRequestTopic(name=topic.name, topic_id=topic.topic_id, partition_data=[row])


def _refused(topic: ProduceRequestTopic, row: ProduceRequestPartition, error: KafkaError) -> Appended:
    """The response for one refused batch. CORRUPT_MESSAGE becomes INVALID_RECORD, because a retry would fail again."""
    code = ErrorCode.INVALID_RECORD if isinstance(error, CorruptBatch) else error.code
    refused = ProduceResponsePartition(index=row.index, error_code=code, base_offset=-1, error_message=error.message)
    return Appended(ProduceResponse(responses=[ProduceResponseTopic(name=topic.name, partition_responses=[refused])]))


def _wanted(
    topic: ProduceRequestTopic, row: ProduceRequestPartition, ctx: RequestContext
) -> tuple[BatchHeader, Target] | None:
    """The batch's header and its target codec; None: the batch needs no recompression, or the append refuses it."""
    known = ctx.broker.topics.get(topic.name)
    if known is None or not row.records:
        return None
    target = target_of(known.config, ctx.broker.config.limits.recompressed_batch_inflated_bytes_max)
    if target is None:
        return None
    try:
        header = check_produced(
            row.records,
            produce_version=ctx.api_version,
            bytes_max=known.config.max_message_bytes,
            transactional=True,
        )
    except KafkaError:
        return None  # the append raises the same error
    return None if header.codec == target.codec else (header, target)


def _for_recompressed(ctx: RequestContext) -> RequestContext:
    """Raise an old API version to one that allows zstd: the batch of an old producer may become zstd."""
    if ctx.api_version >= ZSTD_PRODUCE_VERSION:
        return ctx
    return msgspec.structs.replace(ctx, api_version=ZSTD_PRODUCE_VERSION)


def _rows(request: ProduceRequest) -> Iterator[tuple[ProduceRequestTopic, ProduceRequestPartition]]:
    return ((topic, row) for topic in request.topic_data for row in topic.partition_data)
