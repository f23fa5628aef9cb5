"""EDGE: the bytes in a socket's send queue that the peer has not acknowledged yet."""

from __future__ import annotations

import struct
import sys

SIOCOUTQ = 0x5411
"""Linux, see tcp(7)."""
_COUNT = struct.Struct("i")


def unacknowledged(descriptor: int) -> int:
    """Unacknowledged bytes of the socket; 0 if the system does not report them."""
    if sys.platform != "linux":
        return 0
    from fcntl import ioctl

    try:
        (count,) = _COUNT.unpack(ioctl(descriptor, SIOCOUTQ, bytes(_COUNT.size)))
    except OSError:  # the socket has just been closed
        return 0
    return int(count)
