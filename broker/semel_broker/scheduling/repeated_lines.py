"""PURE: bounds the log lines of an event that repeats: a peer that tries again and again must not fill the log."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

INTERVAL_S: Final = 60.0
KEYS_MAX: Final = 1_000
"""Keys that are remembered. The one that was written longest ago is forgotten first."""


class RepeatedLines:
    """Says which lines to write: one for each key in an interval. `clock`: seconds that never decrease."""

    def __init__(self, clock: Callable[[], float], interval_s: float = INTERVAL_S) -> None:
        self._clock, self._interval_s = clock, interval_s
        self._written: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()  # when, and how many since then

    def times(self, key: Hashable) -> int:
        """Note that it happened. 0: write no line. Otherwise write one for so many times."""
        now = self._clock()
        at, unwritten = self._written.get(key, (now - self._interval_s, 0))
        if now - at < self._interval_s:
            self._written[key] = at, unwritten + 1
            return 0
        self._written[key] = now, 0
        self._written.move_to_end(key)
        if len(self._written) > KEYS_MAX:
            self._written.popitem(last=False)
        return unwritten + 1
