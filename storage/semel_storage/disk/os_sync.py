"""EDGE: fdatasync and syncfs, and whether they have been quick of late."""

import ctypes
import os
import platform
import re
import sys
from collections import deque
from collections.abc import Callable
from time import monotonic, perf_counter

QUICK_S = 0.0005
"""A disk whose last syncs took longer than this is left to the threads; their median, for a single one that took long
says more of who else runs on the machine."""
SYNCS_REMEMBERED = 7
SLOW_TOGETHER_S = 0.005
PAUSE_S, PAUSE_S_MAX = 1.0, 300.0
"""After a syncfs that took long (somebody else had much to write) the next is tried after a pause, ever longer."""
KERNEL_MIN = (5, 15)
"""The first long-term kernel whose syncfs reports what could not be written, on overlay file systems too."""


def timed_sync(fd: int) -> float:
    """fdatasync, on whatever thread; the seconds it took. Raises OSError."""
    begun = perf_counter()
    os.fdatasync(fd)
    return perf_counter() - begun


def find_syncfs() -> Callable[[int], int] | None:
    """The system's syncfs(fd), answering 0 or -1 with `ctypes.get_errno()`; None where it is not to be relied on."""
    found = re.match(r"(\d+)\.(\d+)", platform.release())
    if sys.platform != "linux" or found is None or (int(found[1]), int(found[2])) < KERNEL_MIN:
        return None
    function: Callable[[int], int] | None = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    return function


class SyncPace:
    """How long the disk takes for a small sync, and for one of the whole file system."""

    def __init__(self) -> None:
        self.is_quick = False
        """Whether a small sync is likely to be over before a thread could have been asked."""
        self._last_s = deque((QUICK_S,) * SYNCS_REMEMBERED, SYNCS_REMEMBERED)
        self._pause_s = PAUSE_S
        self._not_before = 0.0

    def note(self, seconds: float) -> None:
        """A file took this long."""
        self._last_s.append(seconds)
        self.is_quick = sorted(self._last_s)[SYNCS_REMEMBERED // 2] < QUICK_S

    @property
    def is_quick_together(self) -> bool:
        """Whether a sync of the whole file system is likely to be, too."""
        return self.is_quick and monotonic() >= self._not_before

    def note_together(self, seconds: float) -> None:
        """The whole file system took this long."""
        if seconds < SLOW_TOGETHER_S:
            self._pause_s = max(PAUSE_S, self._pause_s / 2)
            return
        self._not_before = monotonic() + self._pause_s
        self._pause_s = min(PAUSE_S_MAX, 2 * self._pause_s)
