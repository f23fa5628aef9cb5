"""EDGE: how much of what the kernel has taken for a connection its peer has not acknowledged yet."""

from __future__ import annotations

import struct
import sys

SIOCOUTQ = 0x5411
"""Linux, see tcp(7)."""
_COUNT = struct.Struct("i")


def unacknowledged(descriptor: int) -> int:
    """In bytes; 0 where the system does not tell."""
    if sys.platform != "linux":
        return 0
    from fcntl import ioctl

    try:
        (count,) = _COUNT.unpack(ioctl(descriptor, SIOCOUTQ, bytes(_COUNT.size)))
    except OSError:  # it has just been closed
        return 0
    return int(count)
