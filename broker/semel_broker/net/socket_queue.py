"""EDGE: what the kernel knows of a socket: bytes that the peer has not acknowledged, and whether the peer has gone."""

from __future__ import annotations

import select
import struct
import sys
import termios
from collections.abc import Sequence
from fcntl import ioctl

SIOCOUTQ = 0x5411
"""Linux, see tcp(7)."""
RESET = select.POLLERR | select.POLLHUP | select.POLLNVAL
CLOSED = getattr(select, "POLLRDHUP", 0)
"""Linux: the peer has closed its side. Elsewhere only a reset is noticed."""
REQUEST_BYTES_MIN = 32
"""No request that changes anything is shorter, and the record with which TLS closes a connection is."""
_COUNT = struct.Struct("i")


def unacknowledged(descriptor: int) -> int:
    """Unacknowledged bytes of the socket; 0 if the system does not report them."""
    return _count(descriptor, SIOCOUTQ) if sys.platform == "linux" else 0


def hung_up(descriptors: Sequence[int]) -> list[int]:
    """The sockets whose peers have reset them, or have closed them and left no request unread."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, CLOSED)  # RESET is always reported
    return [
        descriptor
        for descriptor, events in poll.poll(0)
        if events & RESET or _count(descriptor, termios.FIONREAD) < REQUEST_BYTES_MIN
    ]


def _count(descriptor: int, request: int) -> int:
    try:
        (count,) = _COUNT.unpack(ioctl(descriptor, request, bytes(_COUNT.size)))
    except OSError:  # the socket has just been closed
        return 0
    return int(count)
