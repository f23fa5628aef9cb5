"""Shares the event loop between requests: connections start theirs in turns, and long requests work in slices.

In each turn of the loop connections start requests for a few milliseconds, one connection after the other, and one
slice of one long request runs. A small request therefore waits for the turns of the connections before it, and never
for the end of a long request. Connections that authenticate have a queue of their own and a share of each turn: a
thousand clients that connect at once hardly delay those that are authenticated. The bounds count steps as well as time,
because the clock of a simulated broker stands still during a turn.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

TURN_S = 0.010
"""Time for starting requests in one turn of the loop."""
TURNS_MAX = 256
"""Connections that start requests in one turn of the loop, at most."""
LOGIN_SHARE = 0.25
"""Time for connections that authenticate, as a share of the loop's other work since the turn was scheduled. One of them
has its turn in any case."""
SLICE_S = 0.004
"""Time of one slice."""
SLICE_STEPS = 256
"""Steps in one slice, at most."""
OPENING_STEPS = 16
"""Steps that a row counts as whose log may have to be opened."""
ELEMENTS_PER_STEP = 16
"""Array elements encoded or decoded in the time of one step."""


class Turns:
    """The turns of one event loop. `monotonic`: seconds."""

    def __init__(self, loop: AbstractEventLoop, monotonic: Callable[[], float]) -> None:
        self._loop = loop
        self.monotonic = monotonic
        self._connections: dict[Callable[[], None], None] = {}
        self._logins: dict[Callable[[], None], None] = {}
        self._slices: deque[Future[None]] = deque()
        self._scheduled_at: float | None = None  # None: no turn is scheduled

    @property
    def has_waiting(self) -> bool:
        """Whether connections wait for their turn."""
        return bool(self._connections)

    def queue(self, take_turn: Callable[[], None]) -> None:
        """Call `take_turn` in its turn, once, even if it is queued again before."""
        self._connections[take_turn] = None
        self._schedule()

    def queue_login(self, take_turn: Callable[[], None]) -> None:
        """As `queue`, for a connection that authenticates."""
        self._logins[take_turn] = None
        self._schedule()

    def leave(self, take_turn: Callable[[], None]) -> None:
        """Remove `take_turn` from the queues."""
        self._connections.pop(take_turn, None)
        self._logins.pop(take_turn, None)

    def slices(self) -> Slices:
        """The slices of a request whose first slice begins now."""
        return Slices(self)

    async def next_slice(self) -> None:
        """Wait for the next slice of a long request. Slices run in the order of the calls."""
        future = self._loop.create_future()
        self._slices.append(future)
        self._schedule()
        await future

    def _schedule(self) -> None:
        if self._scheduled_at is None:
            self._scheduled_at = self.monotonic()
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        now = self.monotonic()
        scheduled_at, self._scheduled_at = self._scheduled_at, None
        assert scheduled_at is not None, "a turn runs only once it is scheduled"
        self._run(self._connections, now + TURN_S)
        if self._logins:
            now = self.monotonic()
            self._run(self._logins, now + (now - scheduled_at) * LOGIN_SHARE)
        while self._slices:
            future = self._slices.popleft()
            if not future.done():  # the caller may have been cancelled
                future.set_result(None)
                break
        if self._connections or self._logins or self._slices:
            self._schedule()

    def _run(self, queue: dict[Callable[[], None], None], ends_at: float) -> None:
        """Let those in `queue` have their turns until `ends_at`, and at least one."""
        for _ in range(min(len(queue), TURNS_MAX)):
            take_turn = next(iter(queue), None)
            if take_turn is None:
                break
            del queue[take_turn]
            take_turn()
            if self.monotonic() >= ends_at:
                break


class Slices:
    """The slices of one request that may be long; after each step it checks whether the slice is over.

    if slices.is_over():
        await slices.next()
    """

    __slots__ = ("_ends_at", "_steps", "_turns")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._begin()

    def _begin(self) -> None:
        self._steps = 0
        self._ends_at = self._turns.monotonic() + SLICE_S

    def is_over(self, steps: int = 1) -> bool:
        """Count `steps` of work; return whether the slice is over.

        Each call reads the clock: one step may open a log, which takes a hundred times as long as a usual one.
        """
        self._steps += steps
        return self._steps >= SLICE_STEPS or self._turns.monotonic() > self._ends_at

    async def next(self) -> None:
        """Wait for the next slice."""
        await self._turns.next_slice()
        self._begin()

    async def each(self, rows: Iterable[R], make: Callable[[R], T]) -> list[T]:
        """Call `make` for each row, in slices; return the results."""
        made = []
        for row in rows:
            made.append(make(row))
            if self.is_over():
                await self.next()
        return made

    def advance(self, work: Generator[int, None, T]) -> T | None:
        """Continue `work` in this slice; return its result, or None if the slice is over first."""
        try:
            while not self.is_over(max(1, next(work) // ELEMENTS_PER_STEP)):
                pass
        except StopIteration as done:
            result: T = done.value
            return result
        return None

    async def finish(self, work: Generator[int, None, T]) -> T:
        """Run `work` in slices and return its result. It yields the number of array elements of each step."""
        while (result := self.advance(work)) is None:
            await self.next()
        return result


class AtOnce(Slices):
    """The one slice of work that is known to be short: it is never over."""

    __slots__ = ()

    def __init__(self) -> None:
        pass

    def is_over(self, steps: int = 1) -> bool:
        return False

    def run(self, work: Generator[int, None, T]) -> T:
        """Run `work` to its end; return its result."""
        while True:
            try:
                next(work)
            except StopIteration as done:
                result: T = done.value
                return result


AT_ONCE: Final = AtOnce()
"""It has no state, so all short work shares it."""
