"""Wakes many waiters at once. It has no state, so each waiter checks its condition again."""

from __future__ import annotations

import asyncio


class Signal:
    """`notify` wakes all current waiters. Between checking a condition and `wait` there must be no await."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    def notify(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, timeout_ms: float | None = None) -> bool:
        """Wait for the next `notify`. False when `timeout_ms` has passed first."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiters.append(waiter)
        timer = None
        if timeout_ms is not None:
            timer = loop.call_later(max(timeout_ms, 0) / 1000, _give_up, waiter)
        try:
            await waiter
        except _TimeUpError:
            return False
        finally:
            if timer is not None:
                timer.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        return True


class _TimeUpError(Exception):
    pass


def _give_up(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(_TimeUpError())
