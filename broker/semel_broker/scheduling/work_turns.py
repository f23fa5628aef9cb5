"""How long work on what clients send shares the event loop: a bounded share of each turn, one batch after the other.

Measured in bytes rather than by a clock, so that a run is the same each time. Work that fits into what is left of the
turn is done at once. What does not waits in a lane for all connections, in the order of arrival: one piece of work is
under way there at a time, which also bounds the memory that it takes, and between two of its slices the loop turns.
"""

from __future__ import annotations

from asyncio import Lock, get_running_loop, sleep
from collections.abc import Generator
from typing import Generic, TypeVar

from semel_protocol.errors import KafkaError

T = TypeVar("T")


class Work(Generic[T]):
    """A generator that yields what each of its steps cost, and returns a `T` or raises a KafkaError."""

    __slots__ = ("_error", "_result", "_steps", "is_done")

    def __init__(self, steps: Generator[int, None, T]) -> None:
        self._steps = steps
        self._result: T | None = None
        self._error: KafkaError | None = None
        self.is_done = False

    def advance(self, room: int) -> int:
        """Do steps until they have cost `room`, or all is done; returns what they have cost."""
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
        """Of work that is done. Raises the KafkaError that it ended in."""
        assert self.is_done
        if self._error is not None:
            raise self._error
        result: T = self._result  # type: ignore[assignment]
        return result


class WorkTurns:
    """Shares out turns of the loop. `turn_cost`: what may be done in one turn at once, all connections together, and
    the size of a slice in the lane."""

    def __init__(self, turn_cost: int) -> None:
        self._turn_cost = turn_cost
        self._left = turn_cost
        self._is_refilling = False
        self._lane = Lock()

    def begin(self, work: Work[T]) -> None:
        """Do as much of it as there is room for in this turn."""
        if self._left > 0:
            self._spend(work.advance(self._left))

    async def finish(self, work: Work[T]) -> None:
        """Do the rest of it in the lane."""
        async with self._lane:
            while not work.is_done:
                await sleep(0)  # the loop turns: others are served
                self._spend(work.advance(self._turn_cost))

    def _spend(self, cost: int) -> None:
        self._left -= cost
        if not self._is_refilling:
            self._is_refilling = True
            get_running_loop().call_soon(self._refill)

    def _refill(self) -> None:
        self._left, self._is_refilling = self._turn_cost, False
