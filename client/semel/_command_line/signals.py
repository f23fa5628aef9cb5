"""EDGE: ends a command's coroutine on SIGINT, SIGTERM and SIGHUP: it stops its client, so that its group is left."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Interrupted(KeyboardInterrupt):
    """A signal has ended the command; its argument is the number of the signal."""

    @property
    def status(self) -> int:
        """128 + the number, as of a process that a signal has ended."""
        return 128 + int(self.args[0])


def run_until_signal(main: Coroutine[Any, Any, T], end: Callable[[], bool] = lambda: False) -> T:
    """Run a coroutine. The first signal ends it, the second one ends the process at once.

    end: asks the coroutine to end by itself, and returns whether it will; otherwise it is cancelled.

    Raises Interrupted after a signal, once the coroutine has ended.
    """
    received: list[int] = []

    async def work() -> T | None:
        task = asyncio.current_task()
        assert task is not None
        with _handling(received, lambda: end() or task.cancel()):
            try:
                return await main
            except asyncio.CancelledError:
                if not received:
                    raise
                return None

    result = asyncio.run(work())
    if received:
        raise Interrupted(received[0])
    return result  # type: ignore[return-value]  # None only after a signal


@contextmanager
def _handling(received: list[int], stop: Callable[[], object]) -> Iterator[None]:
    """Handle the signals that the process does not ignore, as under nohup or in the background of a script."""
    loop = asyncio.get_running_loop()

    def handle(number: int) -> None:
        if received:
            sys.stderr.flush()
            os._exit(128 + number)
        received.append(number)
        stop()

    handled = []
    # Windows has no such handlers, and a thread cannot set them. asyncio handles Ctrl-C there.
    if sys.platform != "win32" and threading.current_thread() is threading.main_thread():
        handled = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    for number in handled:
        loop.add_signal_handler(number, handle, number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
