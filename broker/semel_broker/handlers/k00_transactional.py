"""The transactional part of Produce: whether a batch may be the first of its transaction in a partition.

It may if the coordinator knows the transaction as open, and that it includes the partition: what comes late, after the
marker, must not open a transaction that nobody will end (KIP-890). Produce v12 has the partition enrolled by that.
Where this broker is the coordinator, its answer and the append fall into one turn of the loop.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from types import TracebackType
from typing import cast

from semel_protocol.batch import BatchHeader, read_header
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k00_produce import ProduceRequest

from semel_broker.context import RequestContext
from semel_broker.partitions.partition import Partition
from semel_broker.scheduling.turns import ELEMENTS_PER_STEP
from semel_broker.txn.admission import Admission

ABORTABLE_VERSION = 11
JOINING_VERSION = 12

Identity = tuple[int, int]
"""(producer id, epoch)."""
Asking = dict[Identity, dict[Partition, None]]
"""The partitions that have to be asked for before the batches of a request can be appended."""

AS_SEEN_BY_PRODUCERS = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
}
"""Codes of the transaction's coordinator that clients do not expect here. 19: try again, as you are."""


class Admissions:
    """What coordinators have said of the producers of a request; with it, append."""

    def __init__(self, admissions: Mapping[Identity, Admission]) -> None:
        self._admissions = admissions

    def of(self, header: BatchHeader) -> Admission | None:
        """What was said of this batch's producer, if it was asked for."""
        return self._admissions.get((header.producer_id, header.producer_epoch))

    def __enter__(self) -> Admissions:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for admission in self._admissions.values():
            admission.close()


NO_ADMISSIONS = Admissions({})


def writable(name: str, index: int, ctx: RequestContext) -> Partition:
    """The partition, unless it is one that only the broker itself writes to."""
    topics = ctx.broker.topics
    partition = topics.partition(name, index)
    topic = topics.get(name)
    if topic is not None and topic.is_internal:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is internal: only the broker writes to it")
    partition.check_leading()
    return partition


def opens_transaction(partition: Partition, header: BatchHeader) -> bool:
    """Whether this batch would be the first of its transaction in the partition. A retry would not, nor one of an
    epoch that is over: the log answers those by itself."""
    state = partition.log.producers.get(header.producer_id)
    if state is None:
        return True
    if header.producer_epoch != state.epoch:
        return header.producer_epoch > state.epoch
    return state.txn_first_offset < 0 and not any(
        place.base_sequence == header.base_sequence and place.last_sequence == header.last_sequence
        for place in state.batches
    )


def to_be_admitted(request: ProduceRequest, ctx: RequestContext) -> Asking:
    """What has to be asked before the batches of this request can be appended. Whatever is wrong with one of them is
    left to the append to find out."""
    steps = to_be_admitted_in_steps(request, ctx)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return cast("Asking", done.value)


def to_be_admitted_in_steps(request: ProduceRequest, ctx: RequestContext) -> Generator[int, None, Asking]:
    """`to_be_admitted` for a request of many batches, see `Slices.finish`."""
    asking: Asking = {}
    transactions = ctx.broker.transactions
    transactional_id = request.transactional_id or ""
    is_here = transactions.coordinates(transactional_id)
    if is_here and ctx.api_version < JOINING_VERSION:
        return asking
    for topic in request.topic_data:
        for row in topic.partition_data:
            yield ELEMENTS_PER_STEP
            try:
                partition = writable(topic.name, row.index, ctx)
                header = read_header(row.records or b"")
                if not header.is_transactional or not opens_transaction(partition, header):
                    continue
            except KafkaError:
                continue
            identity = header.producer_id, header.producer_epoch
            if is_here:
                try:
                    transactions.verify(transactional_id, *identity, topic.name, row.index)
                    continue
                except KafkaError:
                    pass  # it is not enrolled yet: the coordinator is to do that, or to say why not
            asking.setdefault(identity, {})[partition] = None
    return asking


async def admissions_of(request: ProduceRequest, ctx: RequestContext, asking: Asking) -> Admissions:
    """What the coordinator of the request's transaction says. Raises nothing: its refusals are those of partitions."""
    admissions: dict[Identity, Admission] = {}
    try:
        for identity, partitions in asking.items():
            admissions[identity] = await ctx.broker.transactions.admit(
                request.transactional_id or "",
                *identity,
                list(partitions),
                joins=ctx.api_version >= JOINING_VERSION,
                connection=_connection(ctx),
            )
    except BaseException:
        Admissions(admissions).__exit__(None, None, None)
        raise
    return Admissions(admissions)


def check(
    transactional_id: str, partition: Partition, header: BatchHeader, ctx: RequestContext, admissions: Admissions
) -> None:
    """To be called in the turn of the append. Raises KafkaError 19, 47, 48 or 120, 49; 45 by KIP-890: with an epoch for
    each transaction, a producer that the partition does not know begins at 0. CloseConnectionError before v12, over a
    connection that the producer has left."""
    place = partition.topic, partition.index
    admission = admissions.of(header)
    try:
        if admission is not None:
            admission.check(place)
        else:
            ctx.broker.transactions.verify(
                transactional_id, header.producer_id, header.producer_epoch, *place, connection=_connection(ctx)
            )
    except KafkaError as error:
        raise _as_seen_by_producers(error, ctx) from None
    is_known = partition.log.producers.get(header.producer_id) is not None
    if ctx.api_version >= JOINING_VERSION and header.base_sequence and not is_known:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} begins with sequence {header.base_sequence}: an earlier batch is missing",
        )


def _connection(ctx: RequestContext) -> int:
    """Before v12 nothing but the connection tells what is late."""
    return 0 if ctx.api_version >= JOINING_VERSION else ctx.connection


def _as_seen_by_producers(error: KafkaError, ctx: RequestContext) -> KafkaError:
    code = AS_SEEN_BY_PRODUCERS.get(error.code, error.code)
    if code is ErrorCode.INVALID_TXN_STATE and ctx.api_version >= ABORTABLE_VERSION:
        code = ErrorCode.TRANSACTION_ABORTABLE
    return KafkaError(code, error.message)
