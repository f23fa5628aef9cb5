"""The two sparse indexes of a segment, in Kafka's formats: by offset (`.index`) and by timestamp (`.timeindex`).

An entry of `.index` is (relative offset int32, position int32): a batch whose *last* offset is `base + relative` starts
at `position`. An entry of `.timeindex` is (timestamp int64, relative offset int32): when it was written, no record of
the segment up to that offset was later than `timestamp`. All integers are big-endian.

An index can be rebuilt from the log at any time, so no caller waits for its sync: what is sealed or cut is a debt
(`disk.Disk`), paid before the recovery point passes the segment. The entries of the active
segment are in memory and written to the file at checkpoints. Those of sealed segments are searched in the file, so that
memory does not grow with the log.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from struct import Struct as Layout
from typing import ClassVar

from semel_storage.disk.disk import Disk, File

RELATIVE_OFFSET_MAX = 2**31 - 1


class Index(ABC):
    """Fixed-size entries, appended in ascending order."""

    ENTRY: ClassVar[Layout]

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.count = disk.size(path) // self.ENTRY.size if disk.exists(path) else 0
        self._disk = disk
        self._entries: bytearray | None = None
        """All entries while the index is open for appending, None after that."""
        self._flushed_bytes = 0

    @property
    def size(self) -> int:
        """Bytes of all entries, in the file or still in memory."""
        return self.count * self.ENTRY.size

    def activate(self, keep: Callable[[tuple[int, int]], bool] | None = None) -> None:
        """Open for appending; keep the entries of the file up to the first that does not ascend or fails `keep`."""
        data = self._disk.read_bytes(self.path) if self._disk.exists(self.path) else b""
        kept = 0
        previous: tuple[int, int] | None = None
        for entry in self.ENTRY.iter_unpack(data[: len(data) - len(data) % self.ENTRY.size]):
            pair = (entry[0], entry[1])
            if not self._follows(previous, pair) or (keep is not None and not keep(pair)):
                break
            previous = pair
            kept += self.ENTRY.size
        self._entries = bytearray(data[:kept])
        self.count = kept // self.ENTRY.size
        self._flushed_bytes = kept
        if kept < len(data):
            self._cut_file(kept)

    def reset(self) -> None:
        """Remove every entry and open for appending."""
        self._entries = bytearray()
        self.count = 0
        self._cut_file(0)

    def flush(self) -> None:
        """Write the entries that are not in the file yet, without a sync."""
        if self._entries is None or self._flushed_bytes == len(self._entries):
            return
        file = self._disk.open(self.path)
        file.append(memoryview(self._entries)[self._flushed_bytes :])
        file.close()
        self._disk.sync_later(self.path)
        self._flushed_bytes = len(self._entries)

    def seal(self) -> None:
        """End appending: write the entries, and search in the file from now on."""
        if self._entries is None:
            return
        self.flush()
        self._entries = None

    def sync(self) -> None:
        """Write all entries, durably. Blocks."""
        self.flush()
        if self._disk.owes(self.path):
            file = self._disk.open(self.path)
            file.sync_now()
            file.close()

    def last(self) -> tuple[int, int] | None:
        """The last entry, with the offset relative."""
        if self.count == 0:
            return None
        found: list[tuple[int, int]] = []
        self._search(lambda entry: found.append(entry(self.count - 1)))
        return found[0]

    def _append(self, first: int, second: int) -> None:
        assert self._entries is not None, f"append to a sealed index {self.path}"
        self._entries += self.ENTRY.pack(first, second)
        self.count += 1

    def _keep(self, count: int) -> None:
        assert self._entries is not None
        if count == self.count:
            return
        del self._entries[count * self.ENTRY.size :]
        self.count = count
        if self._flushed_bytes > len(self._entries):
            self._cut_file(len(self._entries))

    def _cut_file(self, size: int) -> None:
        file = self._disk.open(self.path)
        if file.size() > size:
            file.truncate(size, durable=False)
            self._disk.sync_later(self.path)
        file.close()
        self._flushed_bytes = size

    def _search(self, visit: Callable[[Callable[[int], tuple[int, int]]], None]) -> None:
        """Call `visit` with a function that reads the entry at a place, from memory or from the file."""
        unpack_from = self.ENTRY.unpack_from
        width = self.ENTRY.size
        if self._entries is not None:
            entries = self._entries
            visit(lambda at: unpack_from(entries, at * width))
            return
        file: File = self._disk.open(self.path)
        try:
            visit(lambda at: unpack_from(file.pread(width, at * width)))
        finally:
            file.close()

    def _floor(self, field: int, value: int, *, strictly: bool = False) -> tuple[int, int] | None:
        """The last entry whose `field` is at most `value`; with `strictly`, below it."""
        if self.count == 0:
            return None
        found: list[tuple[int, int]] = []

        def visit(entry: Callable[[int], tuple[int, int]]) -> None:
            find = bisect_left if strictly else bisect_right
            place = find(range(self.count), value, key=lambda at: entry(at)[field])
            if place:
                found.append(entry(place - 1))

        self._search(visit)
        return found[0] if found else None

    @staticmethod
    @abstractmethod
    def _follows(previous: tuple[int, int] | None, entry: tuple[int, int]) -> bool:
        """Whether `entry` may follow `previous` (None: be the first entry)."""


class OffsetIndex(Index):
    ENTRY = Layout(">ii")

    def append(self, last_offset: int, position: int) -> None:
        """Add an entry: the batch that ends with `last_offset` starts at `position`."""
        self._append(last_offset - self.base_offset, position)

    def position_of(self, offset: int) -> int:
        """The nearest known batch boundary at or before the batch with `offset`."""
        entry = self._floor(0, offset - self.base_offset)
        return entry[1] if entry else 0

    def boundary_before(self, position: int, *, up_to: int) -> int:
        """The last known batch boundary at or before `position` with only offsets below `up_to` before it."""
        by_position = self._floor(1, position)
        by_offset = self._floor(0, up_to - self.base_offset)
        if by_position is None or by_offset is None:
            return 0
        return min(by_position[1], by_offset[1])

    def truncate(self, *, position: int) -> None:
        """Remove the entries of batches that start at `position` or after it."""
        entries = self._entries
        assert entries is not None
        count = bisect_left(range(self.count), position, key=lambda at: self.ENTRY.unpack_from(entries, at * 8)[1])
        self._keep(count)

    @staticmethod
    def _follows(previous: tuple[int, int] | None, entry: tuple[int, int]) -> bool:
        return entry[0] >= 0 and entry[1] > 0 if previous is None else entry[0] > previous[0] and entry[1] > previous[1]


class TimeIndex(Index):
    ENTRY = Layout(">qi")

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry: `timestamp` is the largest so far, first reached by the batch that ends with `offset`.

        Ignored unless the timestamp ascends, as in Kafka.
        """
        if timestamp > self._last_timestamp():
            self._append(timestamp, offset - self.base_offset)

    def offset_before(self, timestamp: int) -> int:
        """An offset such that all records below it are earlier than `timestamp`."""
        entry = self._floor(0, timestamp, strictly=True)
        return self.base_offset + entry[1] if entry else self.base_offset

    def up_to(self, offset: int) -> tuple[int, int]:
        """(timestamp, offset) of the last entry below `offset`; (-1, base offset) without one."""
        entry = self._floor(1, offset - self.base_offset, strictly=True)
        return (entry[0], self.base_offset + entry[1]) if entry else (-1, self.base_offset)

    def truncate(self, *, offset: int) -> None:
        """Remove the entries for `offset` and above."""
        entries = self._entries
        assert entries is not None
        relative = offset - self.base_offset
        count = bisect_left(range(self.count), relative, key=lambda at: self.ENTRY.unpack_from(entries, at * 12)[1])
        self._keep(count)

    def _last_timestamp(self) -> int:
        assert self._entries is not None
        if not self.count:
            return -1
        timestamp: int = self.ENTRY.unpack_from(self._entries, len(self._entries) - 12)[0]
        return timestamp

    @staticmethod
    def _follows(previous: tuple[int, int] | None, entry: tuple[int, int]) -> bool:
        if previous is None:
            return entry[0] >= 0 and entry[1] >= 0
        return entry[0] > previous[0] and entry[1] >= previous[1]
