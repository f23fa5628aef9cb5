"""The outcome of a commit or abort in progress. It continues when its caller stops waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from semel._net.signal import Signal


class CommitOutcome:
    """A commit or abort whose outcome the application does not know yet.

    over: notified when the task ends. task: its result or exception is the outcome.
    """

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
            self.over.notify()  # here, not in the callback: the task is done when its waiters run

    def _ended(self, task: asyncio.Task[None]) -> None:
        discard_exception(task)
        # A task that was cancelled before its first step:
        self._work.close()
        self.over.notify()


def discard_exception(task: asyncio.Task[None]) -> None:
    """Mark a task's exception as retrieved. Callers that wait for the task get it; otherwise the next call does."""
    if not task.cancelled():
        task.exception()
