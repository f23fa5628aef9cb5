"""Coroutines that are begun at once: most requests never wait for anything, and need no task of their own.

What asyncio does from Python 3.12 on (`eager_start`), for all versions. Up to its first wait such a coroutine has no
current task, so nothing may be used there that asks for it: no `asyncio.timeout`, no `TaskGroup`.
"""

from __future__ import annotations

import types
from asyncio import AbstractEventLoop, Task
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


def begin(coroutine: Coroutine[Any, Any, T], loop: AbstractEventLoop) -> T | Task[T]:
    """Run `coroutine` up to its first wait: what it returned, or the task in which it goes on. Raises what it does."""
    try:
        awaited = coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    if awaited is not None:
        awaited._asyncio_future_blocking = False  # "being awaited", said to a task, which is not there yet
    return loop.create_task(_rest(coroutine, awaited))


async def _rest(coroutine: Coroutine[Any, Any, T], awaited: Any) -> T:
    return await _continued(coroutine, awaited)


@types.coroutine
def _continued(coroutine: Coroutine[Any, Any, T], awaited: Any) -> Generator[Any, Any, T]:
    """`coroutine`, which has begun and waits for `awaited`, in the hands of the task that runs this."""
    if awaited is not None:
        awaited._asyncio_future_blocking = True
    try:
        while True:
            try:
                sent = yield awaited
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as error:
                awaited = coroutine.throw(error)
            else:
                awaited = coroutine.send(sent)
    except StopIteration as done:
        result: T = done.value
        return result
