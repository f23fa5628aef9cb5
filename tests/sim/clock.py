"""The clocks of a host: a wall clock that may be wrong and may jump, and a monotonic one that starts anywhere."""

from __future__ import annotations

EPOCH_MS = 1_788_000_000_000
"""What a right wall clock says when a simulation begins (August 2026)."""
NS_PER_MS = 1_000_000


class Clock:
    """`skew_ms`: how far the wall clock is ahead of the world's time; a fault may change it at any moment."""

    __slots__ = ("monotonic_offset_ns", "skew_ms")

    def __init__(self, monotonic_offset_ns: int) -> None:
        self.monotonic_offset_ns = monotonic_offset_ns
        self.skew_ms = 0

    def wall_ms(self, now_ns: int) -> int:
        """Milliseconds since 1970, as this host believes, at world time `now_ns`."""
        return EPOCH_MS + now_ns // NS_PER_MS + self.skew_ms
