"""PURE. The metrics that all clients have: connections, requests, latencies."""

from __future__ import annotations

from semel._net.counters import Latency
from semel._net.pool import Pool

Metrics = dict[str, dict[str, float]]
"""Group -> name -> number."""


def connection_metrics(pool: Pool) -> dict[str, float]:
    """The connections and requests of a client."""
    counters = pool.counters
    return {
        "connection-count": counters.connections_opened - counters.connections_closed,
        "connection-creation-total": counters.connections_opened,
        "connection-close-total": counters.connections_closed,
        "request-total": counters.requests,
        "response-total": counters.responses,
        "requests-in-flight": pool.in_flight,
        "outgoing-byte-total": counters.bytes_out,
        "incoming-byte-total": counters.bytes_in,
        "throttle-total": counters.throttles,
        "throttle-time-total": counters.throttled_ms,
    }


def latency_metrics(name: str, latency: Latency, now: float) -> dict[str, float]:
    """Sum and maximum of a latency, in milliseconds. now: the monotonic clock."""
    return {f"{name}-total": latency.total_s * 1000, f"{name}-max": latency.max_s(now) * 1000}
