"""The segments of one log: locates and reads batches across them, and caches the positions of sequential readers.

The cost of a read does not depend on the length of the log: a sequential reader finds its position in a small cache,
any other reader by two binary searches.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import overload

from semel_storage.segments.segment import CorruptLog, Segment

CURSORS_MAX = 128


class Segments(Sequence[Segment]):
    """Ascending, never empty; the last one is the active one. Change the list `all` only by the methods."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        assert segments, "a log has at least one segment"
        self.all: list[Segment] = list(segments)
        self.bases: list[int] = [segment.base_offset for segment in segments]
        self._cursors: dict[int, tuple[Segment, int]] = {}
        self._sealed_with_aborted: list[Segment] | None = None
        """Sealed segments with aborted transactions; None: not computed yet."""

    @overload
    def __getitem__(self, at: int) -> Segment: ...
    @overload
    def __getitem__(self, at: slice) -> list[Segment]: ...
    def __getitem__(self, at: int | slice) -> Segment | list[Segment]:
        return self.all[at]

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.all)

    def add(self, segment: Segment) -> None:
        """Add a new last segment."""
        assert segment.base_offset > self.bases[-1]
        self.all.append(segment)
        self.bases.append(segment.base_offset)
        self._sealed_with_aborted = None

    def restart(self, segment: Segment) -> None:
        """Replace all segments, which are deleted, by this one."""
        self.all, self.bases = [segment], [segment.base_offset]
        self.forget()

    def drop(self, segment: Segment) -> None:
        """Remove a segment and delete its files."""
        at = self.all.index(segment)
        del self.all[at], self.bases[at]
        self.forget()
        segment.delete()

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Replace the neighbours `old`, whose files are deleted, by their compacted copy."""
        at = self.all.index(old[0])
        assert list(old) == self.all[at : at + len(old)], "only neighbouring segments can be replaced"
        assert not any(segment.is_active for segment in old)
        for segment in old:
            segment.delete()
        new.next_offset = old[-1].next_offset
        self.all[at : at + len(old)] = [new]
        del self.bases[at + 1 : at + len(old)]
        self.forget()

    def locate(self, offset: int) -> tuple[Segment, int]:
        """The segment and position of the batch with `offset`, or of the first one after it."""
        known = self._cursors.get(offset)
        if known is not None and known[1] < known[0].size:
            return known
        at = max(0, bisect_right(self.bases, offset) - 1)
        while True:
            segment = self.all[at]
            position = segment.position_of(offset)
            if position < segment.size or at + 1 == len(self.all):
                return segment, position
            at += 1

    def read(self, offset: int, *, up_to: int, bytes_max: int, at_least_one: bool) -> tuple[bytes, int]:
        """As `Log.read`; `offset` must be in the log and below `up_to`. Also returns an offset above all bytes."""
        segment, position = self.locate(offset)
        chunks: list[bytes] = []
        room = bytes_max
        next_offset = offset
        while True:
            known = self._cursors.get(up_to)
            if known is not None and known[0] is segment and position <= known[1] <= position + room:
                stop, next_offset = known[1], up_to
            else:
                whole_first = at_least_one and not chunks
                try:
                    stop, next_offset = segment.boundary(
                        position, position + room, up_to=up_to, at_least_one=whole_first
                    )
                except CorruptLog:
                    if not chunks:
                        raise
                    break  # the chunks before the damage are complete
            if stop > position:
                chunks.append(segment.file.pread(stop - position, position))
                room -= stop - position
                self.remember(next_offset, segment, stop)
            if stop < segment.size or room <= 0 or segment is self.all[-1]:
                break
            segment, position = self.all[bisect_right(self.bases, segment.base_offset)], 0
            if segment.base_offset >= up_to:
                break
        return chunks[0] if len(chunks) == 1 else b"".join(chunks), next_offset

    def aborted_entries(self, start: int, end: int) -> bytes:
        """Index entries of the aborted transactions with a marker at or after `start` and a first offset below `end`,
        in marker order."""
        if self._sealed_with_aborted is None:
            self._sealed_with_aborted = [segment for segment in self.all[:-1] if segment.aborted.count]
        sealed = self._sealed_with_aborted
        first = max(0, bisect_right(sealed, start, key=lambda segment: segment.base_offset) - 1)
        found = b""
        for segment in (*sealed[first:], self.all[-1]):
            some, is_complete = segment.aborted.overlapping(start, end)
            found += some
            if is_complete:
                break
        return found

    def bytes_before(self, offset: int) -> int:
        """Bytes of all segments before the batch with `offset`, or before the first one after it."""
        segment, position = self.locate(offset)
        return sum(earlier.size for earlier in self.all[: self.all.index(segment)]) + position

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        """Cache the position of `offset`, where a sequential reader will continue or stop."""
        cursors = self._cursors
        cursors.pop(offset, None)
        cursors[offset] = (segment, position)
        if len(cursors) > CURSORS_MAX:
            del cursors[next(iter(cursors))]

    def forget(self) -> None:
        """Clear the caches: positions may have changed."""
        self._cursors.clear()
        self._sealed_with_aborted = None
