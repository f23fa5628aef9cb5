"""Produce (key 0): append one record batch per partition.

Served: v3 to v7 (one layout; zstd from v7), with transaction version 2 up to v12: v8 adds words and the records at
fault, v11 TRANSACTION_ABORTABLE, v12 joins the transaction by itself (KIP-890). The appends have happened when `handle`
returns; what it may return to be awaited is only their durability, so the connection goes on to the next request.
acks=all is answered once the high watermark is above them; what is not there within `timeout_ms` is answered with
REQUEST_TIMED_OUT, and acknowledged when it is sent again. acks=1 is answered once they are durable on this broker,
whatever followers have and however long its disk takes (`docs/decisions/0018-acks-1-waits-for-the-disk.md`). Some
requests hold back what is behind them on the connection: those of very many batches, records that take long to be
looked at (`k00_records`), and a batch whose coordinator has to be asked first (`k00_transactional`).
acks=0 is never answered: an error closes the connection. Order of the checks: wire-contract 5.2.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from semel_protocol.batch import read_header
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

from semel_broker.answers import InOrder
from semel_broker.context import RequestContext
from semel_broker.handlers import k00_recompressed as recompressed
from semel_broker.handlers import k00_transactional as transactional
from semel_broker.handlers.k00_records import (
    ACKS_ALL,
    ACKS_NONE,
    Inspection,
    InvalidRecordsError,
    accepted,
    begin_inspection,
    begin_inspections,
    finish_inspections,
)
from semel_broker.handlers.k00_transactional import NO_ADMISSIONS, Admissions, Asking, opens_transaction, writable
from semel_broker.partitions.partition import Partition
from semel_broker.txn.model.metadata import TopicPartition

NO_PRODUCER_ID = -1

ROWS_AT_ONCE_MAX = 256
BYTES_AT_ONCE_MAX = 8 << 20
"""A request with more is looked at and appended in slices."""
BYTES_PER_STEP = 16 << 10
"""Of record batches, in a slice."""

Inspections = list[list[Inspection]]
"""By topic and partition, in the order of the request."""
Answer = ProduceResponse | Coroutine[Any, Any, ProduceResponse] | None


def handle(request: ProduceRequest, ctx: RequestContext) -> Answer | InOrder[ProduceResponse | None]:
    if ctx.broker.topics.recompressing and recompressed.is_wanted(request, ctx):
        return recompressed.start(request, ctx, _start)
    return _start(request, ctx)


def _start(request: ProduceRequest, ctx: RequestContext) -> Answer | InOrder[ProduceResponse | None]:
    if _is_long(request):
        return InOrder(_inspect_and_append_in_slices(request, ctx))
    inspections = begin_inspections(request, ctx)
    if not all(inspection.is_done for rows in inspections for inspection in rows):
        return InOrder(_inspect_and_append(request, ctx, inspections))
    if request.transactional_id is not None and (asking := transactional.to_be_admitted(request, ctx)):
        return InOrder(_ask_and_append(request, ctx, inspections, asking))
    return _append_all(request, ctx, inspections, NO_ADMISSIONS)


async def _inspect_and_append(
    request: ProduceRequest, ctx: RequestContext, inspections: Inspections
) -> ProduceResponse | None:
    """Look at the records in slices, then append as ever."""
    await finish_inspections(inspections, ctx)
    if request.transactional_id is not None and (asking := transactional.to_be_admitted(request, ctx)):
        return await _ask_and_append(request, ctx, inspections, asking)
    answer = _append_all(request, ctx, inspections, NO_ADMISSIONS)
    return await answer if isinstance(answer, Coroutine) else answer


async def _ask_and_append(
    request: ProduceRequest, ctx: RequestContext, inspections: Inspections, asking: Asking
) -> ProduceResponse | None:
    """Ask the coordinator, which enrols the partitions (v12; before, the producer has done so), then append as ever."""
    with await transactional.admissions_of(request, ctx, asking) as admissions:
        answer = _append_all(request, ctx, inspections, admissions)
    return await answer if isinstance(answer, Coroutine) else answer


def _is_long(request: ProduceRequest) -> bool:
    """Whether the appends would hold the event loop for too long."""
    rows = [row for topic in request.topic_data for row in topic.partition_data]
    return len(rows) > ROWS_AT_ONCE_MAX or sum(len(row.records or b"") for row in rows) > BYTES_AT_ONCE_MAX


async def _inspect_and_append_in_slices(request: ProduceRequest, ctx: RequestContext) -> ProduceResponse | None:
    """All of it while other connections are served in between."""
    slices = ctx.slices()
    inspections = [
        await slices.each(topic.partition_data, partial(begin_inspection, request, ctx, topic.name))
        for topic in request.topic_data
    ]
    await finish_inspections(inspections, ctx)
    if request.transactional_id is None:
        return await _append_in_slices(request, ctx, inspections, NO_ADMISSIONS)
    asking = await slices.finish(transactional.to_be_admitted_in_steps(request, ctx))
    with await transactional.admissions_of(request, ctx, asking) as admissions:
        return await _append_in_slices(request, ctx, inspections, admissions)


async def _append_in_slices(
    request: ProduceRequest, ctx: RequestContext, inspections: Inspections, admissions: Admissions
) -> ProduceResponse | None:
    """`_append_all`, while other connections are served in between."""
    slices = ctx.slices()
    waiting: list[Waiting] = []
    topics = []
    try:
        for topic, inspected in zip(request.topic_data, inspections, strict=True):
            rows = []
            for row, inspection in zip(topic.partition_data, inspected, strict=True):
                uncommitted: list[tuple[Partition, int]] = []
                rows.append(_append(request, topic.name, row, inspection, ctx, uncommitted, admissions))
                waiting += _waiting(uncommitted, request.acks == ACKS_ALL)
                if slices.is_over(1 + len(row.records or b"") // BYTES_PER_STEP):
                    await slices.next()
            topics.append(ProduceResponseTopic(name=topic.name, partition_responses=rows))
    except BaseException:
        _look_away(waiting)
        raise
    answer = _answered(request, ProduceResponse(responses=topics), ctx, waiting)
    return await answer if isinstance(answer, Coroutine) else answer


def _append_all(
    request: ProduceRequest, ctx: RequestContext, inspections: Inspections, admissions: Admissions
) -> Answer:
    uncommitted: list[tuple[Partition, int]] = []
    response = ProduceResponse(
        responses=[
            ProduceResponseTopic(
                name=topic.name,
                partition_responses=[
                    _append(request, topic.name, row, inspection, ctx, uncommitted, admissions)
                    for row, inspection in zip(topic.partition_data, rows, strict=True)
                ],
            )
            for topic, rows in zip(request.topic_data, inspections, strict=True)
        ]
    )
    return _answered(request, response, ctx, _waiting(uncommitted, request.acks == ACKS_ALL))


def _answered(
    request: ProduceRequest, response: ProduceResponse, ctx: RequestContext, waiting: list[Waiting]
) -> Answer:
    if request.acks == ACKS_NONE:
        _raise_first_error(response)
        return None
    if waiting:
        if not ctx.followers:  # else those that follow share a sync with this one
            waiting[0][0].hurry()
        return _when_committed(response, waiting, request.timeout_ms if request.acks == ACKS_ALL else None)
    return response


def _append(
    request: ProduceRequest,
    topic: str,
    row: ProduceRequestPartition,
    inspection: Inspection,
    ctx: RequestContext,
    uncommitted: list[tuple[Partition, int]],
    admissions: Admissions,
) -> ProduceResponsePartition:
    try:
        if inspection.refusal is not None:
            raise inspection.refusal
        partition = writable(topic, row.index, ctx)
        assert row.records is not None
        records, header = accepted(inspection, partition, row.records, ctx)
        if header.is_transactional and opens_transaction(partition, header):
            transactional.check(request.transactional_id or "", partition, header, ctx, admissions)
        if ctx.broker.refused_batches and partition.log.producer(header.producer_id) is None:
            ctx.broker.refused_batches.check((topic, row.index), header)
        result = partition.append(records, header=header, acks_all=request.acks == ACKS_ALL)
    except KafkaError as error:
        if error.retriable and error.code != ErrorCode.CORRUPT_MESSAGE and row.records is not None:
            _note_refused((topic, row.index), row.records, ctx)
        return _refused(row.index, error.with_traceback(None))  # else it would keep this frame, and the frame keeps it
    if request.acks != ACKS_NONE and partition.view.high_watermark <= result.last_offset:
        uncommitted.append((partition, result.last_offset + 1))
    return ProduceResponsePartition(
        index=row.index,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=partition.log_start_offset,
    )


def _note_refused(place: TopicPartition, records: Buffer, ctx: RequestContext) -> None:
    """What its producer will send again is not to be overtaken by what is on its way already."""
    with suppress(KafkaError):  # whatever else is wrong with it
        header = read_header(records)
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


# --- answering -----------------------------------------------------------------------------------------------


Waiting = tuple[Partition, Future[None]]


def _waiting(uncommitted: list[tuple[Partition, int]], acks_all: bool) -> list[Waiting]:
    """What an answer waits for, in the turn of the appends: the end of a leadership later on is not missed."""
    waiting = []
    for partition, offset in uncommitted:
        future = partition.committing(offset) if acks_all else partition.storing(offset)
        if future is not None:
            waiting.append((partition, future))
    return waiting


async def _when_committed(response: ProduceResponse, waiting: list[Waiting], timeout_ms: int | None) -> ProduceResponse:
    """`timeout_ms` None: without end. A disk answers, or the process ends."""
    patience = None
    if timeout_ms is not None:
        patience = get_running_loop().call_later(max(timeout_ms, 0) / 1000, _wait_no_longer, waiting, timeout_ms)
    failures: dict[TopicPartition, KafkaError] = {}
    try:
        for partition, future in waiting:
            try:
                await future
            except KafkaError as error:
                failures[partition.topic, partition.index] = error
    finally:
        if patience is not None:
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
