"""How requests share the event loop: connections start theirs in turns, and long requests work in slices.

In each turn of the loop connections start requests for a few milliseconds, one connection after the other, and one
slice of one long request runs. A small request therefore waits for the turns of the connections before it, and never
for the end of a long request. The bounds count steps as well as time, so that a simulated broker, whose clock stands
still during a turn, takes turns too.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

TURN_S = 0.010
"""Connections start requests for so long in one turn of the loop."""
TURNS_MAX = 256
"""Connections whose turn comes in one turn of the loop."""
SLICE_S = 0.004
"""A long request works for so long at a time."""
SLICE_STEPS = 256
"""Steps of a long request in one slice."""
CLOCK_STEPS = 16
"""Steps between two looks at the clock."""
ELEMENTS_PER_STEP = 16
"""Array elements that are encoded or decoded in the time of one step."""


class Turns:
    """The turns of one event loop. `monotonic`: seconds."""

    def __init__(self, loop: AbstractEventLoop, monotonic: Callable[[], float]) -> None:
        self._loop = loop
        self.monotonic = monotonic
        self._connections: dict[Callable[[], None], None] = {}
        self._slices: deque[Future[None]] = deque()
        self._is_scheduled = False

    @property
    def has_waiting(self) -> bool:
        """Whether connections wait for their turn."""
        return bool(self._connections)

    def queue(self, take_turn: Callable[[], None]) -> None:
        """Call `take_turn` when it is its turn; once, however often it is queued until then."""
        self._connections[take_turn] = None
        self._schedule()

    def leave(self, take_turn: Callable[[], None]) -> None:
        """`take_turn` is not to be called any more."""
        self._connections.pop(take_turn, None)

    def slices(self) -> Slices:
        """The slices of a request whose first slice begins now."""
        return Slices(self)

    async def next_slice(self) -> None:
        """Wait until this long request may go on: the requests take turns in the order in which they ask."""
        future = self._loop.create_future()
        self._slices.append(future)
        self._schedule()
        await future

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        ends_at = self.monotonic() + TURN_S
        for _ in range(min(len(self._connections), TURNS_MAX)):
            take_turn = next(iter(self._connections), None)
            if take_turn is None:
                break
            del self._connections[take_turn]
            take_turn()
            if self.monotonic() > ends_at:
                break
        while self._slices:
            future = self._slices.popleft()
            if not future.done():  # the caller may have been cancelled
                future.set_result(None)
                break
        if self._connections or self._slices:
            self._schedule()


class Slices:
    """The work of one request that may be long: after each step it asks whether the slice is over.

    if slices.is_over():
        await slices.next()
    """

    __slots__ = ("_clock_at", "_ends_at", "_steps", "_turns")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._begin()

    def _begin(self) -> None:
        self._steps = 0
        self._clock_at = CLOCK_STEPS
        self._ends_at = self._turns.monotonic() + SLICE_S

    def is_over(self, steps: int = 1) -> bool:
        """Count `steps` of work; whether the next ones belong to another slice."""
        self._steps += steps
        if self._steps < self._clock_at:
            return False
        self._clock_at = self._steps + CLOCK_STEPS
        return self._steps >= SLICE_STEPS or self._turns.monotonic() > self._ends_at

    async def next(self) -> None:
        """Wait for the next slice."""
        await self._turns.next_slice()
        self._begin()

    async def each(self, rows: Iterable[R], make: Callable[[R], T]) -> list[T]:
        """`make` of each row, as many as fit in each slice."""
        made = []
        for row in rows:
            made.append(make(row))
            if self.is_over():
                await self.next()
        return made

    def advance(self, work: Generator[int, None, T]) -> T | None:
        """Go on with such work in this slice; its result, or None when the slice is over before."""
        try:
            while not self.is_over(max(1, next(work) // ELEMENTS_PER_STEP)):
                pass
        except StopIteration as done:
            result: T = done.value
            return result
        return None

    async def finish(self, work: Generator[int, None, T]) -> T:
        """The result of work that yields how many elements of arrays it has been about, and returns something."""
        while (result := self.advance(work)) is None:
            await self.next()
        return result
