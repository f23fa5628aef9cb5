"""PURE. Counters of one client's requests over all its connections, and the latencies of each API.

A connection counts once for each frame. Readers make metrics of the counters (`Producer.metrics`, `Consumer.metrics`).
"""

from __future__ import annotations

import math

WINDOW_S = 30.0
"""A maximum covers the window in progress and the one before it, as in Kafka's Java client."""


class Latency:
    """Times of one kind: their number, their sum, and the largest of the last 30 to 60 seconds."""

    __slots__ = ("_began", "_max_before_s", "_max_s", "count", "total_s")

    def __init__(self) -> None:
        self.count = 0
        self.total_s = 0.0
        self._began = -math.inf
        self._max_s = self._max_before_s = 0.0

    def observe(self, seconds: float, now: float) -> None:
        """Count one time. now: the monotonic clock."""
        self.count += 1
        self.total_s += seconds
        if now - self._began >= WINDOW_S:
            self._next_window(now)
        if seconds > self._max_s:
            self._max_s = seconds

    def max_s(self, now: float) -> float:
        """The largest of the last 30 to 60 seconds; 0 without one."""
        if now - self._began >= WINDOW_S:
            self._next_window(now)
        return max(self._max_s, self._max_before_s)

    def _next_window(self, now: float) -> None:
        self._max_before_s = self._max_s if now - self._began < 2 * WINDOW_S else 0.0
        self._max_s, self._began = 0.0, now


class ClientRequestCounters:
    """The requests of one client. All totals count from the creation of the client and never go back.

    requests: with those that get no answer. latencies: of the answered requests, by API key.
    bytes_out, bytes_in: whole frames, before TLS. throttled_ms: the sum of the throttle times in answers (KIP-219).
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "connections_closed",
        "connections_opened",
        "latencies",
        "requests",
        "throttled_ms",
        "throttles",
    )

    def __init__(self) -> None:
        self.requests = self.bytes_out = self.bytes_in = 0
        self.connections_opened = self.connections_closed = 0
        self.throttles = self.throttled_ms = 0
        self.latencies: dict[int, Latency] = {}

    @property
    def responses(self) -> int:
        """The number of answered requests."""
        return sum(latency.count for latency in self.latencies.values())

    def answered(self, api_key: int, seconds: float, now: float) -> None:
        """Count the answer to a request. seconds: since the request was made. now: the monotonic clock."""
        latency = self.latencies.get(api_key)
        if latency is None:
            latency = self.latencies[api_key] = Latency()
        latency.observe(seconds, now)

    def latency(self, api_key: int) -> Latency:
        """The latency of an API; an empty one when it was not used."""
        return self.latencies.get(api_key) or Latency()

    def count(self, *api_keys: int) -> int:
        """The number of answered requests of these APIs."""
        return sum(self.latencies[key].count for key in api_keys if key in self.latencies)
