"""EDGE: sinks of lines: a file descriptor (standard output), and a stream of Python that has none."""

from __future__ import annotations

import os
import select
from typing import TextIO


class DescriptorSink:
    """A file descriptor. It is not closed.

    Writing past Python's buffer has two reasons: a thread that hangs in the buffer holds its lock, with which Python
    ends in a crash, and a descriptor may be set to non-blocking by another process that has it.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: bytes, at: int) -> int:
        """See `Sink`."""
        try:
            return at + os.write(self._descriptor, memoryview(data)[at:])
        except BlockingIOError:
            poll = select.poll()
            poll.register(self._descriptor, select.POLLOUT)
            poll.poll()
            return at


class StreamSink:
    """A text stream without a descriptor, as in tests."""

    def __init__(self, stream: TextIO | None, encoding: str) -> None:
        """`stream` None: the bytes are dropped."""
        self._stream, self._encoding = stream, encoding

    def write(self, data: bytes, at: int) -> int:
        """See `Sink`."""
        if self._stream is not None:
            self._stream.write(data[at:].decode(self._encoding))
            self._stream.flush()
        return len(data)
