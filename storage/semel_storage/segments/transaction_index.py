"""The transaction index of a segment (`.txnindex`): aborted transactions with their marker in it, in Kafka's format.

There is no file without entries. Entries are written at once and read from the file, so that memory hardly grows with
them. Marker offsets and last stable offsets ascend, so a binary search finds the entries of a range of the log, however
many others there are. A transaction that began in the range but ended after it may be anywhere among the later entries;
the smallest first offset of each block of entries shows where.
"""

from bisect import bisect_left
from collections.abc import Iterator
from operator import itemgetter

from crc32c import crc32c

from semel_storage.disk.disk import Disk, File
from semel_storage.producers.transactions import ENTRY, AbortedTransaction, encode

BLOCK = 128
"""Entries per block. Only the smallest first offset of a block is in memory; a block is read at once."""
FIRST_READ = 16
"""Entries read first; usually a reader needs no others."""
PLACES_MAX = 128
SUM_BYTES = 1 << 20
FIRST, LAST, STABLE = 2, 3, 4
"""Fields of an entry: first offset, marker offset, last stable offset."""


class TransactionIndex:
    """The transaction index of one segment with `count` entries. Appended entries are durable after `sync`."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self.count = disk.size(path) // ENTRY.size if disk.exists(path) else 0
        self._disk = disk
        self._file: File | None = None
        self._last: AbortedTransaction | None = None
        self._places: dict[int, int] = {}
        """Offset -> the first entry with a marker there or later, for sequential readers."""
        self._minima = BlockMinima()
        """The smallest first offset of each full block, as far as it was needed."""
        self._end_of_first: int | None = None
        self._is_dirty = False
        self._checksum: int | None = None

    @property
    def sums(self) -> tuple[int, int]:
        """The number of entries and the CRC-32C of all of them; a producer snapshot stores both."""
        if self._checksum is None:
            self._checksum = 0
            for at in range(0, self.size, SUM_BYTES):
                self._checksum = crc32c(self._open().pread(min(SUM_BYTES, self.size - at), at), self._checksum)
        return self.count, self._checksum

    @property
    def size(self) -> int:
        """Bytes of whole entries."""
        return self.count * ENTRY.size

    @property
    def last(self) -> AbortedTransaction | None:
        """The newest entry."""
        if self._last is None and self.count:
            self._last = AbortedTransaction(*self._read(self.count - 1, 1)[0][1:])
        return self._last

    def create(self) -> None:
        """Create the file if there is none."""
        self._open()

    def append(self, aborted: AbortedTransaction) -> None:
        """Add a transaction whose abort marker was appended to the segment."""
        last = self.last
        assert last is None or last.last_offset < aborted.last_offset, f"{self.path}: {aborted} after {last}"
        entry = encode(aborted)
        position = self._open().append(entry)
        assert position == self.size, f"{self.path} has {position} bytes, {self.count} entries were expected"
        self.count += 1
        if self._checksum is not None:
            self._checksum = crc32c(entry, self._checksum)
        self._last = aborted
        self._is_dirty = True

    def overlapping(self, start: int, end: int) -> tuple[bytes, bool]:
        """Entries with a marker at or after `start` and a first offset below `end`.

        Also returns whether no later segment can have such an entry.
        """
        last = self.last
        if last is None or last.last_offset < start:
            return b"", False
        at = self._place_of(start)
        beyond = self._place_beyond(at, end)
        found = self._bytes(at, beyond - at)
        if beyond < self.count:
            found += self._open_at(end, beyond)
        return found, last.last_stable_offset >= end

    def truncate(self, offset: int) -> None:
        """Remove the entries with a marker at `offset` or above, and a torn entry."""
        count = self.count
        if count and (self.last is None or self.last.last_offset >= offset):
            count = self._search(offset, LAST, 0, count)
        self._cut(count)

    def clear(self) -> None:
        """Remove all bytes, also those that are not a valid entry."""
        self._cut(0)

    def _cut(self, count: int) -> None:
        if self.count == 0 and not self._disk.exists(self.path):
            return
        file = self._open()
        if file.size() != count * ENTRY.size:
            file.truncate(count * ENTRY.size, durable=False)
            self._disk.sync_later(self.path)
        if count != self.count:
            self.count = count
            self._last = self._checksum = None
            self._end_of_first = None
            self._places.clear()
            self._minima.truncate(count // BLOCK)

    async def sync(self) -> None:
        """Return once every entry appended before is durable. No system call without new entries."""
        if self._is_dirty:
            self._note_names()
            await self._open().sync()

    def sync_now(self) -> None:
        """As `sync`, but blocks."""
        if self._is_dirty:
            self._note_names()
            self._open().sync_now()

    def sync_later(self) -> None:
        """As `sync`, with the next sync of a file in the directory."""
        if self._is_dirty:
            self._note_names()
            self._disk.sync_later(self.path)

    def _note_names(self) -> None:
        self._is_dirty = False
        self._disk.sync_dir_later(self.path.rpartition("/")[0])  # the file may be as new as the entry

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path)
        return self._file

    def _place_of(self, start: int) -> int:
        """The first entry with a marker at or after `start`; cached for sequential readers."""
        place = self._places.get(start)
        if place is None:
            place = 0 if self._first_end() >= start else self._search(start, LAST, 0, self.count)
            self._remember(start, place)
        return place

    def _place_beyond(self, at: int, end: int) -> int:
        """The first entry from `at` on with a marker at or after `end`; usually near `at`."""
        place = self._places.get(end)
        if place is None:
            near = self._read(at, FIRST_READ)
            if near[-1][LAST] >= end or at + len(near) == self.count:
                place = at + bisect_left(near, end, key=itemgetter(LAST))
            else:
                low, step = at + len(near), len(near)
                while low + step < self.count and self._read(low + step, 1)[0][LAST] < end:
                    low, step = low + step + 1, step * 2
                place = self._search(end, LAST, low, min(low + step, self.count))
            self._remember(end, place)
        return place

    def _open_at(self, end: int, at: int) -> bytes:
        """Entries from `at` on with a first offset below `end`; the markers of all of them are at `end` or later."""
        near = self._read(at, FIRST_READ)
        found = b"".join(ENTRY.pack(*entry) for entry in near if entry[FIRST] < end)
        at += len(near)
        if near[-1][STABLE] >= end or at == self.count:
            return found  # later entries have a first offset above
        last, stop = self.last, self.count
        if last is not None and last.last_stable_offset >= end:
            stop = min(self._search(end, STABLE, at, stop) + 1, stop)
        self._read_minima(stop // BLOCK)
        full = self._minima.below(end, at // BLOCK, stop // BLOCK) if stop // BLOCK > at // BLOCK else ()
        for block in (*full, stop // BLOCK):
            first = max(at, block * BLOCK)
            for entry in self._read(first, min(stop, (block + 1) * BLOCK) - first):
                if entry[FIRST] < end:
                    found += ENTRY.pack(*entry)
        return found

    def _remember(self, offset: int, place: int) -> None:
        places = self._places
        places.pop(offset, None)
        places[offset] = place
        if len(places) > PLACES_MAX:
            del places[next(iter(places))]

    def _first_end(self) -> int:
        """The marker offset of the first entry."""
        if self._end_of_first is None:
            self._end_of_first = self._read(0, 1)[0][LAST]
        return self._end_of_first

    def _search(self, offset: int, field: int, low: int, high: int) -> int:
        """The first entry from `low` to `high` whose ascending `field` is at least `offset`."""
        return low + bisect_left(range(low, high), offset, key=lambda at: self._read(at, 1)[0][field])

    def _read(self, at: int, count: int) -> list[tuple[int, ...]]:
        """Fields of up to `count` entries from `at` on."""
        return list(ENTRY.iter_unpack(self._bytes(at, count)))

    def _bytes(self, at: int, count: int) -> bytes:
        count = min(count, self.count - at)
        return self._open().pread(count * ENTRY.size, at * ENTRY.size) if count > 0 else b""

    def _read_minima(self, blocks: int) -> None:
        """Compute the smallest first offset of each of the first `blocks` blocks, which are full."""
        assert blocks * BLOCK <= self.count, (blocks, self.count)
        while len(self._minima) < blocks:
            self._minima.append(min(entry[FIRST] for entry in self._read(len(self._minima) * BLOCK, BLOCK)))


STRIDE = 64
"""Items of one scale per item of the next scale."""


class BlockMinima:
    """The minima of blocks of an array at several scales, to find the items below a bound without reading all.

    A block whose minimum is not below the bound is skipped as a whole. The array grows, and is truncated, at its end.
    """

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
