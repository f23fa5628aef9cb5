"""PURE: a token bucket: bounds a rate, and lets a burst pass after a pause (KIP-599)."""

from __future__ import annotations

from semel_broker.security.quotas.rate import Window


class TokenBucket:
    """Holds at most the tokens of a whole window, and is full at first. The number of tokens may become negative."""

    __slots__ = ("_at", "_tokens", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._tokens: float | None = None  # None: full
        self._at = 0.0

    def take(self, tokens: float, rate: float, now: float) -> None:
        """Take tokens; a negative number puts them back. `rate`: tokens that come in a second."""
        self._refill(rate, now)
        assert self._tokens is not None
        self._tokens = min(self._tokens - tokens, rate * self._window.length_s)

    def wait_s(self, rate: float, now: float) -> float:
        """The time until the number of tokens is not negative."""
        self._refill(rate, now)
        assert self._tokens is not None
        return max(0.0, -self._tokens / rate)

    def _refill(self, rate: float, now: float) -> None:
        most = rate * self._window.length_s
        self._tokens = most if self._tokens is None else min(most, self._tokens + rate * (now - self._at))
        self._at = now
