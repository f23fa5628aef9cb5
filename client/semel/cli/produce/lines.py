"""EDGE: whole lines from a pipe, a terminal or a file, as they arrive; a thread reads."""

from __future__ import annotations

import asyncio
import io
import os
import queue
import threading
from collections.abc import AsyncIterator, Callable
from typing import BinaryIO

CHUNK_BYTES = 1 << 16
CHUNKS_AHEAD = 8


class LineTooLongError(Exception):
    """The line that begins here is longer than allowed, and its end has not arrived."""


async def lines_of(source: BinaryIO, line_bytes_max: int) -> AsyncIterator[list[bytes]]:
    """Lists of whole lines, without line ends. Each list ends where the input paused, or after about 64 KiB.

    Raises LineTooLongError when more than line_bytes_max arrived of the next line, and not its end: this bounds the
    memory.
    """
    rest: list[bytes] = []
    rest_bytes = 0
    async for chunk in _chunks(source):
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
        if rest_bytes > line_bytes_max:
            raise LineTooLongError
    if rest_bytes:
        yield [b"".join(rest)]


async def _chunks(source: BinaryIO) -> AsyncIterator[bytes]:
    """The bytes as they arrive. The command does not wait for the thread, which may wait for a terminal for ever."""
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    chunks: queue.Queue[bytes | OSError] = queue.Queue(CHUNKS_AHEAD)
    threading.Thread(target=_read_all, args=(_reader(source), chunks, loop, arrived), daemon=True).start()
    while True:
        while chunks.empty():
            arrived.clear()
            if chunks.empty():
                await arrived.wait()
        found = chunks.get()
        if isinstance(found, OSError):
            raise found
        if not found:
            return
        yield found


def _reader(source: BinaryIO) -> Callable[[int], bytes]:
    """Reads from the file itself where there is one. A thread that holds the lock of `sys.stdin.buffer` would make
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
