"""One segment: a `.log` file of complete record batches, its two sparse indexes and its transaction index.

Files are named after the first offset the segment may hold, twenty digits, as Kafka names them. A segment is *active*
(the last one of its log, open for appending) or *sealed* (never appended to again).
"""

from collections.abc import Iterator
from contextlib import suppress

from semel_protocol.batch import HEADER, HEADER_BYTES, MAGIC, PREFIX_BYTES, BatchHeader
from semel_protocol.errors import ErrorCode, KafkaError

from semel_storage.disk.disk import Buffer, Disk, File
from semel_storage.segments.index import RELATIVE_OFFSET_MAX, OffsetIndex, TimeIndex
from semel_storage.segments.log_config import LogConfig
from semel_storage.segments.transaction_index import TransactionIndex

SCAN_WINDOW_BYTES = 2 << 20
SCAN_FIRST_BYTES = 16 << 10
"""The first window of a scan: many scans read only the first header."""
SCAN_GROWTH = 8
NO_TIMESTAMP = -1
NO_RECORD = NO_TIMESTAMP - 1
"""Stands for the largest timestamp of no records; that of undated ones is NO_TIMESTAMP."""
LOG, INDEX, TIME_INDEX, TXN_INDEX = ".log", ".index", ".timeindex", ".txnindex"
DELETED = ".deleted"
SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)

_HOP_BYTES = 4096


class CorruptLog(KafkaError):  # noqa: N818 (named for what the bytes are)
    """Stored bytes are not complete batches. Code KAFKA_STORAGE_ERROR; the message has file and position."""

    def __init__(self, path: str, position: int, problem: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"{path}, byte {position}: {problem}")
        self.path = path
        self.position = position


def file_name(offset: int, suffix: str) -> str:
    """The file name of an offset, such as `00000000000000000042.log`."""
    return f"{offset:020d}{suffix}"


def offset_of(name: str) -> int:
    """The offset in the file name of a segment, index or snapshot."""
    return int(name.partition(".")[0])


class Segment:
    """The files of one segment.

    `next_offset` is one past the last offset; of a sealed segment, at most the base offset of the next one.
    `max_timestamp` is the largest timestamp; -1 without dated records. `first_timestamp` is the maximum timestamp of
    the first batch, which segment.ms is measured from; -1 without batches. `opened_ms`: when the first batch was
    appended, by the broker's clock (after a restart: when the file last changed); segment.ms is measured from there if
    the first batch is not dated.
    """

    def __init__(self, disk: Disk, directory: str, base_offset: int) -> None:
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.index = OffsetIndex(disk, self.path(INDEX), base_offset)
        self.time_index = TimeIndex(disk, self.path(TIME_INDEX), base_offset)
        self.aborted = TransactionIndex(disk, self.path(TXN_INDEX))
        self.size = disk.size(self.path(LOG)) if disk.exists(self.path(LOG)) else 0
        self.next_offset = base_offset
        self.is_active = False
        self.first_timestamp = NO_TIMESTAMP
        self.opened_ms = disk.modified_ms(self.path(LOG)) if self.size else NO_TIMESTAMP
        self._max_timestamp: tuple[int, int] | None = None
        self.newest_batch: tuple[int, int] | None = None if self.size else (NO_RECORD, base_offset)
        """The largest timestamp of records, not of markers, and the last offset of the first batch with it. None: not
        known; a search by time notes it."""
        self._file: File | None = None
        self.is_deleted = False
        self._bytes_since_index = 0

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{file_name(self.base_offset, suffix)}"

    @property
    def file(self) -> File:
        """The log file, opened when first needed."""
        if self._file is None:
            assert not self.is_deleted, f"{self.path(LOG)} is deleted"
            self._file = self.disk.open(self.path(LOG))
        return self._file

    @property
    def max_timestamp(self) -> int:
        return self._largest()[0]

    @property
    def modified_ms(self) -> int:
        """When the log file last changed (`Disk.modified_ms`)."""
        return self.disk.modified_ms(self.path(LOG))

    @property
    def newest_ms(self) -> int:
        """The largest timestamp; without dated records, when the log file last changed, as in Kafka."""
        return self.max_timestamp if self.max_timestamp >= 0 else self.modified_ms

    @property
    def oldest_ms(self) -> int:
        """The time that segment.ms and max.compaction.lag.ms are measured from; -1 without batches."""
        return self.first_timestamp if self.first_timestamp >= 0 else self.opened_ms

    def _largest(self) -> tuple[int, int]:
        """The largest timestamp, and the last offset of the first batch with it; (-1, base offset) without one."""
        if self._max_timestamp is None:
            last = self.time_index.last()
            self._max_timestamp = (
                (NO_TIMESTAMP, self.base_offset) if last is None else (last[0], self.base_offset + last[1])
            )
        return self._max_timestamp

    # Writing

    def activate(self, *, reset_indexes: bool = False) -> None:
        """Open for appending."""
        self.is_active = True
        if reset_indexes:
            self.index.reset()
            self.time_index.reset()
        else:
            self.index.activate(lambda entry: entry[1] < self.size)
            self.time_index.activate()
        self._bytes_since_index = 0

    def append(self, *chunks: Buffer) -> int:
        """Write one batch and return its position. The caller calls `note` next."""
        position = self.file.append(*chunks)
        assert position == self.size, f"{self.path(LOG)} has {position} bytes, its segment counts {self.size}"
        return position

    def note(self, position: int, header: BatchHeader, last_offset: int, index_interval_bytes: int) -> None:
        """Update size, offsets, timestamps and indexes for a batch at `position` that ends with `last_offset`."""
        size, timestamp = header.batch_length + PREFIX_BYTES, max(header.max_timestamp, NO_TIMESTAMP)
        newest = self.newest_batch
        if newest is not None and timestamp > newest[0] and not header.is_control and header.record_count:
            self.newest_batch = (timestamp, last_offset)
        largest = self._max_timestamp
        if largest is None or timestamp > largest[0]:
            self._max_timestamp = largest = (timestamp, last_offset)
        if position == 0:
            self.first_timestamp = timestamp
        if self._bytes_since_index > index_interval_bytes:
            self.index.append(last_offset, position)
            self.time_index.append(*largest)
            self._bytes_since_index = 0
        self._bytes_since_index += size
        self.size = position + size
        self.next_offset = last_offset + 1

    def is_full(self, size: int, last_offset: int, timestamp: int, config: LogConfig, now_ms: int) -> bool:
        """Whether a batch of `size` bytes ending at `last_offset` must open a new segment."""
        if self.size == 0:
            return False
        age_ms = timestamp - self.first_timestamp if self.first_timestamp >= 0 else now_ms - self.opened_ms
        return (
            self.size + size > config.segment_bytes
            or last_offset - self.base_offset > RELATIVE_OFFSET_MAX
            or self.index.size + 8 > config.segment_index_bytes
            or self.time_index.size + 12 > config.segment_index_bytes
            or age_ms > config.segment_ms
        )

    def flush_indexes(self) -> None:
        """Write the index entries that are only in memory, without a sync."""
        self.index.flush()
        self.time_index.flush()

    def sync_indexes(self) -> None:
        """As `flush_indexes`, durably; also syncs the transaction index."""
        self.index.sync()
        self.time_index.sync()
        self.aborted.sync_now()

    def seal(self) -> None:
        """End appending. The time index gets the largest timestamp, so that it covers the whole segment."""
        largest = self._largest()
        if largest[0] >= 0:
            self.time_index.append(*largest)
        self.index.seal()
        self.time_index.seal()
        self.aborted.sync_later()
        self.is_active = False

    def truncate(self, position: int, next_offset: int, *, durable: bool = True) -> None:
        """Truncate the active segment at a batch boundary, durably or as a debt (`disk.Disk`)."""
        assert self.is_active
        self.index.truncate(position=position)
        self.time_index.truncate(offset=next_offset)
        self.aborted.truncate(next_offset)
        self.file.truncate(position, durable=durable)
        if not durable:
            self.disk.sync_later(self.path(LOG))
        self.size = position
        self.next_offset = next_offset
        self._find_timestamps(position)

    def rewind(self, position: int, offset: int, *, is_clean: bool = False) -> None:
        """Remove what indexes and timestamps hold of the batches from `position` on, which has `offset`.

        Recovery calls `note` for these batches again. `is_clean`: after a clean shutdown, whose time index has the
        largest timestamp before `position`.
        """
        assert self.is_active
        self.index.truncate(position=position + 1)
        self.time_index.truncate(offset=offset)
        self._bytes_since_index = 0
        self._find_timestamps(position, is_clean=is_clean)

    def _find_timestamps(self, end: int, *, is_clean: bool = False) -> None:
        """Set the first and the largest timestamp of the batches before position `end`.

        A power loss may have taken entries of the time index, so the batches after its last one are looked at. After a
        clean shutdown this would read the whole segment where timestamps do not grow, and find nothing.
        """
        last = self.time_index.last()
        timestamp, offset = (last[0], self.base_offset + last[1]) if last else (NO_TIMESTAMP, self.base_offset)
        for position, header in self.headers(self.start_for(offset) if last else 0):
            if position >= end or (is_clean and last is not None):
                break
            if header.max_timestamp > timestamp:
                timestamp, offset = header.max_timestamp, header.last_offset
        self._max_timestamp = (timestamp, offset) if end > 0 else None
        self.newest_batch = None if end > 0 else (NO_RECORD, self.base_offset)
        first = next(self.headers(0), None) if end > 0 else None
        self.first_timestamp = first[1].max_timestamp if first is not None else NO_TIMESTAMP

    def close(self) -> None:
        self.aborted.close()
        if self._file is not None:
            self._file.close()
            self._file = None

    def delete(self) -> None:
        """Delete the files. Each is renamed to `.deleted` first; recovery removes files of that name."""
        self.close()
        self.is_deleted = True
        for suffix in SUFFIXES:
            path = self.path(suffix)
            if self.disk.exists(path):
                self.disk.rename(path, path + DELETED)
                self.disk.remove_later(path + DELETED)

    # Reading

    def position_of(self, offset: int) -> int:
        """The position of the batch with `offset`, or of the first one after it; the segment's size without one.

        Raises CorruptLog if the file is damaged there. A damaged index only makes the search slower: its entries are
        checked against the batches.
        """
        position = self.index.position_of(offset)
        if position > 0:
            with suppress(CorruptLog):
                return self._position_of(offset, position)
        return self._position_of(offset, 0)

    def start_for(self, offset: int) -> int:
        """The nearest known batch boundary at or before the batch with `offset`; 0 if the index is wrong there."""
        position = self.index.position_of(offset)
        if 0 < position <= self.size - HEADER_BYTES:
            header = BatchHeader(*HEADER.unpack(self.file.pread(HEADER_BYTES, position)))
            if header.magic == MAGIC and self.base_offset <= header.base_offset <= offset:
                return position
        return 0

    def _position_of(self, offset: int, position: int) -> int:
        """As `position_of`, by a scan of headers from `position` on."""
        floor = self.base_offset
        is_indexed = position > 0
        if is_indexed and position >= self.size:
            raise self._wrong_index(position)
        while position < self.size:
            window = self.file.pread(_HOP_BYTES, position)
            at = 0
            while at + HEADER_BYTES <= len(window):
                header = HEADER.unpack_from(window, at)
                step = self._step(header, position + at, floor)
                if is_indexed and header[0] > offset:
                    raise self._wrong_index(position)
                floor = header[0] + header[6] + 1
                if floor > offset:
                    return position + at
                is_indexed = False
                at += step
            position += at or self._step(None, position, floor)
        return self.size

    def boundary(self, start: int, limit: int, *, up_to: int, at_least_one: bool) -> tuple[int, int]:
        """(position, offset) where a read from the batch boundary `start` ends.

        The last boundary at or before position `limit` with only offsets below `up_to` before it. With
        `at_least_one`, the first batch is included even if it ends after `limit`, but not if it reaches `up_to`. The
        offset is that of the batch at the boundary, or the next offset of the batch before it; `up_to` if no header
        was read. The read ends before damaged bytes; raises CorruptLog if they are at `start`.
        """
        try:
            return self._boundary(start, limit, up_to, at_least_one)
        except CorruptLog:
            sound = self._sound_until(start, limit, up_to)
            if sound is None:
                raise
            return sound

    def _boundary(self, start: int, limit: int, up_to: int, at_least_one: bool) -> tuple[int, int]:
        position = max(start, self.index.boundary_before(limit, up_to=up_to))
        offset = up_to
        floor = self.base_offset
        is_indexed = position > start
        if position > self.size:
            raise self._wrong_index(position)
        while position < self.size:
            window = self.file.pread(_HOP_BYTES, position)
            at = 0
            while at + HEADER_BYTES <= len(window):
                header = HEADER.unpack_from(window, at)
                step = self._step(header, position + at, floor)
                if is_indexed and header[0] > up_to:
                    raise self._wrong_index(position)
                is_indexed = False
                after = position + at + step
                next_offset = floor = header[0] + header[6] + 1
                first = at_least_one and position + at == start
                if next_offset > up_to or (after > limit and not first):
                    return position + at, header[0]
                at += step
                offset = next_offset
            position += at or self._step(None, position, floor)
        return position, offset

    def _sound_until(self, start: int, limit: int, up_to: int) -> tuple[int, int] | None:
        """As `boundary`, without the index, up to the first damaged batch; None if that is the first one."""
        position, floor, found = start, self.base_offset, None
        while position + HEADER_BYTES <= self.size:
            header = HEADER.unpack(self.file.pread(HEADER_BYTES, position))
            try:
                step = self._step(header, position, floor)
            except CorruptLog:
                return found
            floor = header[0] + header[6] + 1
            if floor > up_to or (found is not None and position + step > limit):
                return found
            position += step
            found = position, floor
        return found

    def _step(self, header: tuple[int, ...] | None, position: int, floor: int) -> int:
        """The size of the batch at `position`.

        Raises CorruptLog unless a complete batch is there, with offsets between `floor` and the end of the segment:
        the CRC does not cover the base offset.
        """
        size = header[1] + 12 if header is not None else 0
        if header is None or size < HEADER_BYTES or position + size > self.size:
            raise CorruptLog(self.path(LOG), position, "no record batch starts here; restore the file from a copy")
        if not floor <= header[0] <= header[0] + header[6] < self.next_offset:
            raise CorruptLog(
                self.path(LOG),
                position,
                f"a batch has offsets {header[0]} to {header[0] + header[6]}, but {floor} to "
                f"{self.next_offset - 1} are expected; restore the file from a copy",
            )
        return size

    def _wrong_index(self, position: int) -> CorruptLog:
        return CorruptLog(
            self.path(INDEX), position, "an entry points after its batch; move the file away, and it is rebuilt"
        )

    def headers(self, start: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of the batches from the boundary `start` on; as `scan`, but records are not read."""
        while start + HEADER_BYTES <= self.size:
            window = self.file.pread(min(_HOP_BYTES, self.size - start), start)
            at = 0
            while at + HEADER_BYTES <= len(window):
                header = BatchHeader(*HEADER.unpack_from(window, at))
                size = header.batch_length + 12
                if size < HEADER_BYTES or header.magic != MAGIC or start + at + size > self.size:
                    return
                yield start + at, header
                at += size
            if at == 0:
                return
            start += at

    def scan(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Yield (position, header, bytes) of the batches from the boundary `start` on, read in growing windows.

        Ends at `end` (default: the size), or before bytes that are not a complete batch. CRCs are not checked.
        """
        limit = self.size if end is None else end
        window = SCAN_FIRST_BYTES
        while start + HEADER_BYTES <= limit:
            view = memoryview(self.file.pread(min(window, limit - start), start))
            at = 0
            wanted = 0
            while at + HEADER_BYTES <= len(view):
                header = BatchHeader(*HEADER.unpack_from(view, at))
                size = header.batch_length + 12
                if size < HEADER_BYTES or header.magic != MAGIC or start + at + size > limit:
                    return
                if at + size > len(view):
                    wanted = size
                    break
                yield start + at, header, view[at : at + size]
                at += size
            if at == 0 and wanted == 0:
                return
            start += at
            window = max(min(window * SCAN_GROWTH, SCAN_WINDOW_BYTES), wanted)
