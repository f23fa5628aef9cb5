"""A processor that takes time, for one broker: the cost of a request passes as virtual time while the process is busy.

In other simulations computing takes no time, so that one request cannot delay another. Here each request, each step of
a long request, and each byte received or sent costs as much as on a very slow machine. The broker's clock includes the
cost at once. Virtual time follows when the loop has finished its current callbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from semel_broker.answers import RequestOrder
from semel_broker.counters.requests import ApiCounters
from semel_broker.net.dispatch import Dispatcher, Peer
from semel_broker.net.pipeline import ConnectionPipeline
from semel_broker.scheduling.turns import Slices

from sim.host import Host
from sim.loop import NS

REQUEST_NS = 1_000_000
STEP_NS = 50_000
"""See `Slices.is_over`."""
BYTE_NS = 10
"""The cost of a byte of a request when it starts, and of an answer when it is written."""


class Processor:
    """The processor of `host`. `started`: called with the peer of each request."""

    def __init__(self, host: Host, started: Callable[[Peer], None]) -> None:
        self._host = host
        self._started = started
        self._is_awaited = False

    def monotonic(self) -> float:
        """The host's clock plus the computing time of this turn of the loop."""
        loop, ahead_ns = self._host.loop, 0
        if loop is not None:
            ahead_ns = max(0, loop.busy_until_ns - self._host.world.now_ns)
        return self._host.monotonic() + ahead_ns / NS

    def work(self, for_ns: int) -> None:
        """Spend `for_ns` on computing; other callbacks wait."""
        loop = self._host.loop
        if loop is None or not for_ns:
            return
        loop.busy_until_ns = max(loop.busy_until_ns, self._host.world.now_ns) + for_ns
        loop.paused = True
        if not self._is_awaited:
            self._is_awaited = True
            self._host.world.at(loop.busy_until_ns, self._is_done)

    def _is_done(self) -> None:
        loop = self._host.loop
        self._is_awaited = False
        if loop is None:
            return
        if loop.busy_until_ns > self._host.world.now_ns:
            self._is_awaited = True
            self._host.world.at(loop.busy_until_ns, self._is_done)
        else:
            self._host._go_on(loop)

    @contextmanager
    def charging(self) -> Iterator[None]:
        """Within this context, the broker's code costs time."""
        start, is_over, write = Dispatcher.start, Slices.is_over, ConnectionPipeline.write

        def paid_start(
            dispatcher: Dispatcher, frame: bytearray, peer: Peer, order: RequestOrder, counters: ApiCounters
        ) -> Any:
            self._started(peer)
            self.work(REQUEST_NS + len(frame) * BYTE_NS)
            return start(dispatcher, frame, peer, order, counters)

        def paid_is_over(slices: Slices, steps: int = 1) -> bool:
            self.work(steps * STEP_NS)
            return is_over(slices, steps)

        def paid_write(pipeline: ConnectionPipeline) -> int:
            written = write(pipeline)
            self.work(written * BYTE_NS)
            return written

        Dispatcher.start = paid_start  # type: ignore[method-assign, assignment]
        Slices.is_over = paid_is_over  # type: ignore[method-assign, assignment]
        ConnectionPipeline.write = paid_write  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            Dispatcher.start, Slices.is_over, ConnectionPipeline.write = start, is_over, write  # type: ignore[method-assign]
