"""PURE: a histogram: counts of observed values by bucket, and their sum. Readers take the fields as they are."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds for durations from 0.1 ms to 10 s."""
COUNTS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
"""Upper bounds for numbers of things."""


class Histogram:
    """`counts[i]`: values up to `bounds[i]` and above the bound before; the last one: values above all bounds."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many values were observed."""
        return sum(self.counts)
