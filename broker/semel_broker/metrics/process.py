"""EDGE: readings of the process: CPU, memory, descriptors, garbage collector, and the watchdog of the event loop."""

from __future__ import annotations

import gc
import os
import resource
import sys
from time import perf_counter, time
from typing import Final

from semel_storage.histogram import Histogram

from semel_broker.metrics.families import Section
from semel_broker.metrics.page import Page
from semel_broker.metrics.watchdog import Watchdog

SECTION: Final = Section("Process")
BUILD = SECTION.gauge("build_info", "1, with the version of semel and the id of the broker.", "version", "node_id")
READY = SECTION.gauge("ready", "1: as /health/ready.")
CPU = SECTION.counter("process_cpu_seconds_total", "CPU time of the process.", "mode")
MEMORY = SECTION.gauge("process_resident_memory_bytes", "Memory of the process.")
OPEN_FILES = SECTION.gauge("process_open_files", "Open descriptors of the process.")
START_TIME = SECTION.gauge("process_start_time_seconds", "Start of the process, in seconds since 1970.")
LOOP_LAG = SECTION.histogram("event_loop_lag_seconds", "How late a timer of the event loop ran, 20 times a second.")
STALLS = SECTION.counter(
    "event_loop_stalls_total", "Times that something held the event loop for 100 ms or more.", "api"
)
LONGEST_STALL = SECTION.gauge("event_loop_longest_stall_seconds", "The longest of them since the start.", "api")
LOG_LOST = SECTION.counter(
    "log_lines_lost_total", "Lines of the log that could not be written: its output was not read."
)
GC_COLLECTIONS = SECTION.counter("gc_collections_total", "Runs of Python's garbage collector.", "generation")
GC_SECONDS = SECTION.histogram("gc_seconds", "Time of its full runs (generation 2).")
DROPPED = SECTION.gauge("metrics_dropped_series", "Series that the last scrape left out for metrics.series.max.")
SCRAPE_SECONDS = SECTION.gauge("metrics_scrape_seconds", "Time in which the scrape before this one was made.")

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
        page.add(CPU, times.user, "user")
        page.add(CPU, times.system, "system")
        page.add(MEMORY, resident_bytes())
        page.add(OPEN_FILES, open_files())
        page.add(START_TIME, round(_STARTED, 3))
        page.add_histogram(LOOP_LAG, self.watchdog.lag_seconds)
        for api, stalls in sorted(self.watchdog.stalls.items()):
            page.add(STALLS, stalls.count, api)
            page.add(LONGEST_STALL, round(stalls.longest_s, 3), api)
        for generation, facts in enumerate(gc.get_stats()):
            page.add(GC_COLLECTIONS, facts["collections"], str(generation))
        page.add_histogram(GC_SECONDS, self.gc_seconds)

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
