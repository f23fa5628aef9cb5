"""The pause after failures in a row: it doubles up to a maximum, and is varied by up to a fifth."""

from __future__ import annotations

from random import Random
from typing import Final

from semel_broker.replication.settings import RETRY_S_MAX, RETRY_S_MIN

FACTOR: Final = 2.0


class Backoff:
    """The pauses of one retry loop, from `s_min` to `s_max` seconds."""

    def __init__(self, rng: Random, s_min: float = RETRY_S_MIN, s_max: float = RETRY_S_MAX) -> None:
        self._rng, self._s_min, self._s_max = rng, s_min, s_max
        self._next_s = s_min

    def failed(self) -> float:
        """The seconds to wait after this failure."""
        pause_s, self._next_s = self._next_s, min(self._next_s * FACTOR, self._s_max)
        return pause_s * self._rng.uniform(0.8, 1.2)

    def succeeded(self) -> None:
        self._next_s = self._s_min
