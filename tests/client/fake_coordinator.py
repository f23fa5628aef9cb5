"""A scripted broker that coordinates transactions in transaction version 1 or 2 (KIP-890), with faults.

Each request takes the next of `trouble[api_key]`: LOST, ANSWER_LOST, LATE (it arrives some requests later), an error
code, or DoneBut(code) (it is carried out, and answered with the code). When the list is empty, requests succeed.
`committed(topic)` has the values that a read_committed reader gets, `open_values` those of open transactions.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

import msgspec
from client.fake_broker import ANSWER_LOST, LATE, LOST, FakeBroker
from semel_protocol.api import APIS
from semel_protocol.batch import read_header
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k00_produce import ProduceRequest, ProduceResponse
from semel_protocol.messages.k18_api_versions import (
    ApiVersionsResponse,
    ApiVersionsResponseFinalizedFeature,
    ApiVersionsResponseSupportedFeature,
)
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from semel_protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponsePartition,
    AddPartitionsToTxnResponseTopic,
)
from semel_protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from semel_protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from semel_protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from semel_protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseFence,
    DescribeTransactionsResponseTransaction,
)
from semel_protocol.records import decode_batch

PRODUCE, INIT, ADD_PARTITIONS, ADD_OFFSETS, END, TXN_OFFSETS, DESCRIBE = 0, 22, 24, 25, 26, 28, 65
VERSIONS = {
    1: {PRODUCE: 11, INIT: 4, ADD_PARTITIONS: 3, ADD_OFFSETS: 3, END: 4, TXN_OFFSETS: 4},
    2: {PRODUCE: 12, INIT: 5, ADD_PARTITIONS: 3, ADD_OFFSETS: 4, END: 5, TXN_OFFSETS: 5},
}
LATE_BY = 3
EMPTY, ONGOING, COMMITTED, ABORTED = "Empty", "Ongoing", "CompleteCommit", "CompleteAbort"


class FakeBatch(msgspec.Struct):
    """The records of one batch, and the outcome of their transaction."""

    producer_id: int
    values: list[bytes | None]
    outcome: str = ONGOING


class FakeTransaction(msgspec.Struct):
    producer_id: int
    epoch: int
    last_epoch: int = -1
    state: str = EMPTY
    partitions: dict[tuple[str, int], None] = {}
    groups: dict[str, None] = {}
    offsets: dict[tuple[str, str, int], int] = {}
    fences: list[DescribeTransactionsResponseFence] = []


class DoneBut(NamedTuple):
    """The coordinator has written the change, but no longer leads, so it does not know whether the change stays."""

    code: int


class FakeCoordinator(FakeBroker):
    """`async with FakeCoordinator(version=2)`."""

    def __init__(self, version: int = 2, topics: dict[str, int] | None = None) -> None:
        versions = {key: api.advertised for key, api in APIS.items() if api.advertised}
        super().__init__(topics, versions | {key: (0, high) for key, high in VERSIONS[version].items()})
        self.version = version
        self.ids: dict[str, FakeTransaction] = {}
        self.committed_offsets: dict[tuple[str, str, int], int] = {}
        self.written: dict[tuple[str, int], list[FakeBatch]] = defaultdict(list)
        self.trouble: dict[int, deque[Any]] = defaultdict(deque)
        self.delayed: list[tuple[int, Callable[[], Any]]] = []
        for key, handler, refusal in (
            (INIT, self.init, lambda code: InitProducerIdResponse(error_code=code)),
            (ADD_PARTITIONS, self.add_partitions, None),
            (ADD_OFFSETS, self.add_offsets, lambda code: AddOffsetsToTxnResponse(error_code=code)),
            (END, self.end, lambda code: EndTxnResponse(error_code=code)),
            (TXN_OFFSETS, self.commit_offsets, None),
            (DESCRIBE, self.describe, None),
        ):
            self.answers[key] = self.troubled(key, handler, refusal)

    def troubled(self, key: int, handler: Any, refusal: Any) -> Callable[[Any], Awaitable[Any]]:
        async def answer(request: Any) -> Any:
            self.delayed = [(waits - 1, late) for waits, late in self.delayed]
            for waits, late in self.delayed:
                if waits <= 0:
                    late()
            self.delayed = [(waits, late) for waits, late in self.delayed if waits > 0]
            fault = self.trouble[key].popleft() if self.trouble[key] else None
            if fault == LATE:
                self.delayed.append((LATE_BY, partial(handler, request)))
            if fault in (LOST, LATE):
                return None
            if isinstance(fault, int):
                return refusal(fault) if refusal is not None else handler(request, fault)
            done = handler(request)
            if isinstance(fault, DoneBut):
                return refusal(fault.code)
            return None if fault == ANSWER_LOST else done

        return answer

    def api_versions(self) -> ApiVersionsResponse:
        answer = super().api_versions()
        if self.version >= 2:
            answer.supported_features = [ApiVersionsResponseSupportedFeature(name="transaction.version", max_version=2)]
            answer.finalized_features = [
                ApiVersionsResponseFinalizedFeature(name="transaction.version", max_version_level=2)
            ]
            answer.finalized_features_epoch = 1
        return answer

    # For tests

    def committed(self, topic: str = "t", partition: int = 0) -> list[bytes | None]:
        return self.values(COMMITTED, topic, partition)

    def values(self, outcome: str, topic: str = "t", partition: int = 0) -> list[bytes | None]:
        return [
            value
            for written in self.written[topic, partition]
            if written.outcome == outcome
            for value in written.values
        ]

    def fence(self, name: str, text: str) -> None:
        """Raise the epoch, as a new instance or a timeout does."""
        txn = self.ids[name]
        txn.fences.append(
            DescribeTransactionsResponseFence(
                old_producer_id=txn.producer_id, old_epoch=txn.epoch, new_epoch=txn.epoch + 1, text=text
            )
        )
        self.finish(txn, commit=False)
        txn.epoch += 1
        txn.last_epoch = -1

    # The rules

    def init(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        name = request.transactional_id
        if name is None:
            self.next_producer_id += 1
            return InitProducerIdResponse(producer_id=self.next_producer_id, producer_epoch=0)
        txn = self.ids.get(name)
        if txn is None:
            self.next_producer_id += 1
            txn = self.ids[name] = FakeTransaction(self.next_producer_id, 0)
            return InitProducerIdResponse(producer_id=txn.producer_id, producer_epoch=0)
        if request.producer_id >= 0:
            if request.producer_id != txn.producer_id or request.producer_epoch not in (txn.epoch, txn.last_epoch):
                return InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)
            if request.producer_epoch == txn.last_epoch:
                return InitProducerIdResponse(producer_id=txn.producer_id, producer_epoch=txn.epoch)
        self.finish(txn, commit=False)
        txn.last_epoch = txn.epoch if request.producer_id >= 0 else -1
        txn.epoch += 1
        txn.state = EMPTY
        return InitProducerIdResponse(producer_id=txn.producer_id, producer_epoch=txn.epoch)

    def add_partitions(self, request: AddPartitionsToTxnRequest, code: int = 0) -> AddPartitionsToTxnResponse:
        code = code or self.check(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
        )
        topics = []
        for topic in request.v3_and_below_topics:
            for index in topic.partitions if not code else ():
                self.ids[request.v3_and_below_transactional_id].partitions[topic.name, index] = None
                self.ids[request.v3_and_below_transactional_id].state = ONGOING
            rows = [
                AddPartitionsToTxnResponsePartition(partition_index=index, partition_error_code=code)
                for index in topic.partitions
            ]
            topics.append(AddPartitionsToTxnResponseTopic(name=topic.name, results_by_partition=rows))
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)

    def add_offsets(self, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
        code = self.check(request.transactional_id, request.producer_id, request.producer_epoch)
        if not code:
            txn = self.ids[request.transactional_id]
            txn.groups[request.group_id] = None
            txn.state = ONGOING
        return AddOffsetsToTxnResponse(error_code=code)

    def commit_offsets(self, request: TxnOffsetCommitRequest, code: int = 0) -> TxnOffsetCommitResponse:
        code = code or self.check(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            fenced=ErrorCode.INVALID_PRODUCER_EPOCH,
        )
        txn = self.ids[request.transactional_id]
        if not code and self.version < 2 and request.group_id not in txn.groups:
            code = ErrorCode.INVALID_TXN_STATE
        topics = []
        for topic in request.topics:
            rows = []
            for row in topic.partitions:
                if not code:
                    txn.state = ONGOING
                    txn.offsets[request.group_id, topic.name, row.partition_index] = row.committed_offset
                rows.append(TxnOffsetCommitResponsePartition(partition_index=row.partition_index, error_code=code))
            topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=rows))
        return TxnOffsetCommitResponse(topics=topics)

    def end(self, request: EndTxnRequest) -> EndTxnResponse:
        txn = self.ids.get(request.transactional_id)
        if txn is None or txn.producer_id != request.producer_id:
            return EndTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        wanted = COMMITTED if request.committed else ABORTED
        if self.version >= 2 and request.producer_epoch == txn.last_epoch:
            return self.ended(txn) if txn.state == wanted else EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)
        if txn.epoch != request.producer_epoch:
            return EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)
        if txn.state == ONGOING or (self.version >= 2 and not request.committed):
            self.finish(txn, commit=request.committed)
            if self.version >= 2:
                txn.last_epoch = txn.epoch
                txn.epoch += 1
            txn.state = wanted
            return self.ended(txn)
        return self.ended(txn) if txn.state == wanted else EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)

    def time_out(self, name: str) -> None:
        """Abort the open transaction of an id, without a request. The producer keeps its epoch, as on Kafka 4."""
        txn = self.ids[name]
        self.finish(txn, commit=False)
        if self.version >= 2:
            txn.last_epoch = txn.epoch
            txn.epoch += 1
        txn.state = ABORTED

    def ended(self, txn: FakeTransaction) -> EndTxnResponse:
        if self.version < 2:
            return EndTxnResponse()
        return EndTxnResponse(producer_id=txn.producer_id, producer_epoch=txn.epoch)

    def describe(self, request: DescribeTransactionsRequest, code: int = 0) -> DescribeTransactionsResponse:
        name = request.transactional_ids[0]
        txn = self.ids.get(name)
        if txn is None or code:
            row = DescribeTransactionsResponseTransaction(
                transactional_id=name, error_code=code or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            )
        else:
            row = DescribeTransactionsResponseTransaction(
                transactional_id=name,
                transaction_state=txn.state,
                producer_id=txn.producer_id,
                producer_epoch=txn.epoch,
                fences=txn.fences,
            )
        return DescribeTransactionsResponse(transaction_states=[row])

    def check(self, name: str, producer_id: int, epoch: int, fenced: int = ErrorCode.PRODUCER_FENCED) -> int:
        txn = self.ids.get(name)
        if txn is None or txn.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return 0 if txn.epoch == epoch else fenced

    def finish(self, txn: FakeTransaction, *, commit: bool) -> None:
        """Write the markers."""
        for batches in self.written.values():
            for written in batches:
                if written.producer_id == txn.producer_id and written.outcome == ONGOING:
                    written.outcome = COMMITTED if commit else ABORTED
        if commit:
            self.committed_offsets |= txn.offsets
        txn.partitions, txn.groups, txn.offsets = {}, {}, {}

    def _store(self, request: ProduceRequest) -> ProduceResponse:
        def store(topic: str, partition: int, records: memoryview) -> tuple[int, int]:
            header = read_header(records)
            if len(records) > self.max_batch_bytes:
                return ErrorCode.MESSAGE_TOO_LARGE, -1
            assert header.is_transactional == (request.transactional_id is not None)
            if request.transactional_id is not None:
                code = self.check(
                    request.transactional_id,
                    header.producer_id,
                    header.producer_epoch,
                    fenced=ErrorCode.INVALID_PRODUCER_EPOCH,
                )
                if code:
                    return code, -1
                txn = self.ids[request.transactional_id]
                if self.version >= 2:
                    txn.partitions[topic, partition] = None
                    txn.state = ONGOING
                elif (topic, partition) not in txn.partitions:
                    return ErrorCode.INVALID_TXN_STATE, -1
            log = self.log(topic, partition)
            before = len(log.values)
            code, offset = log.append(records)
            if len(log.values) > before:
                values = [record.value for record in decode_batch(records)]
                self.written[topic, partition].append(FakeBatch(header.producer_id, values))
            return code, offset

        return self._answer(request, store)
