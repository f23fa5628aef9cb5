"""PURE. Calls back for each batch when it has waited linger_ms for more records, with one timer for all batches."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from semel._produce.accumulator import Batch


class Linger:
    """Calls `due(batch)` after linger_ms, unless the batch is closed by then.

    All batches wait equally long, so the oldest is due first. A queue is enough, without a timer for each batch.
    """

    __slots__ = ("_batches", "_due", "_linger_s", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, linger_ms: float, due: Callable[[Batch], None]) -> None:
        self._loop, self._linger_s, self._due = loop, linger_ms / 1000, due
        self._batches: deque[tuple[float, Batch]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, batch: Batch) -> None:
        """A batch was opened. With linger_ms=0 it gets no timer."""
        if self._linger_s <= 0:
            return
        self._batches.append((self._loop.time() + self._linger_s, batch))
        if self._timer is None:
            self._watch()

    def close(self) -> None:
        """Forget all batches: `due` is not called any more."""
        self._batches.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _watch(self) -> None:
        self._timer = self._loop.call_at(self._batches[0][0], self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._batches and (self._batches[0][0] <= now or self._batches[0][1].closed):
            _, batch = self._batches.popleft()
            if not batch.closed:
                self._due(batch)
        if self._batches:
            self._watch()
