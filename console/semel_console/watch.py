"""Server-sent events: the facts of a page, sent again whenever they have changed; for one page also whether the brokers
answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from semel_console.answers import CLUSTER_ERRORS, encoded, problem_of

EVERY_S = 2.0
KNOCK_EVERY_S = 1.0
STREAMS_MAX = 64
Ask = Callable[[], Awaitable[object]]


async def events(facts: Ask, every_s: float, ending: asyncio.Event, knock: Ask | None = None) -> AsyncIterator[bytes]:
    """An event `facts` with the result as JSON, at first and after each change; an event `trouble` with a Problem while
    the cluster does not answer. A comment in between, so that a closed connection is noticed. It ends when `ending` is
    set.

    knock: its results are events `knock`. It is asked while `facts` wait for their brokers.
    """
    asks = (
        {"facts": (facts, every_s)} if knock is None else {"facts": (facts, every_s), "knock": (knock, KNOCK_EVERY_S)}
    )
    last: dict[str, bytes] = {}

    async def look(name: str) -> bytes:
        ask, pause_s = asks[name]
        if name in last:
            with suppress(TimeoutError):
                await asyncio.wait_for(ending.wait(), min(pause_s, every_s))
        try:
            event, data = name.encode(), encoded(await ask())
        except CLUSTER_ERRORS as e:
            event, data = b"trouble", encoded(problem_of(e))
        shown = event + data
        is_same = last.get(name) == shown
        last[name] = shown
        return b": same\n\n" if is_same else b"event: %b\ndata: %b\n\n" % (event, data)

    looks = {asyncio.create_task(look(name)): name for name in asks}
    try:
        while not ending.is_set():
            done, _ = await asyncio.wait(looks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                name = looks.pop(task)
                yield task.result()
                looks[asyncio.create_task(look(name))] = name
    finally:
        for task in looks:
            task.cancel()
        await asyncio.gather(*looks, return_exceptions=True)
