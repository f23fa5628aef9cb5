"""PURE: measures a rate over a sliding window of samples, and says how long a client must wait (KIP-13, KIP-124).

The window consists of samples of one second. It is as long as the time since the start of its oldest sample, and at
least all samples but one: a client that was silent may send the quota of ten seconds at once. A client that exceeds its
quota must wait for as long as the excess takes at the quota. The excess stays in the window, so that each further
request waits for longer, until the first samples leave the window.
"""

from __future__ import annotations

from collections import deque

import msgspec


class Window(msgspec.Struct, frozen=True):
    """The window of a rate: `samples` of `sample_s` seconds each."""

    samples: int = 11
    sample_s: float = 1.0

    @property
    def length_s(self) -> float:
        return self.samples * self.sample_s

    @property
    def shortest_s(self) -> float:
        """The window of a rate that has just begun."""
        return max(1, self.samples - 1) * self.sample_s


class RateSample(msgspec.Struct, gc=False):
    start: float
    last: float
    amount: float


class Rate:
    """An amount per second. Times are seconds of one clock that never goes back."""

    __slots__ = ("_samples", "_total", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._samples: deque[RateSample] = deque()
        self._total = 0.0

    def record(self, amount: float, now: float) -> None:
        """Count `amount`; a negative one takes back what was counted at this time."""
        self._expire(now)
        samples = self._samples
        if not samples or now - samples[-1].start >= self._window.sample_s:
            samples.append(RateSample(now, now, 0.0))
        samples[-1].last = now
        samples[-1].amount += amount
        self._total += amount

    def total(self, now: float) -> float:
        """The amount in the window."""
        self._expire(now)
        return self._total

    def value(self, now: float) -> float:
        """The amount per second over the window."""
        return self.total(now) / self._length_s(now)

    def wait_s(self, bound: float, now: float) -> float:
        """The time that the excess takes at the rate `bound`, at most the length of the window; 0: there is none."""
        over_s = self.total(now) / bound - self._length_s(now)
        return min(over_s, self._window.length_s) if over_s > 0 else 0.0

    def _length_s(self, now: float) -> float:
        window = self._window
        elapsed = now - self._samples[0].start if self._samples else 0.0
        missing = window.samples - 1 - int(elapsed / window.sample_s)
        return max(elapsed + max(0, missing) * window.sample_s, window.sample_s)

    def _expire(self, now: float) -> None:
        samples = self._samples
        while samples and now - samples[0].last >= self._window.length_s:
            self._total -= samples.popleft().amount
        if not samples:
            self._total = 0.0  # without the rounding of many additions


class TokenBucket:
    """Bounds a rate, and lets a burst pass after a pause (KIP-599).

    It holds at most the tokens of a whole window, and is full at first. The number of tokens may become negative.
    """

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
