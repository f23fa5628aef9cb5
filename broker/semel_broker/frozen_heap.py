"""EDGE: keeps long-lived objects out of full garbage collections, which hold the event loop.

A full collection takes as long as there are objects: 140 ms with 10,000 partitions. Once one was slow, all that
survived it is frozen: later collections leave it out. No garbage is frozen, because the collection has just removed it.
Frozen objects that become garbage later are freed as usual by their reference counts; cycles among them are not.
Therefore a full collection looks at all objects again each `WHOLE_EVERY_S`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import perf_counter
from typing import Protocol

FULL = 2
"""The generation of a full collection."""
SLOW_S = 0.002
"""After a full collection of this time, the survivors are frozen. So each looks at no more than what was made since."""
WHOLE_EVERY_S = 3600.0


class GarbageCollector(Protocol):
    """The functions of `gc` that are used."""

    def freeze(self) -> None: ...
    def unfreeze(self) -> None: ...


class FrozenHeap:
    """`start` it once the broker has started, `stop` it in the same process."""

    def __init__(self, collector: GarbageCollector = gc, clock: Callable[[], float] = perf_counter) -> None:
        self._collector, self._clock = collector, clock
        self._begun_s = 0.0
        self._whole_at_s = 0.0

    def start(self) -> None:
        """Freeze all objects that live now. The caller has collected before."""
        self._whole_at_s = self._clock()
        self._collector.freeze()
        gc.callbacks.append(self.note)

    def stop(self) -> None:
        """Freeze no more, and let the collector see all objects."""
        if self.note in gc.callbacks:
            gc.callbacks.remove(self.note)
        self._collector.unfreeze()

    def note(self, phase: str, info: dict[str, int]) -> None:
        """A collection starts or stops: see `gc.callbacks`."""
        if info["generation"] < FULL:
            return
        now_s = self._clock()
        if phase == "start":
            self._begun_s = now_s
            if now_s - self._whole_at_s >= WHOLE_EVERY_S:
                self._whole_at_s = now_s
                self._collector.unfreeze()
        elif now_s - self._begun_s >= SLOW_S:
            self._collector.freeze()
