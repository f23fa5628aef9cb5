"""PURE. Batches that wait for more records, each for linger_ms, by one timer for all of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from semel._produce.accumulator import Batch


class Linger:
    """Calls `due(batch)` when a batch has waited long enough, unless it takes no more records by then.

    All wait equally long, so the oldest is the first: a queue is enough, and no batch costs a timer of its own.
    """

    __slots__ = ("_batches", "_due", "_linger_s", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, linger_ms: float, due: Callable[[Batch], None]) -> None:
        self._loop, self._linger_s, self._due = loop, linger_ms / 1000, due
        self._batches: deque[tuple[float, Batch]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, batch: Batch) -> None:
        """A batch was opened; without linger_ms it does not wait for a time."""
        if self._linger_s <= 0:
            return
        self._batches.append((self._loop.time() + self._linger_s, batch))
        if self._timer is None:
            self._watch()

    def close(self) -> None:
        """Nothing becomes due any more."""
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
