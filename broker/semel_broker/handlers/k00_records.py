"""The record checks of Produce: each batch is checked before its append, also against the settings of its topic.

Each record is checked, as by Kafka's LogValidator: its framing, index and timestamp, and on a compacted topic its key
(decision 17). Most batches are checked in the turn of the loop in which they arrive. Longer checks wait in the queue of
`work_turns`; then no batch of the request is appended before all checks are done.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from semel_protocol.batch import (
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchHeader,
    check_produced,
    read_header,
    state_max_timestamp,
)
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from semel_protocol.primitives import Buffer
from semel_protocol.record_check import CheckedRecords, check_records

from semel_broker.context import RequestContext
from semel_broker.coordination.producer_owners import owner_of
from semel_broker.handlers.k00_transactional import writable
from semel_broker.partitions.partition import Partition
from semel_broker.scheduling.work_turns import Work

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1


class InvalidRecordsError(KafkaError):
    """Records at `indexes` are invalid, so the whole batch is refused."""

    def __init__(self, indexes: Sequence[int], message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)
        self.indexes = indexes


class Inspection(msgspec.Struct):
    """The checks of one batch: the error that refuses it, or its header and the check of its records."""

    refusal: KafkaError | None
    header: BatchHeader | None = None
    work: Work[CheckedRecords] | None = None

    @property
    def is_done(self) -> bool:
        return self.work is None or self.work.is_done


async def inspect(request: ProduceRequest, ctx: RequestContext, *, is_long: bool) -> list[Inspection]:
    """Check each batch of each topic, in the order of the request. Waits if this takes more than the budget of the
    turn; other connections are served in between.
    """
    slices = ctx.slices(is_long=is_long)
    inspections = []
    for topic in request.topic_data:
        for row in topic.partition_data:
            inspections.append(_begin_inspection(request, ctx, topic, row))
            if slices.is_over():
                await slices.next()
    for inspection in inspections:
        if not inspection.is_done:
            assert inspection.work is not None
            await ctx.broker.work_turns.finish(inspection.work)
    return inspections


def _begin_inspection(
    request: ProduceRequest, ctx: RequestContext, topic: ProduceRequestTopic, row: ProduceRequestPartition
) -> Inspection:
    """Begin the checks of one batch, within this turn's budget."""
    try:
        if request.acks not in (ACKS_ALL, ACKS_NONE, ACKS_LEADER):
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; it must be 0, 1 or -1 (all)")
        partition = writable(topic, row.index, ctx)
        config, limits = partition.log.config, ctx.broker.config.limits
        header = check_produced(
            row.records,
            produce_version=ctx.api_version,
            bytes_max=config.max_message_bytes,
            transactional=request.transactional_id is not None,
        )
        check_owner(request, header, ctx)
        assert row.records is not None
        if config.is_compacted and header.record_count > limits.keyed_batch_records_max:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{topic.name} is compacted: a batch may have {limits.keyed_batch_records_max} records, "
                f"not {header.record_count}",
            )
    except KafkaError as error:
        return Inspection(error.with_traceback(None))
    work = Work(
        check_records(row.records, header, bytes_max=limits.inflated_batch_bytes_max, wants_keyless=config.is_compacted)
    )
    ctx.broker.work_turns.begin(work)
    return Inspection(None, header, work)


def check_owner(request: ProduceRequest, header: BatchHeader, ctx: RequestContext) -> None:
    """Check that the batch's producer id belongs to the request's transactional id, or to the principal.

    Raises INVALID_PRODUCER_ID_MAPPING, NOT_ENOUGH_REPLICAS: see `ProducerOwners.check`. Raises INVALID_REQUEST for a
    transactional id that is too long: it is not hashed, and not logged.
    """
    if header.producer_id != NO_PRODUCER_ID:
        if request.transactional_id is not None:
            ctx.broker.transactions.shards.check_length(request.transactional_id)
        owner = owner_of(request.transactional_id, ctx.principal)
        ctx.broker.producer_ids.owners.check(owner, header.producer_id, ctx.principal)


def accepted(
    inspection: Inspection, partition: Partition, records: Buffer, ctx: RequestContext
) -> tuple[Buffer, BatchHeader]:
    """The batch as it is appended, and its header. Call it in the turn of the append.

    Raises the KafkaError that refuses the batch.
    """
    if inspection.refusal is not None:
        raise inspection.refusal
    assert inspection.header is not None
    assert inspection.work is not None
    header, checked = inspection.header, inspection.work.result()
    config = partition.log.config
    if config.is_compacted and checked.keyless:
        raise InvalidRecordsError(
            checked.keyless,
            f"{partition.topic} is compacted: each record needs a key, that at index {checked.keyless[0]} has none",
        )
    if config.log_append_time:
        return records, header
    _check_timestamps(checked, config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms, ctx)
    if header.max_timestamp == checked.max_timestamp:
        return records, header
    # As in Kafka: sarama below 1.45.1 leaves the maximum out, and no maximum is below -1.
    restated = bytearray(records)
    state_max_timestamp(restated, checked.max_timestamp)
    return restated, read_header(restated)


def _check_timestamps(checked: CheckedRecords, before_max_ms: int, after_max_ms: int, ctx: RequestContext) -> None:
    """Raise INVALID_TIMESTAMP. Records at -1 have no timestamp and pass, as in Kafka; those below it have one."""
    if checked.min_timestamp == NO_TIMESTAMP:
        return
    now_ms = ctx.broker.world.now_ms()
    if checked.max_timestamp > now_ms + after_max_ms:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {checked.max_timestamp} is more than message.timestamp.after.max.ms={after_max_ms} ahead of "
            f"the broker's clock; check the clock of the producer",
        )
    if checked.min_timestamp < now_ms - before_max_ms:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {checked.min_timestamp} is more than message.timestamp.before.max.ms={before_max_ms} old",
        )
