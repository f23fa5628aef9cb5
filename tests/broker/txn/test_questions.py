"""Questions to another coordinator: one request at a time to each broker, with all questions that have gathered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from semel_broker.txn.model.identity import ProducerIdentity
from semel_broker.txn.verification import Codes, Verification
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTransaction,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponsePartition,
    AddPartitionsToTxnResponseTopic,
    AddPartitionsToTxnResponseTransaction,
)

HELD_S = 2.0
TIMEOUT_MS = 30_000


class SlowCoordinator:
    """Another broker. It answers the requests of one connection one after the other, each after `HELD_S`."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.fails = False
        self._connections: dict[int, asyncio.Lock] = {}

    async def call(self, node: int, api_key: int, version: int, request: Any, timeout_ms: float) -> Any:
        assert isinstance(request, AddPartitionsToTxnRequest)
        self.asked.append(len(request.transactions))
        async with asyncio.timeout(timeout_ms / 1000), self._connections.setdefault(node, asyncio.Lock()):
            await asyncio.sleep(HELD_S)
        if self.fails:
            raise ConnectionResetError("gone")
        return AddPartitionsToTxnResponse(results_by_transaction=[answer(row) for row in request.transactions])


def answer(row: AddPartitionsToTxnRequestTransaction) -> AddPartitionsToTxnResponseTransaction:
    return AddPartitionsToTxnResponseTransaction(
        transactional_id=row.transactional_id,
        topic_results=[
            AddPartitionsToTxnResponseTopic(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnResponsePartition(partition_index=index, partition_error_code=0)
                    for index in topic.partitions
                ],
            )
            for topic in row.topics
        ],
    )


def ask(verification: Verification, number: int, node: int = 2) -> asyncio.Task[Codes]:
    question = verification.ask(node, f"id-{number}", ProducerIdentity(number, 0), [("t", 0)], verify_only=False)
    return asyncio.create_task(question)


async def asked_in_turns(verification: Verification, count: int) -> list[asyncio.Task[Codes]]:
    """Ask each question in another turn of the loop."""
    tasks = []
    for number in range(count):
        tasks.append(ask(verification, number))
        await asyncio.sleep(0.001)
    return tasks


async def test_questions_of_many_turns_do_not_wait_for_one_answer_after_the_other() -> None:
    coordinator = SlowCoordinator()
    verification = Verification(coordinator, TIMEOUT_MS)
    loop = asyncio.get_running_loop()
    began = loop.time()
    tasks = await asked_in_turns(verification, 40)
    assert [await task for task in tasks] == [{("t", 0): ErrorCode.NONE}] * 40
    assert coordinator.asked == [1, 39]
    assert loop.time() - began == pytest.approx(2 * HELD_S, abs=0.1)


async def test_a_broker_that_is_slow_holds_up_no_question_to_another() -> None:
    coordinator = SlowCoordinator()
    verification = Verification(coordinator, TIMEOUT_MS)
    slow = await asked_in_turns(verification, 2)
    other = ask(verification, 7, node=3)
    await asyncio.sleep(HELD_S + 0.1)
    assert other.done()
    assert not slow[1].done()
    await asyncio.gather(*slow)


async def test_after_a_failure_what_has_gathered_is_asked_and_after_the_end_it_is_refused() -> None:
    coordinator = SlowCoordinator()
    verification = Verification(coordinator, TIMEOUT_MS)
    coordinator.fails = True
    first, second = await asked_in_turns(verification, 2)
    await asyncio.wait((first,))
    coordinator.fails = False
    third = ask(verification, 3)
    assert isinstance(first.exception(), ConnectionResetError)
    assert await second == {("t", 0): ErrorCode.NONE}
    await asyncio.sleep(0.1)
    verification.close()
    await asyncio.wait((third,))
    assert isinstance(third.exception(), OSError)
    assert coordinator.asked == [1, 1, 1]


async def test_a_question_of_the_turn_of_the_end_is_refused() -> None:
    coordinator = SlowCoordinator()
    verification = Verification(coordinator, TIMEOUT_MS)
    task = ask(verification, 1)
    asyncio.get_running_loop().call_soon(verification.close)
    await asyncio.wait((task,))
    assert isinstance(task.exception(), OSError)
    late = ask(verification, 2)
    await asyncio.wait((late,))
    assert isinstance(late.exception(), OSError)
