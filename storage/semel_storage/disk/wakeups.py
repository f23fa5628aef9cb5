"""Lets thousands of coroutines that wait for one task continue in portions: a few in each turn of the loop."""

import asyncio
from collections import deque
from typing import TypeVar

T = TypeVar("T")

WAKEUPS_PER_TURN = 32
"""Each may go on with a step of a deletion of records, which takes some 0.2 ms."""


class Wakeups:
    """The coroutines that wait for tasks of one kind, such as writes of a file that many share."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Task[None], list[asyncio.Future[None]]] = {}
        self._due: deque[asyncio.Future[None]] = deque()

    async def after(self, task: asyncio.Task[None]) -> None:
        """Return once the task has ended. Raises what it raised."""
        if not task.done():
            if task not in self._waiting:
                self._waiting[task] = []
                task.add_done_callback(self._ended)
            waiting = asyncio.get_running_loop().create_future()
            self._waiting[task].append(waiting)
            await waiting
        task.result()

    def _ended(self, task: asyncio.Task[None]) -> None:
        is_waking = bool(self._due)
        self._due += self._waiting.pop(task)
        if not is_waking:
            self._wake()

    def _wake(self) -> None:
        for _ in range(min(len(self._due), WAKEUPS_PER_TURN)):
            waiting = self._due.popleft()
            if not waiting.done():  # its caller was cancelled
                waiting.set_result(None)
        if self._due:
            asyncio.get_running_loop().call_soon(self._wake)
