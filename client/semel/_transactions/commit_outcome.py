"""A commit or abort of a producer while it goes on: it ends by itself, whoever gives up on waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from semel._net.signal import Signal


class CommitOutcome:
    """A commit or abort whose outcome nobody has heard yet."""

    __slots__ = ("_work", "commit", "over", "task")

    def __init__(self, commit: bool, work: Coroutine[Any, Any, None], name: str) -> None:
        self.commit, self._work = commit, work
        self.over = Signal()
        self.task = asyncio.create_task(self._run(), name=name)
        self.task.add_done_callback(self._ended)

    async def _run(self) -> None:
        try:
            await self._work
        finally:
            self.over.notify()  # and not later: by the time that those who wait run, the task is done

    def _ended(self, task: asyncio.Task[None]) -> None:
        discard_exception(task)
        # For a task that was cancelled before it ran:
        self._work.close()
        self.over.notify()


def discard_exception(task: asyncio.Task[None]) -> None:
    """A task's failure: those who wait for it hear of it; when all were cancelled, the next call does."""
    if not task.cancelled():
        task.exception()
