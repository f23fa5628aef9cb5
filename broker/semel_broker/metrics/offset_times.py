"""PURE: remembers when partitions had which last stable offset: the lag of a group in seconds follows from it."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

SAMPLES_MAX = 240
"""Of one partition. With a scrape every 15 s an hour."""

Place = tuple[str, int]
"""(topic, partition)."""


class OffsetTimes:
    """Samples of the end that consumers see. Times are seconds of one clock.

    A lag is exact up to the interval of the samples, and at least the age of the oldest sample.
    """

    def __init__(self) -> None:
        self._samples: dict[Place, deque[tuple[int, float]]] = {}

    def note(self, place: Place, end_offset: int, now: float) -> None:
        """The partition has records below `end_offset` to read."""
        samples = self._samples.setdefault(place, deque(maxlen=SAMPLES_MAX))
        if samples and end_offset < samples[-1][0]:
            samples.clear()  # it was truncated, or is another topic of this name
        if not samples or end_offset > samples[-1][0]:
            samples.append((end_offset, now))

    def lag_s(self, place: Place, committed: int, now: float) -> float:
        """Seconds since the record at `committed` could be read; 0.0: there is none yet, or nothing is known."""
        samples = self._samples.get(place)
        if not samples or committed >= samples[-1][0]:
            return 0.0
        at = bisect_right(samples, committed, key=lambda sample: sample[0])
        return max(0.0, now - samples[at][1])

    def keep(self, places: dict[Place, None]) -> None:
        """Forget all other partitions."""
        self._samples = {place: samples for place, samples in self._samples.items() if place in places}
