"""EDGE: prints records in a thread: a reader of the output that pauses (`| less`, Ctrl-S) does not hold the event loop.

The consumer goes on with its heartbeats meanwhile, and so stays in its group.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from io import UnsupportedOperation
from typing import BinaryIO, Final, Generic, TypeVar

T = TypeVar("T")

WAITING_BYTES_MAX: Final = 1 << 20
PIECE_BYTES: Final = 1 << 16


class Printer(Generic[T]):
    """`records`: the number of records printed so far. `is_closed`: the reader of the pipe has closed it.

    write: prints in the thread. size: of what is put, in bytes.
    """

    def __init__(self, write: Callable[[T], None], size: Callable[[T], int]) -> None:
        self.records = 0
        self.is_closed = False
        self._write, self._size = write, size
        self._waiting: deque[tuple[T, int]] = deque()
        self._waiting_bytes = 0
        self._error: Exception | None = None
        self._is_over = False
        self._changed = threading.Condition()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._printed: asyncio.Event | None = None

    def put(self, data: T, records: int) -> None:
        """Queue what shows so many records."""
        if self._loop is None:
            self._loop, self._printed = asyncio.get_running_loop(), asyncio.Event()
            threading.Thread(target=self._print_all, name="semel-printer", daemon=True).start()
        with self._changed:
            self._waiting.append((data, records))
            self._waiting_bytes += self._size(data)
            self._changed.notify_all()

    def end(self) -> None:
        """No more is put: the thread ends when it has printed what waits."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    async def wait(self, bytes_max: int, timeout_s: float) -> bool:
        """Wait until at most `bytes_max` bytes are left to print; return whether that was within `timeout_s`.

        Raises what `write` has raised: BrokenPipeError after the reader of a pipe has closed it.
        """
        if self._loop is None or self._printed is None:
            return True
        deadline = self._loop.time() + timeout_s
        while True:
            self._printed.clear()
            if self._error is not None:
                self.is_closed = isinstance(self._error, BrokenPipeError)
                raise self._error
            if self._waiting_bytes <= bytes_max:
                return True
            try:
                async with asyncio.timeout_at(deadline):
                    await self._printed.wait()
            except TimeoutError:
                return False

    def _print_all(self) -> None:
        assert self._loop is not None
        assert self._printed is not None
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_over)
                if not self._waiting:
                    return
                data, records = self._waiting.popleft()
            try:
                self._write(data)
            except Exception as error:  # raised by `wait`
                self._error = error
            else:
                with self._changed:
                    self.records += records
                    self._waiting_bytes -= self._size(data)
            try:
                self._loop.call_soon_threadsafe(self._printed.set)
            except RuntimeError:
                return  # the loop is closed: the command has ended
            if self._error is not None:
                return


def text_printer(output: BinaryIO) -> Printer[bytes]:
    """A printer of bytes."""
    write_piece = writer_to(output)

    def write(data: bytes) -> None:
        for at in range(0, len(data), PIECE_BYTES):
            write_piece(data[at : at + PIECE_BYTES])

    return Printer(write, len)


def writer_to(output: BinaryIO) -> Callable[[bytes], None]:
    """Write to the file itself where there is one: a thread that hangs in the buffer of `sys.stdout` holds its lock,
    and Python fails at its end.
    """
    try:
        number = output.fileno()
        output.flush()
    except (UnsupportedOperation, AttributeError):

        def write_to_stream(data: bytes) -> None:
            output.write(data)
            output.flush()

        return write_to_stream

    def write(data: bytes) -> None:
        while data:
            try:
                data = data[os.write(number, data) :]
            except BlockingIOError:  # another process has set the pipe to non-blocking
                select.select([], [number], [])

    return write
