"""Runs coroutines at once up to their first wait: most requests never wait, and then need no task.

This is what asyncio does from Python 3.12 on (`eager_start`), for all versions. Until its first wait such a coroutine
has no current task. It must not use `asyncio.timeout` or `TaskGroup` there.
"""

from __future__ import annotations

import types
from asyncio import AbstractEventLoop, Task
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


def begin(coroutine: Coroutine[Any, Any, T], loop: AbstractEventLoop) -> T | Task[T]:
    """Run `coroutine` up to its first wait; return its result, or the task that continues it. Raises its exception."""
    try:
        awaited = coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    if awaited is not None:
        awaited._asyncio_future_blocking = False  # the flag is read by a task, which does not exist yet
    return loop.create_task(_rest(coroutine, awaited))


async def _rest(coroutine: Coroutine[Any, Any, T], awaited: Any) -> T:
    return await _continued(coroutine, awaited)


@types.coroutine
def _continued(coroutine: Coroutine[Any, Any, T], awaited: Any) -> Generator[Any, Any, T]:
    """Continue `coroutine`, which waits for `awaited`, in the task that runs this."""
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
