"""Calls that are tried again: the error that stands in the text of their timeout."""

from __future__ import annotations

import asyncio

import pytest
from semel._edge import Edge
from semel._net.retry import CallInProgress, Deadline, retrying
from semel.errors import KafkaError, KafkaTimeoutError, error_for
from semel_protocol.backoff import Backoff
from semel_protocol.errors import ErrorCode

AWAY = error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the store cannot be reached")


async def failing(first: KafkaError, last: KafkaError, *, last_after_ms: float) -> str:
    """The text of the timeout of a call of one second: `first`, then attempts that take so long and raise `last`."""
    call, edge, attempts = CallInProgress("finding the coordinator", 0.0), Edge(), 0

    async def attempt(deadline: Deadline) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise first
        await asyncio.sleep(min(last_after_ms, deadline.remaining_ms) / 1000)
        raise last

    with pytest.raises(KafkaTimeoutError) as ended:
        await retrying(
            attempt,
            call,
            edge=edge,
            backoff=Backoff(edge.rng, 100, 100),
            timeout_ms=1_000,
            explain=lambda text, _: text,
        )
    assert ended.value.__cause__ is call.error
    return ended.value.message


async def test_an_attempt_that_the_deadline_cuts_off_does_not_hide_the_reason() -> None:
    cut_off = KafkaTimeoutError("broker 1 did not answer within 295 ms")
    text = await failing(AWAY, cut_off, last_after_ms=5_000)
    assert text.startswith("finding the coordinator did not succeed within 1000 ms: ")
    assert "the store cannot be reached" in text


async def test_the_last_reason_counts() -> None:
    other = error_for(ErrorCode.NOT_COORDINATOR, "it has moved")
    assert "it has moved" in await failing(AWAY, other, last_after_ms=300)


async def test_timeouts_are_a_reason_if_there_is_no_other() -> None:
    silent = KafkaTimeoutError("broker 1 did not answer")
    assert "broker 1 did not answer" in await failing(silent, silent, last_after_ms=5_000)
