"""PURE: the pause before the next attempt, after so many failures in a row (KIP-580)."""

from __future__ import annotations

from random import Random
from typing import Final

JITTER: Final = (0.8, 1.2)
"""A pause is multiplied by a number that is drawn from this range, so that callers do not retry in step."""
DOUBLINGS_MAX: Final = 32


class Backoff:
    """Pauses in ms that double from `initial_ms` to `max_ms`, with jitter.

    The next one of `alternatives`, which are endpoints that the caller asks in turn, is tried at once. Only a failure
    of all of them is followed by a pause.
    """

    __slots__ = ("_alternatives", "_jitter", "_rng", "failures", "initial_ms", "max_ms")

    def __init__(
        self,
        rng: Random,
        initial_ms: float,
        max_ms: float,
        *,
        jitter: tuple[float, float] = JITTER,
        alternatives: int = 1,
    ) -> None:
        self._rng, self.initial_ms, self.max_ms = rng, initial_ms, max_ms
        self._jitter, self._alternatives = jitter, alternatives
        self.failures = 0

    def next_ms(self) -> float:
        """The pause before the next attempt. Each call counts one more failure."""
        rounds, tried = divmod(self.failures, self._alternatives)
        self.failures += 1
        if tried + 1 < self._alternatives:
            return 0.0
        pause_ms = min(self.initial_ms * (1 << min(rounds, DOUBLINGS_MAX)), self.max_ms)
        return pause_ms * self._rng.uniform(*self._jitter)

    def reset(self) -> None:
        """Forget the failures, after a success."""
        self.failures = 0
