"""EDGE: what the kernel knows of a socket: bytes that the peer has not acknowledged, and whether the peer has gone."""

from __future__ import annotations

import select
import struct
import sys
from collections.abc import Sequence

SIOCOUTQ, FIONREAD = 0x5411, 0x541B
"""Linux, see tcp(7): bytes in the send queue, bytes that can be read."""
REQUEST_BYTES_MIN = 32
"""No request that changes anything is shorter, and the record with which TLS closes a connection is."""
_COUNT = struct.Struct("i")


def unacknowledged(descriptor: int) -> int:
    """Unacknowledged bytes of the socket; 0 if the system does not report them."""
    return _count(descriptor, SIOCOUTQ) if sys.platform == "linux" else 0


def hung_up(descriptors: Sequence[int]) -> list[int]:
    """The sockets whose peers have reset them, or have closed them and left no request unread. None where the system
    does not report it."""
    if sys.platform != "linux":
        return []
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLRDHUP)  # errors are always reported
    return [
        descriptor
        for descriptor, events in poll.poll(0)
        if events & ~select.POLLRDHUP or _count(descriptor, FIONREAD) < REQUEST_BYTES_MIN
    ]


def _count(descriptor: int, request: int) -> int:
    from fcntl import ioctl

    try:
        (count,) = _COUNT.unpack(ioctl(descriptor, request, bytes(_COUNT.size)))
    except OSError:  # the socket has just been closed
        return 0
    return int(count)
