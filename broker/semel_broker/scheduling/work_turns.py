"""Bounds the work on produced records in each turn of the loop, and queues the rest in the order of arrival.

Work is measured in bytes, not by a clock, so that each run is the same. Work that fits into the budget of the turn is
done at once. The rest waits in one queue for all connections. One piece of work is in progress there at a time, which
also bounds its memory, and the loop turns between two slices of it.

Recompression does not share this queue (`recompressor`): it has one queue for each size class, which take turns, and a
batch may start again in another queue.
"""

from __future__ import annotations

from asyncio import Lock, get_running_loop, sleep
from collections.abc import Generator
from typing import Generic, TypeVar

from semel_protocol.errors import KafkaError

T = TypeVar("T")


class Work(Generic[T]):
    """A generator that yields the cost of each step and returns a `T` or raises KafkaError."""

    __slots__ = ("_error", "_result", "_steps", "is_done")

    def __init__(self, steps: Generator[int, None, T]) -> None:
        self._steps = steps
        self._result: T | None = None
        self._error: KafkaError | None = None
        self.is_done = False

    def advance(self, room: int) -> int:
        """Run steps until they have cost `room` or the work is done; return their cost."""
        spent = 0
        try:
            while spent < room:
                spent += next(self._steps)
        except StopIteration as done:
            self._result, self.is_done = done.value, True
        except KafkaError as error:
            self._error, self.is_done = error.with_traceback(None), True
        return spent

    def result(self) -> T:
        """The result of work that is done. Raises the KafkaError that it ended with."""
        assert self.is_done
        if self._error is not None:
            raise self._error
        result: T = self._result  # type: ignore[assignment]
        return result


class WorkTurns:
    """Bounds work in each turn of the loop.

    `turn_cost`: the budget of one turn for all connections, and the cost of one slice of queued work.
    """

    def __init__(self, turn_cost: int) -> None:
        self._turn_cost = turn_cost
        self._left = turn_cost
        self._is_refilling = False
        self._lock = Lock()

    def begin(self, work: Work[T]) -> None:
        """Do as much of `work` as the budget of this turn allows."""
        if self._left > 0:
            self._spend(work.advance(self._left))

    async def finish(self, work: Work[T]) -> None:
        """Queue, then do the rest of `work` in slices."""
        async with self._lock:
            while not work.is_done:
                await sleep(0)  # the loop turns; other connections are served
                self._spend(work.advance(self._turn_cost))

    def _spend(self, cost: int) -> None:
        self._left -= cost
        if not self._is_refilling:
            self._is_refilling = True
            get_running_loop().call_soon(self._refill)

    def _refill(self) -> None:
        self._left, self._is_refilling = self._turn_cost, False
