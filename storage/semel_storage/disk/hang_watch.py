"""EDGE: a thread that tells of a hanging disk while the broker's event loop cannot, and ends a stop that waits for it.

The loop waits for the disk while the broker starts and stops, and may be held by a call that is usually quick. Then it
neither notices a hang nor takes a signal.
"""

import threading
from collections.abc import Callable
from time import monotonic
from typing import Final, NoReturn, Protocol

from semel_storage.disk.hang_log import HangLog
from semel_storage.disk.waiting_calls import WaitingCall

LOOK_S: Final = 0.2
LOOP_NOTICES_S: Final = 1.5
"""A loop that runs has noticed a hang so long after the limit."""


class WatchedDisk(Protocol):
    """The disk that is watched."""

    def oldest_call(self) -> WaitingCall | None:
        """See `Disk.oldest_call`."""
        ...


class HangWatch:
    """`start` it before the broker starts. Set `has_told` when the broker serves, and call `stops` when it stops.

    `limit_s`: the time after which a call hangs. `is_to_stop`: whether a start is asked to stop, but cannot notice it.
    `end`: called with the reason, on the thread, if the disk hangs and the broker has been stopping for `limit_s`, or
    is to stop while it starts. It ends the process.
    """

    def __init__(
        self,
        disk: WatchedDisk,
        log: HangLog,
        limit_s: float,
        *,
        is_to_stop: Callable[[], bool],
        end: Callable[[str], NoReturn],
    ) -> None:
        self.has_told: Callable[[], bool] | None = None
        """Of a broker that serves: whether its loop has told of the present hang."""
        self._disk = disk
        self._log = log
        self._limit_s = limit_s
        self._is_to_stop = is_to_stop
        self._end = end
        self._stops_since_s: float | None = None
        self._closed = threading.Event()

    def start(self) -> None:
        """Begin to watch. The thread does not keep the process alive."""
        threading.Thread(target=self._watch, name="semel-hang-watch", daemon=True).start()

    def stops(self) -> None:
        """The broker begins to stop."""
        self._stops_since_s = monotonic()

    def close(self) -> None:
        """Watch no more."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(LOOK_S):
            self.look()

    def look(self) -> None:
        """Look at the disk once."""
        call = self._disk.oldest_call()
        is_serving = self.has_told is not None and self._stops_since_s is None
        grace_s = LOOP_NOTICES_S if is_serving else 0.0
        if self._log.is_hanging or not (self.has_told is not None and self.has_told()):
            self._log.look(call if call is not None and call.seconds >= self._limit_s + grace_s else None)
        if call is None or call.seconds < self._limit_s or is_serving:
            return
        if self._stops_since_s is None:
            is_over = self._is_to_stop()
        else:
            is_over = monotonic() - self._stops_since_s >= self._limit_s
        if is_over:
            self._end(f"the disk hangs: a call for {call.path} waits for {call.seconds:.0f} s, and the stop with it")
