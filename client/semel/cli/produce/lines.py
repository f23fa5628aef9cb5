"""EDGE: whole lines from a pipe, a terminal or a file, as they arrive; a thread reads."""

from __future__ import annotations

import asyncio
import io
import os
import queue
import threading
from collections.abc import AsyncIterator, Callable
from typing import BinaryIO

from semel._command_line.common import failure

CHUNK_BYTES = 1 << 16
CHUNKS_AHEAD = 8


class LineTooLongError(Exception):
    """The line that begins here is longer than allowed, and its end has not arrived."""


class Lines:
    """The whole lines of a source, without line ends. line_bytes_max: bounds the memory."""

    def __init__(self, source: BinaryIO, line_bytes_max: int) -> None:
        self._source, self._line_bytes_max = source, line_bytes_max
        self._arrived = asyncio.Event()
        self._chunks: queue.Queue[bytes | OSError] = queue.Queue(CHUNKS_AHEAD)
        self._chunks_left: int | None = None

    def end(self) -> None:
        """End the input behind what has arrived."""
        self._chunks_left = self._chunks.qsize()
        self._arrived.set()

    async def read(self) -> AsyncIterator[list[bytes]]:
        """Lists of lines. Each list ends where the input paused, or after about 64 KiB.

        Raises LineTooLongError when more than line_bytes_max arrived of the next line, and not its end.
        """
        rest: list[bytes] = []
        rest_bytes = 0
        async for chunk in self._read_chunks():
            head, newline, tail = chunk.partition(b"\n")
            if not newline:
                rest.append(chunk)
                rest_bytes += len(chunk)
            else:
                first = b"".join((*rest, head))
                *whole, last = tail.split(b"\n")
                whole.insert(0, first)
                rest, rest_bytes = [last], len(last)
                if b"\r" in chunk or first.endswith(b"\r"):
                    whole = [line.removesuffix(b"\r") for line in whole]
                yield whole
            if rest_bytes > self._line_bytes_max:
                raise LineTooLongError
        if rest_bytes:
            yield [b"".join(rest)]

    async def _read_chunks(self) -> AsyncIterator[bytes]:
        """The bytes as they arrive. The command does not wait for the thread, which may wait for a terminal for
        ever.
        """
        loop = asyncio.get_running_loop()
        arguments = (_reader(self._source), self._chunks, loop, self._arrived)
        threading.Thread(target=_read_all, args=arguments, daemon=True).start()
        while self._chunks_left is None or self._chunks_left > 0:
            if self._chunks.empty():
                self._arrived.clear()
                if self._chunks.empty() and self._chunks_left is None:
                    await self._arrived.wait()
                continue
            found = self._chunks.get()
            if self._chunks_left is not None:
                self._chunks_left -= 1
            if isinstance(found, OSError):
                raise failure(f"cannot read the input: {found.strerror or found}") from found
            if not found:
                return
            yield found


def _reader(source: BinaryIO) -> Callable[[int], bytes]:
    """Read from the file itself where there is one. A thread that holds the lock of `sys.stdin.buffer` would make
    Python fail at its end.
    """
    try:
        number = source.fileno()
    except (io.UnsupportedOperation, AttributeError):
        return source.read
    return lambda size: os.read(number, size)


def _read_all(
    read: Callable[[int], bytes],
    chunks: queue.Queue[bytes | OSError],
    loop: asyncio.AbstractEventLoop,
    arrived: asyncio.Event,
) -> None:
    found: bytes | OSError = b""
    while True:
        try:
            found = read(CHUNK_BYTES)
        except OSError as e:
            found = e
        except ValueError:
            return  # the source was closed under this thread: the command has ended
        chunks.put(found)
        try:
            loop.call_soon_threadsafe(arrived.set)
        except RuntimeError:
            return  # the loop is closed: the command has ended
        if not found or isinstance(found, OSError):
            return
