"""Asks another broker, the coordinator of a transactional id, before this broker appends a batch (KIP-890).

With transaction version 2 the question enrols the partitions; before, it only asks whether they are enrolled. A broker
gets one request at a time, with all questions that gathered meanwhile. It answers requests of a connection in order,
and each may wait for a write of the coordinator: several requests would wait for each other's writes.
"""

from __future__ import annotations

from asyncio import Future, Task, get_running_loop
from collections.abc import Sequence
from functools import partial

import msgspec
from semel_protocol.api_key import ApiKey
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnRequestTransaction,
    AddPartitionsToTxnResponse,
)

from semel_broker.txn.markers.peer_calls import ADD_PARTITIONS_VERSION, PeerCalls
from semel_broker.txn.model.identity import ProducerIdentity
from semel_broker.txn.model.metadata import TopicPartition
from semel_broker.txn.model.records import by_topic

Codes = dict[TopicPartition, ErrorCode]


class Question(msgspec.Struct, frozen=True, eq=False):
    """May `producer` write into these partitions? `answer`: a code for each."""

    transactional_id: str
    producer: ProducerIdentity
    partitions: Sequence[TopicPartition]
    verify_only: bool
    answer: Future[Codes]


class Verification:
    """Questions to other coordinators. `timeout_ms`: how long a question waits for its answer."""

    def __init__(self, peers: PeerCalls, timeout_ms: int) -> None:
        self._peers = peers
        self._timeout_ms = timeout_ms
        self._queues: dict[int, list[Question]] = {}
        self._tasks: dict[Task[None], None] = {}
        self._asked: dict[int, None] = {}  # brokers that have a request under way
        self._is_scheduled = False
        self._is_closed = False

    async def ask(
        self,
        node: int,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
    ) -> Codes:
        """The code of the coordinator on `node` for each partition. Raises KafkaError or OSError without an answer."""
        if self._is_closed:
            raise ConnectionError("this broker is stopping")
        question = Question(transactional_id, producer, partitions, verify_only, get_running_loop().create_future())
        self._queues.setdefault(node, []).append(question)
        self._flush_soon()
        return await question.answer

    def close(self) -> None:
        """Cancel the requests under way, and refuse new questions."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        queues, self._queues = self._queues, {}
        for questions in queues.values():
            _fail(questions, ConnectionError("this broker is stopping"))

    # --- inside ---

    def _flush_soon(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Ask what has gathered, of brokers that have answered what they were asked before."""
        self._is_scheduled = False
        for node in [node for node in self._queues if node not in self._asked]:
            self._asked[node] = None
            questions = self._queues.pop(node)
            task = get_running_loop().create_task(self._send(node, questions))
            self._tasks[task] = None
            task.add_done_callback(partial(self._sent, node, questions))

    def _sent(self, node: int, questions: Sequence[Question], task: Task[None]) -> None:
        del self._tasks[task], self._asked[node]
        if task.cancelled():  # perhaps before it began
            _fail(questions, ConnectionError("this broker is stopping"))
        if self._queues:
            self._flush_soon()

    async def _send(self, node: int, questions: Sequence[Question]) -> None:
        request = AddPartitionsToTxnRequest(transactions=[_row(question) for question in questions])
        try:
            response = await self._peers.call(
                node, ApiKey.ADD_PARTITIONS_TO_TXN, ADD_PARTITIONS_VERSION, request, self._timeout_ms
            )
            answers = _answers(questions, response)
        except BaseException as error:
            refusal = error if isinstance(error, KafkaError | OSError) else ConnectionError(f"no answer: {error!r}")
            _fail(questions, refusal)
            if refusal is not error:
                raise
            return
        for question, codes in zip(questions, answers, strict=True):
            if not question.answer.done():
                question.answer.set_result(codes)


def _fail(questions: Sequence[Question], error: Exception) -> None:
    for question in questions:
        if not question.answer.done():
            question.answer.set_exception(error)


def _row(question: Question) -> AddPartitionsToTxnRequestTransaction:
    return AddPartitionsToTxnRequestTransaction(
        transactional_id=question.transactional_id,
        producer_id=question.producer.producer_id,
        producer_epoch=question.producer.epoch,
        verify_only=question.verify_only,
        topics=[
            AddPartitionsToTxnRequestTopic(name=name, partitions=indexes)
            for name, indexes in by_topic(question.partitions).items()
        ],
    )


def _answers(questions: Sequence[Question], response: AddPartitionsToTxnResponse) -> list[Codes]:
    """The codes of each question, in order. Raises KafkaError if the answer does not fit the questions."""
    if response.error_code:
        raise KafkaError(ErrorCode(response.error_code), "the coordinator's broker refuses to answer")
    rows = response.results_by_transaction
    answers = [
        {
            (topic.name, row.partition_index): ErrorCode(row.partition_error_code)
            for topic in result.topic_results
            for row in topic.results_by_partition
        }
        for result in rows
    ]
    fits = len(rows) == len(questions) and all(
        row.transactional_id == question.transactional_id and all(each in codes for each in question.partitions)
        for row, question, codes in zip(rows, questions, answers, strict=True)
    )
    if not fits:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the coordinator's answer does not fit the request")
    return answers
