"""Appends the batches of a Produce, and waits until they are durable.

    appended = await append(request, ctx)
    response = await answered(appended, request, ctx)

`append` runs without a wait unless the request is long, its records take long to check, or a coordinator must be asked.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from semel_protocol.batch import read_header
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseRecordError,
    ProduceResponseTopic,
)
from semel_protocol.primitives import Buffer

from semel_broker.context import RequestContext
from semel_broker.handlers import k00_transactional as transactional
from semel_broker.handlers.k00_records import (
    ACKS_ALL,
    ACKS_NONE,
    Inspection,
    InvalidRecordsError,
    accepted,
    check_owner,
    inspect,
)
from semel_broker.handlers.k00_transactional import NO_ADMISSIONS, RequestAdmissions, opens_transaction, writable
from semel_broker.handlers.leader_hints import STALE_LEADER, with_leaders
from semel_broker.partitions.partition import Partition
from semel_broker.txn.model.metadata import TopicPartition

NO_PRODUCER_ID = -1

ROWS_AT_ONCE_MAX = 256
BYTES_AT_ONCE_MAX = 8 << 20
"""A request above either bound is checked and appended in slices."""
BYTES_PER_STEP = 16 << 10
"""Bytes of record batches that count as one step of a slice."""

Waiting = tuple[Partition, Future[None]]
"""A partition and the future that is done once its batch is durable. It is made in the turn of the append, so it sees
each later end of leadership."""


class Appended(msgspec.Struct):
    """The response to a Produce whose batches are appended, and what it waits for."""

    response: ProduceResponse
    waiting: list[Waiting] = []


async def append(request: ProduceRequest, ctx: RequestContext) -> Appended:
    """Check the batches, ask the coordinator of their transaction if need be, and append them.

    From v12 on the coordinator also adds the partitions to the transaction. Raises the first error of an acks=0
    request, which has no answer: the connection is closed.
    """
    is_long = _is_long(request)
    inspections = await inspect(request, ctx, is_long=is_long)
    if request.transactional_id is None:
        return await _append_all(request, ctx, inspections, NO_ADMISSIONS, is_long=is_long)
    unadmitted = await ctx.slices(is_long=is_long).finish(transactional.to_be_admitted(request, ctx))
    with await transactional.admissions_of(request, ctx, unadmitted) as admissions:
        return await _append_all(request, ctx, inspections, admissions, is_long=is_long)


async def answered(appended: Appended, request: ProduceRequest, ctx: RequestContext) -> ProduceResponse | None:
    """The response once the batches are durable; None for acks=0."""
    response, waiting = appended.response, appended.waiting
    if request.acks == ACKS_NONE:
        return None
    if waiting:
        if not ctx.followers:  # otherwise the later requests share a sync with this one
            waiting[0][0].hurry()
        return await _when_committed(response, waiting, request.timeout_ms if request.acks == ACKS_ALL else None, ctx)
    return _with_leaders(response, ctx)


def _is_long(request: ProduceRequest) -> bool:
    """Whether the appends would block the event loop for too long."""
    rows = [row for topic in request.topic_data for row in topic.partition_data]
    return len(rows) > ROWS_AT_ONCE_MAX or sum(len(row.records or b"") for row in rows) > BYTES_AT_ONCE_MAX


async def _append_all(
    request: ProduceRequest,
    ctx: RequestContext,
    inspections: list[Inspection],
    admissions: RequestAdmissions,
    *,
    is_long: bool,
) -> Appended:
    slices, inspected = ctx.slices(is_long=is_long), iter(inspections)
    waiting: list[Waiting] = []
    topics = []
    try:
        for topic in request.topic_data:
            rows = []
            for row in topic.partition_data:
                rows.append(_append(request, topic, row, next(inspected), ctx, waiting, admissions))
                steps = 1 + len(row.records or b"") // BYTES_PER_STEP
                row.records = None  # else its bytes stay in memory until the batch is durable
                if slices.is_over(steps):
                    await slices.next()
            topics.append(ProduceResponseTopic(name=topic.name, topic_id=topic.topic_id, partition_responses=rows))
        response = ProduceResponse(responses=topics)
        if request.acks == ACKS_NONE:
            _raise_first_error(response)
    except BaseException:
        _discard(waiting)
        raise
    return Appended(response, waiting)


def _append(
    request: ProduceRequest,
    topic: ProduceRequestTopic,
    row: ProduceRequestPartition,
    inspection: Inspection,
    ctx: RequestContext,
    waiting: list[Waiting],
    admissions: RequestAdmissions,
) -> ProduceResponsePartition:
    try:
        if inspection.refusal is not None:
            raise inspection.refusal
        partition = writable(topic, row.index, ctx)
        assert row.records is not None
        records, header = accepted(inspection, partition, row.records, ctx)
        if header.is_transactional and opens_transaction(partition, header):
            transactional.check(request.transactional_id or "", partition, header, ctx, admissions)
        if ctx.broker.refused_batches and partition.log.producers.get(header.producer_id) is None:
            ctx.broker.refused_batches.check((topic.name, row.index), header)
        ctx.broker.topics.local.space.check(header.size)
        result = partition.append(
            records,
            header=header,
            acks_all=request.acks == ACKS_ALL,
            transactional_id=request.transactional_id or "",
        )
    except KafkaError as error:
        refused = ctx.broker.counters.appends.refused
        refused[error.code] = refused.get(error.code, 0) + 1
        if error.retriable and error.code != ErrorCode.CORRUPT_MESSAGE and row.records is not None:
            _note_refused(request, (topic.name, row.index), row.records, ctx)
        return _refused(row.index, error.with_traceback(None))  # else it would keep this frame, and the frame keeps it
    if request.acks != ACKS_NONE and partition.view.high_watermark <= result.last_offset:
        acks_all, offset = request.acks == ACKS_ALL, result.last_offset + 1
        future = partition.committing(offset) if acks_all else partition.storing(offset)
        if future is not None:
            waiting.append((partition, future))
    return ProduceResponsePartition(
        index=row.index,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=partition.log_start_offset,
    )


def _with_leaders(response: ProduceResponse, ctx: RequestContext) -> ProduceResponse:
    if any(row.error_code in STALE_LEADER for topic in response.responses for row in topic.partition_responses):
        return with_leaders(response, ctx)
    return response


def _note_refused(request: ProduceRequest, place: TopicPartition, records: Buffer, ctx: RequestContext) -> None:
    """Note the refused batch: later batches of its producer must not be appended before its retry."""
    with suppress(KafkaError):  # the batch may be malformed, too, or have the producer id of another client
        header = read_header(records)
        check_owner(request, header, ctx)
        if header.producer_id != NO_PRODUCER_ID:
            ctx.broker.refused_batches.note(place, header)


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


async def _when_committed(
    response: ProduceResponse, waiting: list[Waiting], timeout_ms: int | None, ctx: RequestContext
) -> ProduceResponse:
    """The response once all futures are done. `timeout_ms` None: no timeout, because a failed sync ends the process."""
    timer = None
    if timeout_ms is not None:
        timer = get_running_loop().call_later(max(timeout_ms, 0) / 1000, _time_out, waiting, timeout_ms)
    failures: dict[TopicPartition, KafkaError] = {}
    try:
        for partition, future in waiting:
            try:
                await future
            except KafkaError as error:
                failures[partition.topic, partition.index] = error
    finally:
        if timer is not None:
            timer.cancel()
        _discard(waiting)
    if failures:
        for topic in response.responses:
            topic.partition_responses = [
                _refused(row.index, failure) if (failure := failures.get((topic.name, row.index))) is not None else row
                for row in topic.partition_responses
            ]
    return _with_leaders(response, ctx)


def _discard(waiting: Sequence[Waiting]) -> None:
    """Cancel the futures that are open, and consume the exceptions of the others."""
    for _, future in waiting:
        if not future.cancel() and not future.cancelled():
            future.exception()


def _time_out(waiting: Sequence[Waiting], timeout_ms: int) -> None:
    for partition, future in waiting:
        if not future.done():
            future.set_exception(_timeout_error(partition, timeout_ms))


def _timeout_error(partition: Partition, timeout_ms: int) -> KafkaError:
    """The error for a batch that is written but not committed in time."""
    try:
        partition.check_in_sync(partition.log)
    except KafkaError as error:
        message = f"the batch is written but not replicated: {error.message}"
        return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, message)
    return KafkaError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"{partition.topic}-{partition.index}: the batch is written, but was not committed within the request's "
        f"timeout_ms={timeout_ms}; send it again, unchanged, to learn whether it is",
    )


def _raise_first_error(response: ProduceResponse) -> None:
    for topic in response.responses:
        for row in topic.partition_responses:
            if row.error_code:
                message = f"{topic.name}-{row.index}: {row.error_message}"
                raise KafkaError(ErrorCode(row.error_code), message)
