"""When to try etcd again: at once at the next endpoint; after a whole round of them, later and later."""

from __future__ import annotations

from random import Random
from typing import Final

PAUSE_S_MIN: Final = 0.05
PAUSE_S_MAX: Final = 1.0


class Backoff:
    """The failures in a row of one caller."""

    def __init__(self, rng: Random, endpoints: int) -> None:
        self._rng = rng
        self._endpoints = endpoints
        self._failures = 0

    def failed(self) -> float:
        """One more; how many seconds to wait before the next try (between half and all of a pause that doubles)."""
        self._failures += 1
        rounds, rest = divmod(self._failures, self._endpoints)
        if rest:
            return 0.0
        pause_s = min(PAUSE_S_MAX, PAUSE_S_MIN * (1 << min(rounds - 1, 10)))
        return pause_s * (0.5 + self._rng.random() / 2)

    def succeeded(self) -> None:
        """The next failure is a first one."""
        self._failures = 0
