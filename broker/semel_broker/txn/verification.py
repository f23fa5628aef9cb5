"""Asks another broker, the coordinator of a transactional id, before this broker appends a batch (KIP-890).

With transaction version 2 the question enrols the partitions; before, it only asks whether they are enrolled. All
questions of one iteration of the event loop to one broker go out as one request.
"""

from __future__ import annotations

from asyncio import Future, Task, get_running_loop
from collections.abc import Sequence

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnRequestTransaction,
    AddPartitionsToTxnResponse,
)

from semel_broker.txn.markers.peer_calls import ADD_PARTITIONS_TO_TXN, ADD_PARTITIONS_VERSION, PeerCalls
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
        loop = get_running_loop()
        question = Question(transactional_id, producer, partitions, verify_only, loop.create_future())
        if not self._queues:
            loop.call_soon(self._flush)
        self._queues.setdefault(node, []).append(question)
        return await question.answer

    def close(self) -> None:
        """Cancel all questions."""
        for task in self._tasks:
            task.cancel()

    # --- inside ---

    def _flush(self) -> None:
        queues, self._queues = self._queues, {}
        for node, questions in queues.items():
            task = get_running_loop().create_task(self._send(node, questions))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)

    async def _send(self, node: int, questions: Sequence[Question]) -> None:
        request = AddPartitionsToTxnRequest(transactions=[_row(question) for question in questions])
        try:
            response = await self._peers.call(
                node, ADD_PARTITIONS_TO_TXN, ADD_PARTITIONS_VERSION, request, self._timeout_ms
            )
            answers = _answers(questions, response)
        except BaseException as error:
            refusal = error if isinstance(error, KafkaError | OSError) else ConnectionError(f"no answer: {error!r}")
            for question in questions:
                if not question.answer.done():
                    question.answer.set_exception(refusal)
            if refusal is not error:
                raise
            return
        for question, codes in zip(questions, answers, strict=True):
            if not question.answer.done():
                question.answer.set_result(codes)


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
