"""EDGE: syncs files by the system's own calls, and measures whether the disk is fast enough for the loop's thread."""

import ctypes
import errno
import fcntl
import os
import platform
import re
import sys
from collections import deque
from collections.abc import Callable
from time import monotonic, perf_counter

from semel_storage.histogram import Histogram

QUICK_S = 0.0005
"""If the median of the last syncs is above this, threads sync. A single slow sync may be due to other processes."""
SYNCS_REMEMBERED = 7
SLOW_TOGETHER_S = 0.005
PAUSE_S, PAUSE_S_MAX = 1.0, 300.0
"""Pause after a slow syncfs, doubled each time: another process has many bytes to write."""
KERNEL_MIN = (5, 15)
"""The first long-term kernel whose syncfs reports write errors, also on overlay file systems."""


def sync_data(fd: int) -> None:
    """Make the file's bytes and size durable. Raises OSError.

    Linux: fdatasync. macOS: F_FULLFSYNC, because fsync there leaves the bytes in the drive's cache; file systems that
    do not know it (network ones) get fsync. Other systems: fsync.
    """
    if _FULL_SYNC is not None:
        try:
            fcntl.fcntl(fd, _FULL_SYNC)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
                raise
            os.fsync(fd)
    elif _HAS_FDATASYNC:
        os.fdatasync(fd)
    else:
        os.fsync(fd)


def sync_names(fd: int) -> None:
    """Make the names in a directory durable, by its descriptor. Raises OSError."""
    if _FULL_SYNC is not None:
        sync_data(fd)
    else:
        os.fsync(fd)


_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
"""macOS only."""
_HAS_FDATASYNC = hasattr(os, "fdatasync")


def timed_sync(fd: int) -> float:
    """Sync the file on the current thread; returns the duration in seconds. Raises OSError."""
    begun = perf_counter()
    sync_data(fd)
    return perf_counter() - begun


def find_syncfs() -> Callable[[int], int] | None:
    """The system's syncfs(fd), which returns 0, or -1 with `ctypes.get_errno()`; None on unsupported systems."""
    found = re.match(r"(\d+)\.(\d+)", platform.release())
    if sys.platform != "linux" or found is None or (int(found[1]), int(found[2])) < KERNEL_MIN:
        return None
    function: Callable[[int], int] | None = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    return function


class SyncPace:
    """Measures how long the disk takes for a small sync, and for a sync of the whole file system."""

    def __init__(self) -> None:
        self.is_quick = False
        """Whether a small sync is probably faster than a handover to a thread."""
        self.seconds = Histogram()
        """Of all syncs: of a file, and of several files together."""
        self._last_s = deque((QUICK_S,) * SYNCS_REMEMBERED, SYNCS_REMEMBERED)
        self._pause_s = PAUSE_S
        self._not_before = 0.0

    def note(self, seconds: float) -> None:
        """Record the duration of a sync of one file."""
        self.seconds.observe(seconds)
        self._last_s.append(seconds)
        self.is_quick = sorted(self._last_s)[SYNCS_REMEMBERED // 2] < QUICK_S

    @property
    def is_quick_together(self) -> bool:
        """Whether a sync of the whole file system is probably fast, too."""
        return self.is_quick and monotonic() >= self._not_before

    def note_together(self, seconds: float) -> None:
        """Record the duration of a sync of the whole file system."""
        self.seconds.observe(seconds)
        if seconds < SLOW_TOGETHER_S:
            self._pause_s = max(PAUSE_S, self._pause_s / 2)
            return
        self._not_before = monotonic() + self._pause_s
        self._pause_s = min(PAUSE_S_MAX, 2 * self._pause_s)
