"""The tasks of one client object: started by name, stopped together, and never dead in silence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Background:
    """Tasks that end only by being stopped, or for good reason.

    failure: what one of them died of. They handle all that brokers and networks do, so it is a bug of ours: the
    application is to hear of it instead of waiting for ever. `ended` is called whenever a task ends.
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
        """Cancels all and waits until they have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failure = error
        self._on_end()
