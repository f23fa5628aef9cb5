"""Server-sent events: the facts of a page, sent again whenever they have changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from semel_console.answers import CLUSTER_ERRORS, encoded, problem_of

EVERY_S = 2.0
STREAMS_MAX = 64


async def events(facts: Callable[[], Awaitable[object]], every_s: float, ending: asyncio.Event) -> AsyncIterator[bytes]:
    """An event `facts` with the result as JSON, at first and after each change; an event `trouble` with a Problem while
    the cluster does not answer. A comment in between, so that a closed connection is noticed. It ends when `ending` is
    set.
    """
    last = b""
    while not ending.is_set():
        try:
            name, data = b"facts", encoded(await facts())
        except CLUSTER_ERRORS as e:
            name, data = b"trouble", encoded(problem_of(e))
        shown = name + data
        yield b": same\n\n" if shown == last else b"event: %b\ndata: %b\n\n" % (name, data)
        last = shown
        with suppress(TimeoutError):
            await asyncio.wait_for(ending.wait(), every_s)
