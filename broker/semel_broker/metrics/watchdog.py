"""EDGE: the watchdog of the event loop: measures how late its timers are, and logs what held it for 100 ms or more.

A timer of the loop notes when it runs. A thread looks at that note: while the timer is overdue it reads which request
the loop works on, and the line of code. The loop itself logs the stall when it is over.
"""

from __future__ import annotations

import sys
import threading
from asyncio import AbstractEventLoop, TimerHandle
from time import monotonic
from types import FrameType
from typing import Any

import msgspec
from semel_storage.histogram import Histogram

from semel_broker.counters.requests import CurrentRequest
from semel_broker.world import Logger

TICK_S = 0.05
LOOK_S = 0.1
"""The interval of the looks of the thread."""
STALL_S = 0.1
LATE_S = 0.02
"""A timer that is overdue for so long may become a stall: the thread notes what the loop does."""
OUTSIDE_REQUESTS = "none"
"""The `api` of a stall that no request caused as it started: background work, or a request that had waited."""


class Stalls(msgspec.Struct):
    """How often the loop was held, and for how long at most."""

    count: int = 0
    longest_s: float = 0.0


class Seen(msgspec.Struct, frozen=True):
    """The work of the loop during a stall. `where`: file, line and function."""

    api: str = OUTSIDE_REQUESTS
    client_id: str = ""
    topic: str = ""
    partition: int = -1
    size: int = 0
    where: str = ""

    @property
    def facts(self) -> dict[str, object]:
        """The fields of the log line."""
        known = {name: value for name, value in msgspec.structs.asdict(self).items() if value not in ("", -1, 0)}
        return {"bytes" if name == "size" else name: value for name, value in known.items()}


class Watchdog:
    """`start` and `stop` it in the loop that it watches. `stalls`: by API."""

    def __init__(self, loop: AbstractEventLoop, log: Logger, work: CurrentRequest) -> None:
        self.lag_seconds = Histogram()
        self.stalls: dict[str, Stalls] = {}
        self._loop, self._log, self._work = loop, log, work
        self._due_at = 0.0
        self._timer: TimerHandle | None = None
        self._seen: Seen | None = None
        self._stopped = threading.Event()
        self._thread_id = 0
        self._thread = threading.Thread(target=self._watch, name="semel-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch the loop of this thread."""
        self._thread_id = threading.get_ident()
        self._tick_later()
        self._thread.start()

    def stop(self) -> None:
        """Watch no more."""
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()

    # --- in the loop ---

    def _tick_later(self) -> None:
        self._due_at = monotonic() + TICK_S
        self._timer = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        lag_s = max(0.0, monotonic() - self._due_at)
        self.lag_seconds.observe(lag_s)
        if lag_s >= STALL_S:
            seen, self._seen = self._seen or Seen(), None
            stalls = self.stalls.setdefault(seen.api, Stalls())
            stalls.count += 1
            stalls.longest_s = max(stalls.longest_s, lag_s)
            self._log.warning("event_loop_stalled", stalled_ms=round(lag_s * 1000), **seen.facts)
        self._seen = None
        self._tick_later()

    # --- in the thread ---

    def _watch(self) -> None:
        while not self._stopped.wait(LOOK_S):
            if monotonic() - self._due_at >= LATE_S and self._seen is None:
                self._seen = describe(self._work, sys._current_frames().get(self._thread_id))


def describe(work: CurrentRequest, frame: FrameType | None) -> Seen:
    """The present work of the loop, by the note of the dispatcher and the stack of its thread."""
    request, api = work.request, work.api
    if api is None:
        return Seen(where=line_of(frame))
    topic, partition = first_partition(request)
    return Seen(api.name, work.client_id, topic, partition, work.size, line_of(frame))


def first_partition(request: Any) -> tuple[str, int]:
    """The first topic and partition that a request names; ("", -1): it names none."""
    for topics in ("topic_data", "topics"):
        for topic in getattr(request, topics, None) or ():
            name = getattr(topic, "name", None) or getattr(topic, "topic", None)
            for partitions in ("partition_data", "partitions"):
                for row in getattr(topic, partitions, None) or ():
                    index = getattr(row, "index", getattr(row, "partition", getattr(row, "partition_index", row)))
                    return str(name or ""), index if isinstance(index, int) else -1
            return str(name or ""), -1
    return "", -1


def line_of(frame: FrameType | None) -> str:
    """The innermost line of semel on the stack; of any module, if there is none."""
    inner = frame
    while frame is not None:
        path = frame.f_code.co_filename
        if "semel_" in path:
            at = path.rfind("semel_", 0, path.rfind("/"))
            return f"{path[max(at, 0) :]}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return "" if inner is None else f"{inner.f_code.co_filename}:{inner.f_lineno} {inner.f_code.co_name}"
