"""PURE: how fast replicas that are not in sync may catch up, so that they leave the network to those that are."""

from __future__ import annotations

BURST_S = 1.0
"""What was not used is kept for so long."""


class Throttle:
    """Bytes per second, 0 for no bound. One answer may go beyond it; then it takes its time until the next one."""

    def __init__(self, bytes_per_second: int, now: float) -> None:
        self._rate = bytes_per_second
        self._credit = float(bytes_per_second)
        self._since = now

    @property
    def is_bounded(self) -> bool:
        return self._rate > 0

    def note(self, size: int, now: float) -> None:
        """So many bytes have come."""
        if self._rate:
            self._fill(now)
            self._credit -= size

    def wait_s(self, now: float) -> float:
        """For how long there should be no more."""
        if not self._rate:
            return 0.0
        self._fill(now)
        return max(0.0, -self._credit / self._rate)

    def _fill(self, now: float) -> None:
        self._credit = min(self._credit + (now - self._since) * self._rate, self._rate * BURST_S)
        self._since = now
