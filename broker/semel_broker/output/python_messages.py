"""EDGE: sends to the broker's log what Python and its libraries would print to standard error.

They print on the thread of the event loop, and standard error may be a pipe that is not read.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

Write = Callable[..., None]
"""Takes the name of an event, and its fields."""


def route(warning: Write, error: Write) -> None:
    """Send warnings, records of `logging`, errors in finalizers and the ends of threads to the log."""
    logging.getLogger().addHandler(_Handler(warning, error))
    logging.captureWarnings(capture=True)

    def unraisable(failed: sys.UnraisableHookArgs) -> None:
        error("unraisable_error", where=f"{failed.err_msg or 'in'} {failed.object!r}", exc_info=failed.exc_value)

    def thread_failed(failed: threading.ExceptHookArgs) -> None:
        name = None if failed.thread is None else failed.thread.name
        error("thread_failed", thread=name, exc_info=failed.exc_value)

    sys.unraisablehook, threading.excepthook = unraisable, thread_failed


class _Handler(logging.Handler):
    """Writes the records of libraries as events of the log."""

    def __init__(self, warning: Write, error: Write) -> None:
        super().__init__(logging.WARNING)
        self._warning, self._error = warning, error

    def emit(self, record: logging.LogRecord) -> None:
        facts: dict[str, Any] = {"logger": record.name, "message": record.getMessage().strip()}
        if record.exc_info:
            facts["exc_info"] = record.exc_info
        (self._error if record.levelno >= logging.ERROR else self._warning)("library_message", **facts)
