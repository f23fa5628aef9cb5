"""The part of Produce for topics whose `compression.type` is not `producer`: batches of another codec are recompressed
before they are appended; those that have the codec already are stored as they are.

Small batches are recompressed at once. A request with others is answered in order, and its partitions are appended to
one by one, so that no more than one recompressed batch of it is held. As in Kafka, max.message.bytes holds for what
came and for what is stored. Header and sequences stay: a batch that was stored before is answered with its place.
"""

from __future__ import annotations

from asyncio import gather, get_running_loop
from collections.abc import Callable, Coroutine, Iterator
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

from semel_broker.answers import InOrder
from semel_broker.context import RequestContext
from semel_broker.scheduling.recompressor import Target, target_of

ACKS_NONE = 0

Answer = ProduceResponse | Coroutine[Any, Any, ProduceResponse] | None
Started = Answer | InOrder[ProduceResponse | None]
Start = Callable[[ProduceRequest, RequestContext], Started]
"""Appends what a request has."""


def is_wanted(request: ProduceRequest, ctx: RequestContext) -> bool:
    """Whether a topic of the request wants its batches under a codec of its own."""
    recompressing = ctx.broker.topics.recompressing
    return bool(recompressing) and any(topic.name in recompressing for topic in request.topic_data)


def start(request: ProduceRequest, ctx: RequestContext, append: Start) -> Started:
    """`append` the request, recompressed."""
    recompressed = []
    for topic, row in _rows(request):
        try:
            wanted = _wanted(topic, row, ctx)
            if wanted is None:
                continue
            batch = ctx.broker.recompressor.at_once(row.records or b"", *wanted)
        except KafkaError:
            batch = None  # to be refused in its row
        if batch is None:
            return InOrder(_one_by_one(request, ctx, append))
        recompressed.append((row, batch))
    for row, batch in recompressed:
        row.records = batch
    return append(request, _for_recompressed(ctx) if recompressed else ctx)


async def _one_by_one(request: ProduceRequest, ctx: RequestContext, append: Start) -> ProduceResponse | None:
    tasks = []
    for topic, row in _rows(request):
        answer = await _append(request, topic, row, ctx, append)
        tasks.append(get_running_loop().create_task(_row(answer, row)))
    rows = iter(await gather(*tasks))
    if request.acks == ACKS_NONE:
        return None
    return ProduceResponse(
        responses=[
            ProduceResponseTopic(name=topic.name, partition_responses=[next(rows) for _ in topic.partition_data])
            for topic in request.topic_data
        ]
    )


async def _append(
    request: ProduceRequest, topic: str, row: ProduceRequestPartition, ctx: RequestContext, append: Start
) -> Answer:
    """Recompress one batch and append it: what answers it, or waits until it can be answered."""
    try:
        if (wanted := _wanted(topic, row, ctx)) is not None:
            row.records = await ctx.broker.recompressor.recompressed(row.records or b"", *wanted)
            ctx = _for_recompressed(ctx)
    except KafkaError as error:
        if request.acks == ACKS_NONE:
            raise
        return _refused(topic, row, error)
    answer = append(msgspec.structs.replace(request, topic_data=[_alone(topic, row)]), ctx)
    if isinstance(answer, InOrder):
        answer = await answer.answer
    row.records = None
    return answer


async def _row(answer: Answer, row: ProduceRequestPartition) -> ProduceResponsePartition:
    response = await answer if isinstance(answer, Coroutine) else answer
    if response is None:
        return ProduceResponsePartition(index=row.index)
    return response.responses[0].partition_responses[0]


def _alone(topic: str, row: ProduceRequestPartition) -> ProduceRequestTopic:
    return ProduceRequestTopic(name=topic, partition_data=[row])


def _refused(topic: str, row: ProduceRequestPartition, error: KafkaError) -> ProduceResponse:
    """A blob that is none will be none when it is sent again, so that a producer is not asked to."""
    code = ErrorCode.INVALID_RECORD if isinstance(error, CorruptBatch) else error.code
    refused = ProduceResponsePartition(index=row.index, error_code=code, base_offset=-1, error_message=error.message)
    return ProduceResponse(responses=[ProduceResponseTopic(name=topic, partition_responses=[refused])])


def _wanted(topic: str, row: ProduceRequestPartition, ctx: RequestContext) -> tuple[BatchHeader, Target] | None:
    """The batch's header, and what is to become of it; None: it is appended, or refused, as it is.

    Raises KafkaError for a batch that must not be looked into.
    """
    known = ctx.broker.topics.get(topic)
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
        return None  # the append finds out the same
    return None if header.codec == target.codec else (header, target)


def _for_recompressed(ctx: RequestContext) -> RequestContext:
    """An old producer's batch may become zstd, which it could not have sent."""
    if ctx.api_version >= ZSTD_PRODUCE_VERSION:
        return ctx
    return msgspec.structs.replace(ctx, api_version=ZSTD_PRODUCE_VERSION)


def _rows(request: ProduceRequest) -> Iterator[tuple[str, ProduceRequestPartition]]:
    return ((topic.name, row) for topic in request.topic_data for row in topic.partition_data)
