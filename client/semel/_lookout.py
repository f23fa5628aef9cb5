"""Looking out for leaders: metadata is asked for again while somebody who is to be sent to is not there."""

import asyncio
from collections.abc import Callable, Mapping

from semel._edge import Edge
from semel._node import Node
from semel._retry import Backoff

SELDOM = 2
"""Times retry_backoff_ms: the longest pause. A dead leader has a successor from one moment to the next."""


class Lookout:
    """Calls `ask` after a pause, if one of the nodes is away then and something waits for it. Whoever finds that this
    is so after the next answer, too, says `look` again."""

    __slots__ = ("_ask", "_backoff", "_nodes", "_timer")

    def __init__(self, edge: Edge, retry_backoff_ms: float, nodes: Mapping[int, Node], ask: Callable[[], None]) -> None:
        self._nodes, self._ask = nodes, ask
        self._backoff = Backoff(edge, retry_backoff_ms, SELDOM * retry_backoff_ms)
        self._timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """A node is away."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._backoff.next_ms() / 1000, self._look)

    def found(self) -> None:
        """A node is there."""
        self._backoff.reset()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if any(node.is_away and node.has_work for node in self._nodes.values()):
            self._ask()
