"""PURE: the minima of blocks of an array at several scales, to find the items below a bound without reading all.

A block whose minimum is not below the bound is skipped as a whole.
"""

from collections.abc import Iterator

STRIDE = 64
"""Items of one scale per item of the next scale."""


class BlockMinima:
    """The minima of an array that grows, and is truncated, at its end."""

    def __init__(self) -> None:
        self._scales: list[list[int]] = [[]]
        """The array itself, then the minimum of each full block of 64 items, of each of 4096, ..."""

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
        """Yield the places of the items below `bound` from `start` to `stop`, ascending. `stop`: at most the length."""
        assert stop <= len(self), (stop, len(self))
        at = start
        while at < stop:
            stride = self._stride(bound, at)
            if not stride:
                yield at
            at += stride or 1

    def _stride(self, bound: int, at: int) -> int:
        """The number of items from `at` on that are known not to be below `bound`: a power of `STRIDE`, or 0."""
        known = 0
        stride = 1
        for scale in self._scales:
            place, rest = divmod(at, stride)
            if rest or place >= len(scale) or scale[place] < bound:
                break
            known = stride
            stride *= STRIDE
        return known
