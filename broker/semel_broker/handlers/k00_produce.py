"""Produce (key 0): append one record batch per partition.

Served: v3 to v7 (one layout; zstd from v7), with transaction version 2 up to v12: v8 adds words and the records at
fault, v11 TRANSACTION_ABORTABLE, v12 joins the transaction by itself (KIP-890). The appends have happened when `handle`
returns; what it may return to be awaited is only their durability, so the connection goes on to the next request; what
is not durable within `timeout_ms` is answered with REQUEST_TIMED_OUT, and acknowledged when it is sent again. The
exception is a batch whose coordinator has to be asked first (`k00_transactional`): it holds back what is behind it.
acks=0 is never answered: an error closes the connection. Order of the checks: wire-contract 5.2.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any

from semel_protocol.batch import BatchHeader, check_produced, read_header
from semel_protocol.compression import InflatesTooLarge
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseRecordError,
    ProduceResponseTopic,
)
from semel_protocol.primitives import Buffer
from semel_protocol.record_columns import decode_columns

from semel_broker.answers import InOrder
from semel_broker.context import RequestContext
from semel_broker.handlers import k00_transactional as transactional
from semel_broker.handlers.k00_transactional import NO_ADMISSIONS, Admissions, Asking, opens_transaction, writable
from semel_broker.limits import Limits
from semel_broker.partition import Partition
from semel_broker.txn.metadata import TopicPartition

NO_TIMESTAMP = NO_PRODUCER_ID = -1
ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1

Answer = ProduceResponse | Coroutine[Any, Any, ProduceResponse] | None


class InvalidRecordsError(KafkaError):
    """Some records of a batch are refused, and the batch with them."""

    def __init__(self, indexes: Sequence[int], message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)
        self.indexes = indexes


def handle(request: ProduceRequest, ctx: RequestContext) -> Answer | InOrder[ProduceResponse | None]:
    if request.transactional_id is not None and (asking := transactional.to_be_admitted(request, ctx)):
        return InOrder(_ask_and_append(request, ctx, asking))
    return _append_all(request, ctx, NO_ADMISSIONS)


async def _ask_and_append(request: ProduceRequest, ctx: RequestContext, asking: Asking) -> ProduceResponse | None:
    """Ask the coordinator, which enrols the partitions (v12; before, the producer has done so), then append as ever."""
    with await transactional.admissions_of(request, ctx, asking) as admissions:
        answer = _append_all(request, ctx, admissions)
    return await answer if isinstance(answer, Coroutine) else answer


def _append_all(request: ProduceRequest, ctx: RequestContext, admissions: Admissions) -> Answer:
    uncommitted: list[tuple[Partition, int]] = []
    response = ProduceResponse(
        responses=[
            ProduceResponseTopic(
                name=topic.name,
                partition_responses=[
                    _append(request, topic.name, row, ctx, uncommitted, admissions) for row in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
    if request.acks == ACKS_NONE:
        _raise_first_error(response)
        return None
    if uncommitted:
        if not ctx.followers:  # else those that follow share a sync with this one
            uncommitted[0][0].hurry()
        return _when_committed(response, _waiting(uncommitted), request.timeout_ms)
    return response


def _append(
    request: ProduceRequest,
    topic: str,
    row: ProduceRequestPartition,
    ctx: RequestContext,
    uncommitted: list[tuple[Partition, int]],
    admissions: Admissions,
) -> ProduceResponsePartition:
    try:
        if request.acks not in (ACKS_ALL, ACKS_NONE, ACKS_LEADER):
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; it must be 0, 1 or -1 (all)")
        partition = writable(topic, row.index, ctx)
        header = check_produced(
            row.records,
            produce_version=ctx.api_version,
            bytes_max=partition.log.config.max_message_bytes,
            transactional=request.transactional_id is not None,
        )
        assert row.records is not None
        _check_batch(partition, header, row.records, ctx)
        if header.is_transactional and opens_transaction(partition, header):
            transactional.check(request.transactional_id or "", partition, header, ctx, admissions)
        if ctx.broker.turned_away and partition.log.producer(header.producer_id) is None:
            ctx.broker.turned_away.check((topic, row.index), header)
        result = partition.append(row.records, header=header, acks_all=request.acks == ACKS_ALL)
    except KafkaError as error:
        if error.retriable and error.code != ErrorCode.CORRUPT_MESSAGE and row.records is not None:
            _turn_away((topic, row.index), row.records, ctx)
        return _refused(row.index, error)
    if request.acks == ACKS_ALL and partition.high_watermark <= result.last_offset:
        uncommitted.append((partition, result.last_offset + 1))
    return ProduceResponsePartition(
        index=row.index,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=partition.log_start_offset,
    )


def _turn_away(place: TopicPartition, records: Buffer, ctx: RequestContext) -> None:
    """What its producer will send again is not to be overtaken by what is on its way already."""
    with suppress(KafkaError):  # whatever else is wrong with it
        header = read_header(records)
        if header.producer_id != NO_PRODUCER_ID:
            ctx.broker.turned_away.note(place, header)


def _refused(index: int, error: KafkaError) -> ProduceResponsePartition:
    at_fault = error.indexes if isinstance(error, InvalidRecordsError) else ()
    return ProduceResponsePartition(
        index=index,
        error_code=error.code,
        base_offset=-1,
        record_errors=[
            ProduceResponseRecordError(batch_index=each, batch_index_error_message=error.message) for each in at_fault
        ],
        error_message=error.message,
    )


def _check_batch(partition: Partition, header: BatchHeader, records: Buffer, ctx: RequestContext) -> None:
    """What the topic's configuration asks of a well-formed batch."""
    config = partition.log.config
    if not config.log_append_time and header.max_timestamp != NO_TIMESTAMP:
        _check_timestamps(header, config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms, ctx)
    if config.is_compacted:
        _check_keys(partition, header, records, ctx.broker.config.limits)


def _check_keys(partition: Partition, header: BatchHeader, records: Buffer, limits: Limits) -> None:
    """Each record of a compacted topic has a key. Raises MESSAGE_TOO_LARGE, upon which producers split the batch, for
    one that would take too long to look at."""
    records_max = limits.keyed_batch_records_max
    if header.record_count > records_max:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{partition.topic} is compacted: a batch may have {records_max} records, not {header.record_count}",
        )
    try:
        keys = decode_columns(records, header, bytes_max=limits.keyed_batch_inflated_bytes_max).keys
    except InflatesTooLarge as error:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{partition.topic} is compacted: {error.message}") from None
    if None in keys:
        raise InvalidRecordsError(
            [index for index, key in enumerate(keys) if key is None],
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


# --- answering -----------------------------------------------------------------------------------------------


Waiting = tuple[Partition, Future[None]]


def _waiting(uncommitted: list[tuple[Partition, int]]) -> list[Waiting]:
    """What an answer waits for, in the turn of the appends: the end of a leadership later on is not missed."""
    return [
        (partition, future) for partition, offset in uncommitted if (future := partition.committing(offset)) is not None
    ]


async def _when_committed(response: ProduceResponse, waiting: list[Waiting], timeout_ms: int) -> ProduceResponse:
    if not waiting:
        return response
    patience = get_running_loop().call_later(max(timeout_ms, 0) / 1000, _wait_no_longer, waiting, timeout_ms)
    failures: dict[TopicPartition, KafkaError] = {}
    try:
        for partition, future in waiting:
            try:
                await future
            except KafkaError as error:
                failures[partition.topic, partition.index] = error
    finally:
        patience.cancel()
        _look_away(waiting)
    if failures:
        for topic in response.responses:
            topic.partition_responses = [
                _refused(row.index, failure) if (failure := failures.get((topic.name, row.index))) is not None else row
                for row in topic.partition_responses
            ]
    return response


def _look_away(waiting: Sequence[Waiting]) -> None:
    """Whoever asked has gone, perhaps: what becomes of the others is nobody's business."""
    for _, future in waiting:
        if not future.cancel() and not future.cancelled():
            future.exception()


def _wait_no_longer(waiting: Sequence[Waiting], timeout_ms: int) -> None:
    for partition, future in waiting:
        if not future.done():
            future.set_exception(_too_late(partition, timeout_ms))


def _too_late(partition: Partition, timeout_ms: int) -> KafkaError:
    """The batch is written, and nobody knows yet what becomes of it."""
    try:
        partition.check_in_sync(partition.log)
    except KafkaError as error:
        return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, f"written, not replicated: {error.message}")
    return KafkaError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"{partition.topic}-{partition.index}: the batch is written, but was not committed within the request's "
        f"timeout_ms={timeout_ms}; send it again, unchanged, to hear whether it is",
    )


def _raise_first_error(response: ProduceResponse) -> None:
    """acks=0 has no answer that could carry an error: raising it closes the connection."""
    for topic in response.responses:
        for row in topic.partition_responses:
            if row.error_code:
                message = f"{topic.name}-{row.index}: {row.error_message}"
                raise KafkaError(ErrorCode(row.error_code), message)
