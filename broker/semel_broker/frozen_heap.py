"""EDGE: keeps long-lived objects out of full garbage collections, which hold the event loop.

A full collection takes as long as there are objects that it looks at: 0.3 s with 10,000 written partitions. Therefore
full collections are frequent and look at few objects: once one was slow, all that survived it is frozen, and later ones
leave it out. No garbage is frozen, because the collection has just removed it.

Frozen objects that become garbage later are freed by their reference counts; cycles among them are not. Therefore a
collection looks at all objects again, at a quiet moment: each `WHOLE_EVERY_S`, once the thread of the loop had hardly
any work for `QUIET_S`. A broker that is never quiet does so each `WHOLE_LATEST_S`.
"""

from __future__ import annotations

import gc
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from time import perf_counter, thread_time
from typing import Protocol

FULL = 2
"""The generation of a full collection."""
MIDDLE_PER_FULL = 1
"""A full collection follows this number of collections of the middle generation, and one more. Python's default is 10.
The objects that were made meanwhile, at most some 15,000, take a few milliseconds."""
SLOW_S = 0.002
"""After a full collection of this time, the survivors are frozen. So each looks at no more than what was made since."""
WHOLE_EVERY_S = 3600.0
WHOLE_LATEST_S = 24 * 3600.0
QUIET_S = 1.0
QUIET_SHARE = 0.02
"""A moment is quiet if the thread has used less than this share of `QUIET_S` as CPU time."""


class GarbageCollector(Protocol):
    """The functions of `gc` that are used."""

    def freeze(self) -> None: ...
    def unfreeze(self) -> None: ...
    def collect(self) -> int: ...
    def get_threshold(self) -> tuple[int, int, int]: ...
    def set_threshold(self, threshold0: int, threshold1: int, threshold2: int, /) -> None: ...


class FrozenHeap:
    """`start` it on the thread of the loop once the broker has started, `stop` it in the same process."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        collector: GarbageCollector = gc,
        clock: Callable[[], float] = perf_counter,
        cpu_clock: Callable[[], float] = thread_time,
    ) -> None:
        self._loop = loop
        self._collector, self._clock, self._cpu_clock = collector, clock, cpu_clock
        self._begun_s = self._whole_at_s = self._cpu_s = 0.0
        self._thresholds = collector.get_threshold()
        self._timer: TimerHandle | None = None

    def start(self) -> None:
        """Freeze all objects that live now."""
        young, middle, _ = self._thresholds
        self._collector.set_threshold(young, middle, MIDDLE_PER_FULL)
        self._collect_whole()
        gc.callbacks.append(self.note)

    def stop(self) -> None:
        """Freeze no more, and let the collector see all objects."""
        if self._timer is not None:
            self._timer.cancel()
        if self.note in gc.callbacks:
            gc.callbacks.remove(self.note)
        self._collector.unfreeze()
        self._collector.set_threshold(*self._thresholds)

    def note(self, phase: str, info: dict[str, int]) -> None:
        """A collection starts or stops: see `gc.callbacks`."""
        if info["generation"] < FULL:
            return
        if phase == "start":
            self._begun_s = self._clock()
        elif self._clock() - self._begun_s >= SLOW_S:
            self._collector.freeze()

    def _collect_whole(self) -> None:
        """Collect among all objects, then freeze them."""
        self._collector.unfreeze()
        self._collector.collect()
        self._collector.freeze()
        # Of nothing. Else the next one would wait for a quarter as many new objects as this one has looked at.
        self._collector.collect()
        self._whole_at_s = self._clock()
        self._timer = self._loop.call_later(WHOLE_EVERY_S, self._wait_for_quiet)

    def _wait_for_quiet(self) -> None:
        self._cpu_s = self._cpu_clock()
        self._timer = self._loop.call_later(QUIET_S, self._collect_if_quiet)

    def _collect_if_quiet(self) -> None:
        is_quiet = self._cpu_clock() - self._cpu_s < QUIET_S * QUIET_SHARE
        if is_quiet or self._clock() - self._whole_at_s >= WHOLE_LATEST_S:
            self._collect_whole()
        else:
            self._wait_for_quiet()
