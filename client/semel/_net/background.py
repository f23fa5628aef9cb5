"""The background tasks of one client: started by name, stopped together, with their failures kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Background:
    """Tasks that run until they are stopped.

    failure: the exception that ended one of them. They handle all errors of brokers and networks, so it is a bug. The
    application must get it instead of waiting for ever.
    ended: called whenever a task ends.
    """

    def __init__(self, name: str, ended: Callable[[], None]) -> None:
        self._name, self._on_end = name, ended
        self._tasks: list[asyncio.Task[None]] = []
        self.failure: BaseException | None = None

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=f"{name} of {self._name}")
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    async def stop(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        if tasks := self.cut():
            await asyncio.wait(tasks)

    def cut(self) -> list[asyncio.Task[None]]:
        """Cancel all tasks. Returns them; they end soon."""
        for task in self._tasks:
            task.cancel()
        return self._tasks

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failure = error
        self._on_end()
