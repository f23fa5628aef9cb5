"""PURE: the pause before the next attempt, after so many failures in a row."""

from __future__ import annotations

from random import Random
from typing import Final

FACTOR: Final = 2.0
JITTER: Final = (0.8, 1.2)
"""A pause is multiplied by a number that is drawn from this range, so that callers do not retry in step."""


class Backoff:
    """Pauses in seconds that double from `s_min` to `s_max`. `alternatives`: endpoints that the caller asks in turn.

    The next alternative is tried at once; only a failure of all of them is followed by a pause.
    """

    def __init__(
        self,
        rng: Random,
        s_min: float,
        s_max: float,
        *,
        jitter: tuple[float, float] = JITTER,
        alternatives: int = 1,
    ) -> None:
        self._rng = rng
        self._s_min, self._s_max = s_min, s_max
        self._jitter = jitter
        self._alternatives = alternatives
        self._failures = 0
        self._next_s = s_min

    def failed(self) -> float:
        """Count one more failure. Seconds to wait before the next attempt."""
        self._failures += 1
        if self._failures % self._alternatives:
            return 0.0
        pause_s, self._next_s = self._next_s, min(self._next_s * FACTOR, self._s_max)
        return pause_s * self._rng.uniform(*self._jitter)

    def succeeded(self) -> None:
        """Begin again: the next failure is the first one."""
        self._failures = 0
        self._next_s = self._s_min
