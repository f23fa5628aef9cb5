"""Produce (key 0): append one record batch to each partition named.

Served: v3 to v7 (one layout; zstd from v7); with transaction version 2 up to v13. v8 adds an error message and the
records at fault. v10 adds the present leader to NOT_LEADER_OR_FOLLOWER (KIP-951). v11 adds TRANSACTION_ABORTABLE. v12
adds the partitions to the transaction by itself (KIP-890). v13 names topics by id: UNKNOWN_TOPIC_ID if there is no such
topic, also if it is deleted and created anew while the request waits (KIP-516).

The appends have happened when `handle` returns. The returned coroutine waits only for durability, so the connection
starts its next request at once.

- acks=all: answered when the high watermark has passed the batches. If that takes longer than `timeout_ms`, the answer
  is REQUEST_TIMED_OUT; the producer's retry is then acknowledged.
- acks=1: answered when the batches are durable on this broker, without a timeout and independent of followers
  (`docs/decisions/0018-acks-1-waits-for-the-disk.md`).
- acks=0: never answered; an error closes the connection.

Three kinds of request hold back later requests of the connection: one with very many batches, one whose records take
long to check (`k00_records`), and one whose coordinator must first be asked (`k00_transactional`).
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from semel_protocol.acls import Operation, ResourceType
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
from semel_protocol.refusals import refused
from semel_protocol.schema import Message

from semel_broker.answers import CloseConnectionError, InOrder
from semel_broker.authorization.access import Access
from semel_broker.authorization.administration import OWN_RECORDS
from semel_broker.authorization.requirements import (
    REFUSAL_OF,
    CheckedRequest,
    CustomRequirement,
    Requirements,
    Steps,
    on_topics,
    on_transactional_id,
)
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
    check_owner,
    finish_inspections,
)
from semel_broker.handlers.k00_transactional import (
    BY_ID_FROM,
    NO_ADMISSIONS,
    RequestAdmissions,
    Unadmitted,
    opens_transaction,
    writable,
)
from semel_broker.handlers.leader_hints import STALE_LEADER, with_leaders
from semel_broker.partitions.partition import Partition
from semel_broker.txn.model.metadata import TopicPartition

NO_PRODUCER_ID = -1

ROWS_AT_ONCE_MAX = 256
BYTES_AT_ONCE_MAX = 8 << 20
"""A request above either bound is checked and appended in slices."""
BYTES_PER_STEP = 16 << 10
"""Bytes of record batches that count as one step of a slice."""

Inspections = list[list[Inspection]]
"""By topic, then by partition, in the order of the request."""
Answer = ProduceResponse | Coroutine[Any, Any, ProduceResponse] | None


def handle(request: ProduceRequest, ctx: RequestContext) -> Answer | InOrder[ProduceResponse | None]:
    if ctx.api_version >= BY_ID_FROM:
        for topic in request.topic_data:
            topic.name = ctx.broker.topics.name_of(topic.topic_id) or ""
    if ctx.broker.topics.recompressing and recompressed.is_wanted(request, ctx):
        return recompressed.start(request, ctx, _start)
    return _start(request, ctx)


def _start(request: ProduceRequest, ctx: RequestContext) -> Answer | InOrder[ProduceResponse | None]:
    if _is_long(request):
        return InOrder(_inspect_and_append_in_slices(request, ctx))
    inspections = begin_inspections(request, ctx)
    if not all(inspection.is_done for rows in inspections for inspection in rows):
        return InOrder(_inspect_and_append(request, ctx, inspections))
    if request.transactional_id is not None and (unadmitted := transactional.to_be_admitted(request, ctx)):
        return InOrder(_admit_and_append(request, ctx, inspections, unadmitted))
    return _append_all(request, ctx, inspections, NO_ADMISSIONS)


async def _inspect_and_append(
    request: ProduceRequest, ctx: RequestContext, inspections: Inspections
) -> ProduceResponse | None:
    """Finish the record checks in slices, then append."""
    await finish_inspections(inspections, ctx)
    if request.transactional_id is not None and (unadmitted := transactional.to_be_admitted(request, ctx)):
        return await _admit_and_append(request, ctx, inspections, unadmitted)
    answer = _append_all(request, ctx, inspections, NO_ADMISSIONS)
    return await answer if isinstance(answer, Coroutine) else answer


async def _admit_and_append(
    request: ProduceRequest, ctx: RequestContext, inspections: Inspections, unadmitted: Unadmitted
) -> ProduceResponse | None:
    """Ask the coordinator, then append. From v12 on the coordinator also adds the partitions to the transaction."""
    with await transactional.admissions_of(request, ctx, unadmitted) as admissions:
        answer = _append_all(request, ctx, inspections, admissions)
    return await answer if isinstance(answer, Coroutine) else answer


def _is_long(request: ProduceRequest) -> bool:
    """Whether the appends would block the event loop for too long."""
    rows = [row for topic in request.topic_data for row in topic.partition_data]
    return len(rows) > ROWS_AT_ONCE_MAX or sum(len(row.records or b"") for row in rows) > BYTES_AT_ONCE_MAX


async def _inspect_and_append_in_slices(request: ProduceRequest, ctx: RequestContext) -> ProduceResponse | None:
    """Check and append in slices; other connections are served in between."""
    slices = ctx.slices()
    inspections = [
        await slices.each(topic.partition_data, partial(begin_inspection, request, ctx, topic))
        for topic in request.topic_data
    ]
    await finish_inspections(inspections, ctx)
    if request.transactional_id is None:
        return await _append_in_slices(request, ctx, inspections, NO_ADMISSIONS)
    unadmitted = await slices.finish(transactional.to_be_admitted_in_steps(request, ctx))
    with await transactional.admissions_of(request, ctx, unadmitted) as admissions:
        return await _append_in_slices(request, ctx, inspections, admissions)


async def _append_in_slices(
    request: ProduceRequest, ctx: RequestContext, inspections: Inspections, admissions: RequestAdmissions
) -> ProduceResponse | None:
    """`_append_all` in slices; other connections are served in between."""
    slices = ctx.slices()
    waiting: list[Waiting] = []
    topics = []
    try:
        for topic, inspected in zip(request.topic_data, inspections, strict=True):
            rows = []
            for row, inspection in zip(topic.partition_data, inspected, strict=True):
                uncommitted: list[tuple[Partition, int]] = []
                rows.append(_append(request, topic, row, inspection, ctx, uncommitted, admissions))
                waiting += _waiting(uncommitted, request.acks == ACKS_ALL)
                if slices.is_over(1 + len(row.records or b"") // BYTES_PER_STEP):
                    await slices.next()
            topics.append(ProduceResponseTopic(name=topic.name, topic_id=topic.topic_id, partition_responses=rows))
    except BaseException:
        _discard(waiting)
        raise
    answer = _answered(request, ProduceResponse(responses=topics), ctx, waiting)
    return await answer if isinstance(answer, Coroutine) else answer


def _append_all(
    request: ProduceRequest, ctx: RequestContext, inspections: Inspections, admissions: RequestAdmissions
) -> Answer:
    uncommitted: list[tuple[Partition, int]] = []
    response = ProduceResponse(
        responses=[
            ProduceResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    _append(request, topic, row, inspection, ctx, uncommitted, admissions)
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
        if not ctx.followers:  # otherwise the later requests share a sync with this one
            waiting[0][0].hurry()
        return _when_committed(response, waiting, request.timeout_ms if request.acks == ACKS_ALL else None, ctx)
    return _with_leaders(response, ctx)


def _append(
    request: ProduceRequest,
    topic: ProduceRequestTopic,
    row: ProduceRequestPartition,
    inspection: Inspection,
    ctx: RequestContext,
    uncommitted: list[tuple[Partition, int]],
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
        uncommitted.append((partition, result.last_offset + 1))
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


# --- answering -----------------------------------------------------------------------------------------------


Waiting = tuple[Partition, Future[None]]


def _waiting(uncommitted: list[tuple[Partition, int]], acks_all: bool) -> list[Waiting]:
    """The futures that an answer waits for. Made in the turn of the appends: they see each later end of leadership."""
    waiting = []
    for partition, offset in uncommitted:
        future = partition.committing(offset) if acks_all else partition.storing(offset)
        if future is not None:
            waiting.append((partition, future))
    return waiting


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
    """Raise the first error of an acks=0 request, which has no answer: the connection is closed."""
    for topic in response.responses:
        for row in topic.partition_responses:
            if row.error_code:
                message = f"{topic.name}-{row.index}: {row.error_message}"
                raise KafkaError(ErrorCode(row.error_code), message)


# --- rights and audit ----------------------------------------------------------------------------------------


def _refuse_all(request: ProduceRequest, code: ErrorCode, why: str) -> Message:
    if request.acks == ACKS_NONE:
        raise CloseConnectionError("not_authorized", code=code.name)
    return refused(request, code, why)


def _unanswered(request: ProduceRequest, ctx: RequestContext, access: Access) -> Steps:
    """acks=0 has no response that could carry a refusal: the connection is closed."""
    if request.acks == ACKS_NONE:
        for topic in request.topic_data:
            yield 1
            has_id = ctx.api_version >= BY_ID_FROM
            name = ctx.broker.topics.name_of(topic.topic_id) if has_id else topic.name
            if name is None:
                raise CloseConnectionError("refused", code=ErrorCode.UNKNOWN_TOPIC_ID.name)
            if not access.allows(Operation.WRITE, ResourceType.TOPIC, name):
                raise CloseConnectionError("not_authorized", code=REFUSAL_OF[ResourceType.TOPIC].name, topic=name)
    return CheckedRequest(request)


NEEDS: Requirements = (
    CustomRequirement([], _unanswered),
    on_transactional_id(Operation.WRITE, _refuse_all),
    on_topics(Operation.WRITE, ProduceRequest),
)
NOT_AUDITED = OWN_RECORDS
IN_ORDER = True
