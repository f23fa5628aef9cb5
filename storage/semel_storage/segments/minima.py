"""PURE: the smallest of each stretch of a growing column, at several scales.

Finds what lies below a bound without looking at the rest: what is passed over is passed over in strides.
"""

from collections.abc import Iterator

STRIDE = 64
"""Items of one scale that stand together for one of the next."""


class Minima:
    """Of a column that is appended to, and cut at the end."""

    def __init__(self) -> None:
        self._scales: list[list[int]] = [[]]
        """The column itself, then the smallest of each 64, of each 4096, ..., as far as these are full."""

    def __len__(self) -> int:
        return len(self._scales[0])

    def append(self, item: int) -> None:
        scales, scale = self._scales, 0
        scales[0].append(item)
        while len(scales[scale]) % STRIDE == 0:
            smallest = min(scales[scale][-STRIDE:])
            scale += 1
            if scale == len(scales):
                scales.append([])
            scales[scale].append(smallest)

    def truncate(self, count: int) -> None:
        """Keep the first `count` items."""
        for scale in self._scales:
            del scale[count:]
            count //= STRIDE

    def below(self, bound: int, start: int, stop: int) -> Iterator[int]:
        """Places of the items below `bound` from `start` to `stop`, ascending. `stop`: at most the length."""
        assert stop <= len(self), (stop, len(self))
        at = start
        while at < stop:
            stride = self._stride(bound, at)
            if not stride:
                yield at
            at += stride or 1

    def _stride(self, bound: int, at: int) -> int:
        """How many items from `at` on are known not to lie below `bound`: a power of `STRIDE`, or none."""
        known = 0
        stride = 1
        for scale in self._scales:
            place, rest = divmod(at, stride)
            if rest or place >= len(scale) or scale[place] < bound:
                break
            known = stride
            stride *= STRIDE
        return known
