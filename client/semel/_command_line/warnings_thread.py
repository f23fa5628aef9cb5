"""EDGE: prints the warnings of the client to standard error in a thread: a terminal or pager that pauses does not hold
the event loop, and with it heartbeats and transactions.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

LINES_MAX: Final = 1_000
"""Warnings that wait; further ones are dropped."""
END_S: Final = 1.0
"""At the end of a command the last warnings are waited for at most so long."""


class WarningsThread(logging.Handler):
    """Takes the records of `logging`, and prints their messages to a file descriptor."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(logging.WARNING)
        self._descriptor = descriptor
        self._lines: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one warning."""
        line = f"{self.format(record)}\n".encode(errors="backslashreplace")
        with self._changed:
            if len(self._lines) >= LINES_MAX:
                return
            self._lines.append(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._print_all, name="semel-warnings", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait(self, wait_s: float) -> bool:
        """Wait until all warnings are printed; return whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._lines, wait_s)

    def _print_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
                data = self._lines[0]
            with suppress(OSError):  # standard error cannot be written
                while data:
                    data = data[os.write(self._descriptor, data) :]
            with self._changed:
                self._lines.popleft()
                self._changed.notify_all()


@contextmanager
def warnings_in_a_thread() -> Iterator[None]:
    """Within the block, prints what Python would print of `logging` itself: nothing else handles it."""
    root = logging.getLogger()
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # closed, or a stream of a test
        descriptor = -1
    if root.handlers or descriptor < 0:
        yield
        return
    handler = WarningsThread(descriptor)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.wait(END_S)
