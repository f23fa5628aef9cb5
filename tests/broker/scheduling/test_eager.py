"""A coroutine that runs up to its first wait without a task behaves as one that runs in a task."""

from __future__ import annotations

import asyncio
from asyncio import Future, Task, get_running_loop

import pytest
from semel_broker.scheduling.eager import begin


async def test_a_coroutine_that_never_waits_needs_no_task() -> None:
    async def at_once() -> int:
        return 7

    assert begin(at_once(), get_running_loop()) == 7


async def test_an_error_before_the_first_wait_is_raised_here() -> None:
    async def wrong() -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        begin(wrong(), get_running_loop())


async def _sum(first: Future[int], second: Future[int]) -> int:
    try:
        total = await first
    except KeyError:
        total = 100
    await asyncio.sleep(0)
    return total + await second


async def test_a_waiting_coroutine_continues_in_a_task() -> None:
    loop = get_running_loop()
    for outcome, expected in ((1, 3), (KeyError(), 102)):
        first, second = loop.create_future(), loop.create_future()
        task = begin(_sum(first, second), loop)
        assert isinstance(task, Task)
        if isinstance(outcome, Exception):
            first.set_exception(outcome)
        else:
            first.set_result(outcome)
        second.set_result(2)
        assert await task == expected


async def test_several_coroutines_may_wait_for_one_future() -> None:
    loop = get_running_loop()
    gate: Future[int] = loop.create_future()

    async def waits() -> int:
        return await gate

    tasks = [begin(waits(), loop) for _ in range(3)]
    await asyncio.sleep(0)
    gate.set_result(7)
    assert [await task for task in tasks if isinstance(task, Task)] == [7, 7, 7]


async def test_a_cancellation_is_raised_at_the_wait() -> None:
    loop = get_running_loop()
    seen = []

    async def waits(future: Future[None]) -> None:
        try:
            await future
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        finally:
            seen.append("cleaned")

    future: Future[None] = loop.create_future()
    task = begin(waits(future), loop)
    assert isinstance(task, Task)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled", "cleaned"]
    assert future.cancelled()


async def test_after_the_first_wait_it_has_a_current_task() -> None:
    async def waits() -> str:
        await asyncio.sleep(0)
        assert asyncio.current_task() is not None
        try:
            async with asyncio.timeout(0.001):
                await get_running_loop().create_future()
        except TimeoutError:
            return "timed out"
        return "?"

    task = begin(waits(), get_running_loop())
    assert isinstance(task, Task)
    assert await task == "timed out"
