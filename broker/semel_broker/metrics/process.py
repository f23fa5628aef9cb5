"""EDGE: readings of the process: CPU, memory, descriptors, garbage collector, and the watchdog of the event loop."""

from __future__ import annotations

import gc
import os
import resource
import sys
from time import perf_counter, time

from semel_storage.histogram import Histogram

from semel_broker.metrics import families
from semel_broker.metrics.page import Page
from semel_broker.metrics.watchdog import Watchdog

_STARTED = time()
FULL = 2
"""The generation of a full run of the garbage collector."""


class Process:
    """`start` it in the loop of the broker, `stop` it there."""

    def __init__(self, watchdog: Watchdog) -> None:
        self.watchdog = watchdog
        self.gc_seconds = Histogram()
        self._gc_begun = 0.0

    def start(self) -> None:
        """Begin to measure."""
        gc.callbacks.append(self._collected)
        self.watchdog.start()

    def stop(self) -> None:
        """Measure no more."""
        self.watchdog.stop()
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)

    def read(self, page: Page) -> None:
        """Add the series of the process."""
        times = os.times()
        page.add(families.CPU, times.user, "user")
        page.add(families.CPU, times.system, "system")
        page.add(families.MEMORY, resident_bytes())
        page.add(families.OPEN_FILES, open_files())
        page.add(families.START_TIME, round(_STARTED, 3))
        page.add_histogram(families.LOOP_LAG, self.watchdog.lag_seconds)
        for api, stalls in sorted(self.watchdog.stalls.items()):
            page.add(families.STALLS, stalls.count, api)
            page.add(families.LONGEST_STALL, round(stalls.longest_s, 3), api)
        for generation, facts in enumerate(gc.get_stats()):
            page.add(families.GC_COLLECTIONS, facts["collections"], str(generation))
        page.add_histogram(families.GC_SECONDS, self.gc_seconds)

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] < FULL:
            return
        if phase == "start":
            self._gc_begun = perf_counter()
        else:
            self.gc_seconds.observe(perf_counter() - self._gc_begun)


def resident_bytes() -> int:
    """The memory of the process now; where the system does not say it, its peak."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def open_files() -> int:
    """The open descriptors of the process; 0 where the system does not say it."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(folder))
        except OSError:
            continue
    return 0
