"""EDGE: clocks that stay real while a test freezes time with freezegun or time-machine.

freezegun replaces functions of the module `time`, also where other modules have imported them. time-machine replaces
them inside of the interpreter. Both leave CLOCK_MONOTONIC of `clock_gettime` alone, so all clocks here are made of it.
"""

from __future__ import annotations

import asyncio
import time


def monotonic() -> float:
    """Seconds that never go back."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


_EPOCH_NS = time.time_ns() - time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def now_ms() -> int:
    """Milliseconds since the epoch. Does not follow changes of the machine's clock after the import."""
    return (_EPOCH_NS + time.clock_gettime_ns(time.CLOCK_MONOTONIC)) // 1_000_000


class RealTimeLoop(asyncio.SelectorEventLoop):
    """A loop of asyncio whose timers follow `monotonic`. uvloop's follow the clock of libuv, which nothing replaces."""

    def time(self) -> float:
        return monotonic()
