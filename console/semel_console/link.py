"""The console's connection to the cluster: made when it is needed, and made anew when the brokers were away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from semel import Admin

from semel_console.answers import AWAY

T = TypeVar("T")
CALL_TIMEOUT_S = 20.0
Opened = Callable[[], AbstractAsyncContextManager[Admin]]


class _Connection:
    """One Admin, and the number of calls that use it. It is closed when it is dropped and no call uses it."""

    def __init__(self, context: AbstractAsyncContextManager[Admin]) -> None:
        self._context = context
        self.starting = asyncio.create_task(context.__aenter__())
        self.calls = 0

    @property
    def has_failed(self) -> bool:
        task = self.starting
        return task.done() and (task.cancelled() or task.exception() is not None)

    async def close(self) -> None:
        self.starting.cancel()
        await asyncio.wait([self.starting])
        if not self.has_failed:
            await self._context.__aexit__(None, None, None)


class ClusterLink:
    """One Admin that all requests share. opened: makes a context with a new, started Admin."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._current: _Connection | None = None
        self._closing: list[asyncio.Task[None]] = []

    async def call(self, work: Callable[[Admin], Awaitable[T]], timeout_s: float = CALL_TIMEOUT_S) -> T:
        """The result of `work`. After an error of the connection the next call begins with a new one.

        Raises what `work` raises, what the start of the Admin raises, and TimeoutError.
        """
        if self._current is None or self._current.has_failed:
            self._current = _Connection(self._opened())
        connection = self._current
        connection.calls += 1
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.wait((connection.starting,))
                return await work(connection.starting.result())
        except AWAY:
            if self._current is connection:
                self._current = None
            raise
        finally:
            connection.calls -= 1
            if not connection.calls and self._current is not connection:
                self._close(connection)

    async def close(self) -> None:
        """Close the connection."""
        if self._current is not None:
            self._close(self._current)
            self._current = None
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _close(self, connection: _Connection) -> None:
        task = asyncio.create_task(connection.close())
        self._closing.append(task)
        task.add_done_callback(self._closing.remove)
