"""`.txnindex`, the aborted transactions whose marker lies in a segment, in Kafka's format and the order of the markers.

There is no file as long as there is nothing to note. Entries are written at once and read from the file, so that
memory does not grow with them. Both the offsets of the markers and the last stable offsets ascend, so that a search
costs two looks, however many transactions were aborted before and after.
"""

from bisect import bisect_left
from operator import itemgetter

from semel_storage.disk import Disk, File
from semel_storage.transactions import ENTRY, AbortedTransaction, encode

BLOCK = 128
"""Entries read at once."""
GLANCE = 16
"""Entries read first: mostly they are all that concerns a reader."""
PLACES_MAX = 128
FIRST, LAST, STABLE = 2, 3, 4
"""Where the offsets stand in an entry."""


class TransactionIndex:
    """One segment's. `count` entries; what is appended is durable after `sync` only."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self.count = disk.size(path) // ENTRY.size if disk.exists(path) else 0
        self._disk = disk
        self._file: File | None = None
        self._last: AbortedTransaction | None = None
        self._places: dict[int, int] = {}
        """Offset -> the first entry that ends there or later: where sequential readers go on."""
        self._minima: list[int] = []
        """The smallest first offset in each full block, as far as that was ever asked for."""
        self._is_dirty = False

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
        """Have a file, if an empty one."""
        self._open()

    def append(self, aborted: AbortedTransaction) -> None:
        """Note a transaction whose abort marker was just appended to the segment."""
        last = self.last
        assert last is None or last.last_offset < aborted.last_offset, f"{self.path}: {aborted} after {last}"
        position = self._open().append(encode(aborted))
        assert position == self.size, f"{self.path} has {position} bytes, {self.count} entries were expected"
        self.count += 1
        self._last = aborted
        self._is_dirty = True

    def overlapping(self, start: int, end: int) -> tuple[list[AbortedTransaction], bool]:
        """Those that end at or after `start` and begin below `end`, and whether no later one can."""
        last = self.last
        if last is None or last.last_offset < start:
            return [], False
        found: list[AbortedTransaction] = []
        at = self._place_of(start)
        is_beyond = False
        """Whether what follows ends beyond `end`: only some long transactions then began below it."""
        size = GLANCE
        while at < self.count:
            size = min(size, BLOCK - at % BLOCK)
            if not (is_beyond and size == BLOCK and self._minimum(at // BLOCK) >= end):
                entries = self._read(at, size)
                found += [AbortedTransaction(*entry[1:]) for entry in entries if entry[FIRST] < end]
                if not is_beyond and entries[-1][LAST] >= end:
                    is_beyond = True
                    self._remember(end, at + bisect_left(entries, end, key=itemgetter(LAST)))
                if entries[-1][STABLE] >= end:
                    break
            at += size
            size = BLOCK
        return found, last.last_stable_offset >= end

    def truncate(self, offset: int) -> None:
        """Forget, durably, the transactions whose marker lies at `offset` or above, and a torn entry."""
        if self.count == 0 and not self._disk.exists(self.path):
            return
        count = self.count
        if count and (self.last is None or self.last.last_offset >= offset):
            count = self._search(offset)
        file = self._open()
        if file.size() != count * ENTRY.size:
            file.truncate(count * ENTRY.size)
        if count != self.count:
            self.count = count
            self._last = None
            self._places.clear()
            del self._minima[count // BLOCK :]

    async def sync(self) -> None:
        """Return once every entry appended before is durable. No system call when nothing is new."""
        if self._is_dirty:
            self._is_dirty = False
            self._disk.sync_dir(self.path.rpartition("/")[0])  # the file may be as new as the entry
            await self._open().sync()

    def sync_now(self) -> None:
        """`sync`, blocking."""
        if self._is_dirty:
            self._is_dirty = False
            self._disk.sync_dir(self.path.rpartition("/")[0])
            self._open().sync_now()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path)
        return self._file

    def _place_of(self, start: int) -> int:
        """The first entry that ends at or after `start`; known for a reader that goes on where it stopped."""
        place = self._places.get(start)
        if place is None:
            place = self._search(start)
            self._remember(start, place)
        return place

    def _remember(self, offset: int, place: int) -> None:
        places = self._places
        places.pop(offset, None)
        places[offset] = place
        if len(places) > PLACES_MAX:
            del places[next(iter(places))]

    def _search(self, offset: int) -> int:
        return bisect_left(range(self.count), offset, key=lambda at: self._read(at, 1)[0][LAST])

    def _read(self, at: int, count: int) -> list[tuple[int, ...]]:
        """Fields of the entries from `at` on, `count` or as many as there are."""
        count = min(count, self.count - at)
        return list(ENTRY.iter_unpack(self._open().pread(count * ENTRY.size, at * ENTRY.size)))

    def _minimum(self, block: int) -> int:
        """The smallest first offset in a block; 0 for the last one, which may still grow."""
        if (block + 1) * BLOCK > self.count:
            return 0
        while len(self._minima) <= block:
            entries = self._read(len(self._minima) * BLOCK, BLOCK)
            self._minima.append(min(entry[FIRST] for entry in entries))
        return self._minima[block]
