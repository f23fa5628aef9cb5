"""PURE: counts the offsets that read_committed consumers skip: markers, and records of aborted transactions.

It knows what was appended, replicated or replayed since it was made. Old entries are merged in pairs, so that memory is
bounded: a count between two offsets is then off by what lies in one merged entry.
"""

from array import array
from bisect import bisect_left, insort

ENTRIES_MAX = 2_000
BATCHES_MAX = 1_000
"""Batches of one open transaction that have an entry of their own."""


class SkippedOffsets:
    """The offsets that read_committed consumers skip.

    `data` and `marker` take the transactional batches of a log in their order.
    """

    def __init__(self) -> None:
        self._offsets: array[int] = array("q")
        self._counts: dict[int, int] = {}  # of the offsets that stand for more than one
        self._open: dict[int, list[tuple[int, int]]] = {}  # by producer: (offset, records) of each batch

    def __len__(self) -> int:
        return len(self._offsets)

    def data(self, producer_id: int, offset: int, records: int) -> None:
        """A batch of an open transaction begins at `offset`."""
        batches = self._open.get(producer_id)
        if batches is None:
            self._open[producer_id] = [(offset, records)]
        elif len(batches) < BATCHES_MAX:
            batches.append((offset, records))
        else:
            first, count = batches[-1]
            batches[-1] = first, count + records

    def marker(self, producer_id: int, offset: int, *, is_abort: bool) -> None:
        """The marker of the producer's transaction lies at `offset`."""
        batches = self._open.pop(producer_id, ())
        if is_abort:
            for first, count in batches:
                insort(self._offsets, first)
                self._counts[first] = count
        self._offsets.append(offset)
        if len(self._offsets) > ENTRIES_MAX:
            self._merge()

    def between(self, start: int, end: int) -> int:
        """How many of the offsets from `start` to `end`, without `end`, consumers skip. `end`: at most the LSO."""
        offsets = self._offsets
        found = offsets[bisect_left(offsets, start) : bisect_left(offsets, end)]
        return min(end - start, sum(self._counts.get(offset, 1) for offset in found))

    def _merge(self) -> None:
        """Merge the older half in pairs, each into its later entry."""
        half = len(self._offsets) // 4 * 2
        for at in range(0, half, 2):
            earlier, later = self._offsets[at], self._offsets[at + 1]
            self._counts[later] = self._counts.pop(earlier, 1) + self._counts.get(later, 1)
        self._offsets = self._offsets[1:half:2] + self._offsets[half:]
