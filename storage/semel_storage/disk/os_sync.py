"""EDGE: syncs files by the system's own calls."""

import ctypes
import errno
import fcntl
import os
import platform
import re
import sys
from collections.abc import Callable
from time import perf_counter

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
