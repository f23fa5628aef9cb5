"""Looking out for leaders: metadata is asked for again while somebody is missed."""

import asyncio
from collections.abc import Callable

from semel._edge import Edge
from semel._net.retry import Backoff

SELDOM = 2
"""Times retry_backoff_ms: the longest pause. A dead leader has a successor from one moment to the next."""


class LeaderWatch:
    """Calls `ask` after a pause, if somebody `is_needed` then. Whoever finds it so after the answer, too, says `look`
    again."""

    __slots__ = ("_ask", "_backoff", "_is_missed", "_timer")

    def __init__(
        self, edge: Edge, retry_backoff_ms: float, is_needed: Callable[[], bool], ask: Callable[[], None]
    ) -> None:
        self._is_missed, self._ask = is_needed, ask
        self._backoff = Backoff(edge, retry_backoff_ms, SELDOM * retry_backoff_ms)
        self._timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """Somebody is not there."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._backoff.next_ms() / 1000, self._look)

    def found(self) -> None:
        """Somebody is there."""
        self._backoff.reset()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if self._is_missed():
            self._ask()
