"""Requests metadata again, with pauses, while a leader is missing."""

import asyncio
from collections.abc import Callable

from semel_protocol.backoff import Backoff

from semel._edge import Edge

PAUSE_MAX_FACTOR = 2
"""The longest pause, as a multiple of retry_backoff_ms. A failed leader may get a successor at any moment."""


class LeaderWatch:
    """Calls `refresh` after a pause if `is_needed` still holds then. A caller that still misses the leader after the
    answer calls `leader_missing` again.
    """

    __slots__ = ("_backoff", "_is_needed", "_refresh", "_timer")

    def __init__(
        self, edge: Edge, retry_backoff_ms: float, is_needed: Callable[[], bool], refresh: Callable[[], None]
    ) -> None:
        self._is_needed, self._refresh = is_needed, refresh
        self._backoff = Backoff(edge.rng, retry_backoff_ms, PAUSE_MAX_FACTOR * retry_backoff_ms)
        self._timer: asyncio.TimerHandle | None = None

    def leader_missing(self) -> None:
        """A leader is missing or cannot be reached: schedules a refresh."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._backoff.next_ms() / 1000, self._check)

    def leader_reached(self) -> None:
        """A leader was reached: the next pause is short again."""
        self._backoff.reset()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        self._timer = None
        if self._is_needed():
            self._refresh()
