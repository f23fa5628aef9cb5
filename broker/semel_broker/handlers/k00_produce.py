"""Produce (key 0): append one record batch per partition.

Served: v3 to v7 (one layout; zstd from v7). The appends have happened when `handle` returns; what it may return to be
awaited is only their durability, so the connection goes on to the next request. acks=0 is never answered: an error
closes the connection. Order of the checks: wire-contract 5.2 (bounds and structure, then the producer's state).
Transactional batches are refused until transactions are served.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from semel_protocol.batch import BatchHeader, check_produced
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)
from semel_protocol.primitives import Buffer
from semel_protocol.record_columns import decode_columns

from semel_broker.context import RequestContext
from semel_broker.partition import Partition

NO_TIMESTAMP = -1
ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1


def handle(
    request: ProduceRequest, ctx: RequestContext
) -> ProduceResponse | Coroutine[Any, Any, ProduceResponse] | None:
    uncommitted: list[tuple[Partition, int]] = []
    response = ProduceResponse(
        responses=[
            ProduceResponseTopic(
                name=topic.name,
                partition_responses=[
                    _append(request, topic.name, row, ctx, uncommitted) for row in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
    if request.acks == ACKS_NONE:
        _raise_first_error(response)
        return None
    if uncommitted:
        return _when_committed(response, uncommitted)
    return response


def _append(
    request: ProduceRequest,
    topic: str,
    row: ProduceRequestPartition,
    ctx: RequestContext,
    uncommitted: list[tuple[Partition, int]],
) -> ProduceResponsePartition:
    try:
        if request.acks not in (ACKS_ALL, ACKS_NONE, ACKS_LEADER):
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; it must be 0, 1 or -1 (all)")
        partition = _writable(topic, row.index, ctx)
        header = check_produced(
            row.records,
            produce_version=ctx.api_version,
            bytes_max=partition.log.config.max_message_bytes,
            transactional=request.transactional_id is not None,
        )
        assert row.records is not None
        _check_batch(partition, header, row.records, ctx)
        result = partition.append(row.records, header=header)
    except KafkaError as error:
        return ProduceResponsePartition(
            index=row.index, error_code=error.code, base_offset=-1, error_message=error.message
        )
    if request.acks == ACKS_ALL and partition.high_watermark <= result.last_offset:
        uncommitted.append((partition, result.last_offset + 1))
    return ProduceResponsePartition(
        index=row.index,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=partition.log_start_offset,
    )


def _writable(name: str, index: int, ctx: RequestContext) -> Partition:
    """The partition, unless it is one that only the broker itself writes to."""
    topics = ctx.broker.topics
    partition = topics.partition(name, index)
    topic = topics.get(name)
    if topic is not None and topic.is_internal:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is internal: only the broker writes to it")
    return partition


def _check_batch(partition: Partition, header: BatchHeader, records: Buffer, ctx: RequestContext) -> None:
    """What the topic's configuration and this issue's broker ask of a well-formed batch."""
    if header.is_transactional:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "transactions are not served by this broker")
    config = partition.log.config
    if not config.log_append_time and header.max_timestamp != NO_TIMESTAMP:
        _check_timestamps(header, config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms, ctx)
    if config.is_compacted:
        keys = decode_columns(records, header).keys
        if None in keys:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"{partition.topic} is compacted: each record needs a key, that at index {keys.index(None)} has none",
            )


def _check_timestamps(header: BatchHeader, before_max_ms: int, after_max_ms: int, ctx: RequestContext) -> None:
    now_ms = ctx.broker.world.now_ms()
    if header.max_timestamp > now_ms + after_max_ms:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {header.max_timestamp} is more than message.timestamp.after.max.ms={after_max_ms} ahead of "
            f"the broker's clock; check the producer's",
        )
    if header.base_timestamp < now_ms - before_max_ms:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {header.base_timestamp} is more than message.timestamp.before.max.ms={before_max_ms} old",
        )


async def _when_committed(response: ProduceResponse, uncommitted: list[tuple[Partition, int]]) -> ProduceResponse:
    for partition, offset in uncommitted:
        await partition.committed(offset)
    return response


def _raise_first_error(response: ProduceResponse) -> None:
    """acks=0 has no answer that could carry an error: raising it closes the connection."""
    for topic in response.responses:
        for row in topic.partition_responses:
            if row.error_code:
                message = f"{topic.name}-{row.index}: {row.error_message}"
                raise KafkaError(ErrorCode(row.error_code), message)
