"""EDGE: one event loop per process, in a thread of its own: Spark's Python workers are synchronous, the client is
asyncio.

Spark forks its workers off a daemon. A child process cannot use its parent's loop and makes its own.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_loops: dict[int, asyncio.AbstractEventLoop] = {}
"""By process id."""
_making = threading.Lock()


def event_loop() -> asyncio.AbstractEventLoop:
    """Return the running loop of this process."""
    loop = _loops.get(os.getpid())
    if loop is not None:
        return loop
    with _making:
        loop = _loops.get(os.getpid())
        if loop is None:
            _loops.clear()
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="semel", daemon=True).start()
    return loop


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on the loop of this process. Returns its result or raises its exception. An interrupt cancels it."""
    future = asyncio.run_coroutine_threadsafe(work, event_loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise
