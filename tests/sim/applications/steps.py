"""Something that happens to a process between two of its steps, wherever one wants it: at each of its await points.

A step is one resumption of one of the process's tasks: what a task does between two awaits happens as a whole. A
broker does much in plain callbacks, as bytes arrive: there each of these is a step, too.
"""

from __future__ import annotations

from asyncio import Handle, Task
from collections import deque
from collections.abc import Callable

from sim.host import Host
from sim.loop import SimLoop


class Steps(deque[Handle]):
    """What a loop has to run, counted as it is taken. `strike` is called in place of step `at` (1 is the first),
    which comes next if the process is still alive then. `taken`: the steps so far."""

    def __init__(self, loop: SimLoop, at: int, strike: Callable[[], object], *, callbacks: bool) -> None:
        super().__init__(loop.ready)
        self.taken = 0
        self._callbacks = callbacks
        self._loop, self._at, self._strike = loop, at, strike

    def popleft(self) -> Handle:
        handle = super().popleft()
        if self._callbacks or isinstance(getattr(getattr(handle, "_callback", None), "__self__", None), Task):
            self.taken += 1
            if self.taken == self._at:
                self.appendleft(handle)
                self._at = 0
                self.taken -= 1
                return Handle(self._strike, (), self._loop)
        return handle

    def disarm(self) -> int:
        """Nothing is struck any more; the steps so far."""
        self._at = 0
        return self.taken


def count_steps(host: Host, at: int, strike: Callable[[], object], *, callbacks: bool = False) -> Steps:
    """From now on the steps of the process on this host are counted; before step `at`, `strike` is called.

    `callbacks`: whether these are steps, and not only tasks that go on.
    """
    assert host.loop is not None
    steps = host.loop.ready = Steps(host.loop, at, strike, callbacks=callbacks)
    return steps
