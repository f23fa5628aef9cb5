"""EDGE: one event loop per process, in a thread of its own: Spark's Python workers are synchronous, the client is not.

Spark forks its workers off a daemon; a loop that the parent has is nothing to the child, which makes its own.
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
    """The loop of this process, running."""
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
    """Carry `work` out on the loop of this process; its answer, or what it raises. Interrupted, it is cancelled."""
    future = asyncio.run_coroutine_threadsafe(work, event_loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise
