"""Cancels a call of a client at a chosen turn of the loop, and checks what the client leaves on the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, cast

from support.virtual_loop import Transport, VirtualLoop

TURNS_MAX = 1_000
"""No call of the tests takes as many turns of the loop."""


class Strike:
    """Cancels a call at the turn of the loop with this number.

    again: each later await of the call is cancelled too, as anyio does in a cancelled scope. everything: all tasks of
    clients that were made since are cancelled, as at the end of `asyncio.run`. The tasks of the broker have no names.
    """

    def __init__(self, turn: int, *, again: bool = False, everything: bool = False) -> None:
        self._turn, self._again, self._everything = turn, again, everything
        self._others = asyncio.all_tasks()
        self._turns = 0
        self._call: asyncio.Task[None] | None = None
        self.has_struck = False

    def __repr__(self) -> str:
        how = "everything" if self._everything else "again and again" if self._again else "once"
        return f"turn {self._turn}, {how}"

    async def at(self, call: Coroutine[Any, Any, None]) -> None:
        """Await the call in a task of its own. It must raise CancelledError when it is struck, and nothing else."""
        clock = virtual_loop_here()._clock
        self._call = asyncio.create_task(self._cancelled_again(call), name="the call")
        select = clock.select
        clock.select = lambda timeout=None: select(0 if self._looks() else timeout)  # type: ignore[method-assign]
        try:
            await asyncio.wait((self._call,))
        finally:
            del clock.select
        if self.has_struck:
            assert self._call.cancelled(), self._call
        else:
            self._call.result()

    def _looks(self) -> bool:
        """Called once in each turn of the loop. Whether it strikes."""
        self._turns += 1
        assert self._call is not None
        if self._turns <= self._turn or self.has_struck or self._call.done():
            return False
        self.has_struck = True
        struck = [self._call]
        if self._everything:
            made = asyncio.all_tasks(virtual_loop_of(self._call)) - self._others
            struck += [task for task in made if not task.get_name().startswith("Task-") and task is not self._call]
        for task in struck:
            task.cancel()
        return True

    async def _cancelled_again(self, call: Coroutine[Any, Any, None]) -> None:
        await _Stepped(call, self._before_await)

    def _before_await(self) -> None:
        if self.has_struck and self._again:
            assert self._call is not None
            self._call.cancel()


class _Stepped:
    """Awaits a coroutine, and calls `before_await` at each of its awaits."""

    def __init__(self, work: Coroutine[Any, Any, Any], before_await: Callable[[], None]) -> None:
        self._work, self._before_await = work, before_await

    def __await__(self) -> Generator[Any, Any, Any]:
        error: BaseException | None = None
        while True:
            try:
                awaited = self._work.send(None) if error is None else self._work.throw(error)
            except StopIteration as end:
                return end.value
            self._before_await()
            error = None
            try:
                yield awaited
            except BaseException as raised:
                error = raised


async def strike_at_each_turn(trial: Callable[[Strike], Awaitable[None]], *, again: bool, everything: bool) -> int:
    """Run `trial` once for each turn that its call takes, and once without a strike. Returns the number of turns."""
    for turn in range(1, TURNS_MAX):  # in turn 0 the call has not begun
        strike = Strike(turn, again=again, everything=everything)
        try:
            await trial(strike)
        except BaseException as error:
            error.add_note(f"struck at {strike}")
            raise
        if not strike.has_struck:
            return turn
    raise AssertionError(f"the call takes more than {TURNS_MAX} turns")


class Leftovers:
    """The tasks, timers and connections that were added to the loop since this object was made.

    Records connections until `end`.
    """

    def __init__(self) -> None:
        self._loop = loop = virtual_loop_here()
        self._tasks = asyncio.all_tasks()
        self._transports: list[Transport] = []
        self._connect = loop.create_connection
        loop.create_connection = self._noted  # type: ignore[method-assign]

    async def _noted(self, *arguments: Any, **named: Any) -> Any:
        transport, protocol = await self._connect(*arguments, **named)
        self._transports.append(cast(Transport, transport))
        return transport, protocol

    def end(self) -> None:
        """Record no more connections.

        Fails if a connection is open or a new task is left. A broker's task for a connection ends with it.
        """
        self._loop.create_connection = self._connect  # type: ignore[method-assign]
        open_ones = [each for each in self._transports if not each.is_closing()]
        assert not open_ones, open_ones
        left = {task.get_name() for task in asyncio.all_tasks() - self._tasks if task is not asyncio.current_task()}
        assert not left, left


def virtual_loop_here() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def virtual_loop_of(task: asyncio.Task[Any]) -> VirtualLoop:
    loop = task.get_loop()
    assert isinstance(loop, VirtualLoop)
    return loop
