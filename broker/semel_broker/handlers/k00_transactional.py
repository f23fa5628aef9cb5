"""The transactional checks of Produce: whether a batch may be the first of its transaction in a partition.

It may if the coordinator knows the transaction as open and knows the partition as part of it. A late batch that arrives
after the marker must not open a transaction that never ends (KIP-890). With Produce v12 the coordinator adds the
partition to the transaction. If this broker is the coordinator, check and append happen in one turn of the loop.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from types import TracebackType

from semel_protocol.batch import BatchHeader, read_header
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.fields import first_version
from semel_protocol.messages.k00_produce import ProduceRequest, ProduceRequestTopic

from semel_broker.context import RequestContext
from semel_broker.partitions.partition import Partition
from semel_broker.scheduling.turns import ELEMENTS_PER_STEP
from semel_broker.txn.admission import Admission

ABORTABLE_VERSION = 11
JOINING_VERSION = 12
BY_ID_FROM = first_version(ProduceRequestTopic, "topic_id")

Identity = tuple[int, int]
"""(producer id, epoch)."""
Unadmitted = dict[Identity, dict[Partition, None]]
"""The partitions whose coordinator must be asked before the batches of a request are appended."""

PRODUCER_ERROR_CODES = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
}
"""Errors of the coordinator that clients do not expect from Produce. NOT_ENOUGH_REPLICAS makes the producer retry."""


class RequestAdmissions:
    """The answers of coordinators about the producers of a request. A context manager around the appends."""

    def __init__(self, admissions: Mapping[Identity, Admission]) -> None:
        self._admissions = admissions

    def of(self, header: BatchHeader) -> Admission | None:
        """The coordinator's answer for the producer of this batch; None: the coordinator was not asked."""
        return self._admissions.get((header.producer_id, header.producer_epoch))

    def __enter__(self) -> RequestAdmissions:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for admission in self._admissions.values():
            admission.close()


NO_ADMISSIONS = RequestAdmissions({})


def writable(asked: ProduceRequestTopic, index: int, ctx: RequestContext) -> Partition:
    """The partition, if clients may write to it here. From v13 on it is that of the topic with the id.

    Raises UNKNOWN_TOPIC_ID, INVALID_TOPIC_EXCEPTION, NOT_LEADER_OR_FOLLOWER, ...
    """
    topics, name = ctx.broker.topics, asked.name
    if ctx.api_version >= BY_ID_FROM:
        name = topics.required_by_id(asked.topic_id).name
    partition = topics.partition(name, index)
    topic = topics.get(name)
    if topic is not None and topic.is_internal:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is internal: only the broker writes to it")
    partition.check_leading()
    return partition


def opens_transaction(partition: Partition, header: BatchHeader) -> bool:
    """Whether this batch would be the first of its transaction in the partition.

    False for a retry and for an older epoch: the log answers those by itself.
    """
    state = partition.log.producers.get(header.producer_id)
    if state is None:
        return True
    if header.producer_epoch != state.epoch:
        return header.producer_epoch > state.epoch
    return state.txn_first_offset < 0 and not any(
        place.base_sequence == header.base_sequence and place.last_sequence == header.last_sequence
        for place in state.batches
    )


def to_be_admitted(request: ProduceRequest, ctx: RequestContext) -> Generator[int, None, Unadmitted]:
    """Collect the partitions to ask the coordinator about, in steps (`Slices.finish`). Skips invalid batches, because
    the append refuses them.
    """
    unadmitted: Unadmitted = {}
    transactions = ctx.broker.transactions
    transactional_id = request.transactional_id or ""
    is_here = transactions.coordinates(transactional_id)
    if is_here and ctx.api_version < JOINING_VERSION:
        return unadmitted
    for topic in request.topic_data:
        for row in topic.partition_data:
            yield ELEMENTS_PER_STEP
            try:
                partition = writable(topic, row.index, ctx)
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
                    pass  # not in the transaction yet: the coordinator adds it or refuses it
            unadmitted.setdefault(identity, {})[partition] = None
    return unadmitted


async def admissions_of(request: ProduceRequest, ctx: RequestContext, unadmitted: Unadmitted) -> RequestAdmissions:
    """Ask the coordinator of the request's transaction. Raises no KafkaError: refusals concern single partitions."""
    admissions: dict[Identity, Admission] = {}
    try:
        for identity, partitions in unadmitted.items():
            admissions[identity] = await ctx.broker.transactions.admit(
                request.transactional_id or "",
                *identity,
                list(partitions),
                joins=ctx.api_version >= JOINING_VERSION,
                connection=_connection(ctx),
            )
    except BaseException:
        RequestAdmissions(admissions).__exit__(None, None, None)
        raise
    return RequestAdmissions(admissions)


def check(
    transactional_id: str, partition: Partition, header: BatchHeader, ctx: RequestContext, admissions: RequestAdmissions
) -> None:
    """Check a batch that opens a transaction in its partition. Call it in the turn of the append.

    Raises NOT_ENOUGH_REPLICAS, INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, and INVALID_TXN_STATE (from v11
    TRANSACTION_ABORTABLE). Raises OUT_OF_ORDER_SEQUENCE_NUMBER if a producer that the partition does not know does not
    begin with sequence 0 (KIP-890: each transaction has its own epoch). Before v12 raises CloseConnectionError if the
    producer has since used a newer connection.
    """
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
        raise _producer_error(error, ctx) from None
    is_known = partition.log.producers.get(header.producer_id) is not None
    if ctx.api_version >= JOINING_VERSION and header.base_sequence and not is_known:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} begins with sequence {header.base_sequence}: an earlier batch is missing",
        )


def _connection(ctx: RequestContext) -> int:
    """The number of the connection before v12, where only it identifies late requests; 0 from v12 on."""
    return 0 if ctx.api_version >= JOINING_VERSION else ctx.connection


def _producer_error(error: KafkaError, ctx: RequestContext) -> KafkaError:
    code = PRODUCER_ERROR_CODES.get(error.code, error.code)
    if code is ErrorCode.INVALID_TXN_STATE and ctx.api_version >= ABORTABLE_VERSION:
        code = ErrorCode.TRANSACTION_ABORTABLE
    return KafkaError(code, error.message)
