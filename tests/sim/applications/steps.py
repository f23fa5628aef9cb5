"""Calls a function between two steps of a process, before a chosen step.

A step is one resumption of a task: the code between two awaits runs as a whole. A broker also works in plain callbacks
when bytes arrive; there each callback can count as a step.
"""

from __future__ import annotations

from asyncio import Task
from collections import deque
from collections.abc import Callable

from sim.host import Host
from sim.loop import SimHandle, SimLoop


class CountedCallbacks(deque[SimHandle]):
    """The ready callbacks of a loop, counted as they are taken. `strike` is called in place of step `at` (1 is the
    first). That step follows if the process is still alive. `taken`: the steps so far.
    """

    def __init__(self, loop: SimLoop, at: int, strike: Callable[[], object], *, callbacks: bool) -> None:
        super().__init__(loop.ready)
        self.taken = 0
        self._callbacks = callbacks
        self._loop, self._at, self._strike = loop, at, strike

    def popleft(self) -> SimHandle:
        handle = super().popleft()
        if self._callbacks or isinstance(getattr(getattr(handle, "_callback", None), "__self__", None), Task):
            self.taken += 1
            if self.taken == self._at:
                self.appendleft(handle)
                self._at = 0
                self.taken -= 1
                return SimHandle(self._strike, (), self._loop, None)
        return handle

    def disarm(self) -> int:
        """Call `strike` no more. Returns the number of steps so far."""
        self._at = 0
        return self.taken


def count_steps(host: Host, at: int, strike: Callable[[], object], *, callbacks: bool = False) -> CountedCallbacks:
    """Count the steps of the process on this host from now on, and call `strike` before step `at`.

    `callbacks`: every callback is a step, not only the resumption of a task.
    """
    assert host.loop is not None
    steps = host.loop.ready = CountedCallbacks(host.loop, at, strike, callbacks=callbacks)
    return steps
