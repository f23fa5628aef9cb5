"""The clocks of a host: a wall clock that may be wrong and may jump, and a monotonic clock with a random start."""

from __future__ import annotations

EPOCH_MS = 1_788_000_000_000
"""The right wall clock time at the start of a simulation (August 2026)."""
NS_PER_MS = 1_000_000


class HostClock:
    """`skew_ms`: how far the wall clock is ahead of virtual time. A fault may change it."""

    __slots__ = ("monotonic_offset_ns", "skew_ms")

    def __init__(self, monotonic_offset_ns: int) -> None:
        self.monotonic_offset_ns = monotonic_offset_ns
        self.skew_ms = 0

    def wall_ms(self, now_ns: int) -> int:
        """Milliseconds since 1970 by this host's wall clock, at virtual time `now_ns`."""
        return EPOCH_MS + now_ns // NS_PER_MS + self.skew_ms
