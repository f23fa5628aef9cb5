"""Opening a log: nothing to do after a clean close, a short scan after a crash.

Below the recovery point everything is known to be durable and is not looked at. From there on every batch is checked
(length, magic, ascending offsets, CRC-32C), indexes are rebuilt, and the producers' state is replayed on top of the
newest snapshot at or below the recovery point.

What does not check out is one of three things:

* a **torn tail**: no valid batch follows. A write that never finished; cut.
* a **lost write**: valid batches follow, but a sector of the damaged place holds only zeros, or a segment ends within
  a batch or before its successor begins. A power loss may drop any subset of what was not yet synced, and nothing after
  the last sync was acknowledged as durable; cut, with all that follows, so that no producer finds a hole in its
  sequences.
* **corruption**: valid batches follow and the damage is no lost write, or the log ends below its recovery point.
  Acknowledged data may be at stake, so the log is not opened: `CorruptLog` names the file and the byte.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

import msgspec
from semel_protocol.batch import HEADER_BYTES, PREFIX_BYTES, BatchHeader, crc_of, crc_ok, read_header
from semel_protocol.errors import KafkaError

from semel_storage import checkpoints
from semel_storage.compaction_swap import recover_swaps
from semel_storage.disk import Buffer, Disk, Event, ignore_event
from semel_storage.epochs import EpochHistory
from semel_storage.log_config import LogConfig
from semel_storage.producer_table import ProducerTable
from semel_storage.segment import DELETED, LOG, SUFFIXES, CorruptLog, Segment, offset_of
from semel_storage.snapshot import Snapshots

__all__ = ["CorruptLog", "Recovered", "producers_at", "recover"]

SECTOR_BYTES = 512
SEARCH_WINDOW_BYTES = 4 << 20
TEMPORARY = ".tmp"


class Recovered(msgspec.Struct):
    """All that a log knows when it opens."""

    segments: list[Segment]
    start_offset: int
    end_offset: int
    recovery_point: int
    epochs: EpochHistory
    producers: ProducerTable
    snapshots: Snapshots
    replayed_bytes: int
    """What lay above the recovery point and would be scanned again."""


def recover(
    disk: Disk,
    directory: str,
    config: LogConfig,
    *,
    now_ms: int,
    recovery_point: int | None,
    start_offset: int,
    clean: bool,
    allow_data_loss: bool = False,
    event: Event = ignore_event,
) -> Recovered:
    """Open what is there, or create an empty log at `start_offset`; see `Log.open`. Raises CorruptLog."""
    disk.mkdir(directory)
    recover_swaps(disk, directory)
    names = _without_leftovers(disk, directory)
    bases = sorted(offset_of(name) for name in names if name.endswith(LOG))
    for name in names:
        if name.endswith(SUFFIXES) and offset_of(name) not in bases:
            disk.remove(f"{directory}/{name}")
    segments = [Segment(disk, directory, base) for base in bases]
    epochs = EpochHistory(checkpoints.read_epochs(disk, f"{directory}/{checkpoints.LEADER_EPOCH}"))
    if not segments:
        segments = [_create(disk, directory, max(start_offset, recovery_point or 0))]
    scan = _Scan(
        disk=disk,
        segments=segments,
        epochs=epochs,
        snapshots=Snapshots(disk, directory),
        is_known=recovery_point is not None and not config.is_compacted,
        floor=max(recovery_point or 0, segments[0].base_offset),
        verify=not clean,
        allow_data_loss=allow_data_loss,
        event=event,
        now_ms=now_ms,
        index_interval_bytes=config.index_interval_bytes,
    )
    end_offset = scan.run()
    start_offset = min(max(start_offset, segments[0].base_offset), end_offset)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(start_offset)
    return Recovered(
        segments=segments,
        start_offset=start_offset,
        end_offset=end_offset,
        recovery_point=min(scan.floor, end_offset),
        epochs=epochs,
        producers=scan.producers,
        snapshots=scan.snapshots,
        replayed_bytes=scan.replayed_bytes,
    )


def producers_at(
    segments: list[Segment],
    snapshots: Snapshots,
    offset: int,
    *,
    now_ms: int,
    event: Event = ignore_event,
    decided: Sequence[tuple[int, int]] = (),
) -> ProducerTable:
    """The producers as of `offset`, a batch boundary: the newest snapshot before it, and the batches since.

    `decided`: transactions whose markers, where they lie below `offset`, may not be committed (`Transactions`).
    """
    since, states = snapshots.load_newest(offset, now_ms=now_ms, event=event) or (segments[0].base_offset, {})
    table = ProducerTable(states.values(), [place for place in decided if place[0] < since])
    for segment in segments:
        if segment.next_offset <= since or segment.base_offset >= offset or since >= offset:
            continue
        position = segment.index.position_of(since)
        for at, header, batch in segment.scan(position):
            if header.base_offset >= offset:
                break
            if header.producer_id >= 0 and header.base_offset >= since:
                table.note(header, header.base_offset, batch, now_ms)
            position = at + header.size
        else:
            if position < segment.size and segment is not segments[-1]:
                raise CorruptLog(
                    segment.path(LOG), position, "no record batch starts here; restore the file from a copy"
                )
    return table


def _without_leftovers(disk: Disk, directory: str) -> list[str]:
    """The names in the directory, after removing what an interrupted deletion or atomic write left."""
    kept = []
    for name in disk.listdir(directory):
        if name.endswith((DELETED, TEMPORARY)):
            disk.remove(f"{directory}/{name}")
        else:
            kept.append(name)
    return kept


def _create(disk: Disk, directory: str, base_offset: int) -> Segment:
    segment = Segment(disk, directory, base_offset)
    assert segment.file.size() == 0
    disk.sync_dir(directory)
    return segment


class _Scan(msgspec.Struct, kw_only=True):
    """One pass over the end of a log. `floor`: the recovery point, as far as the log reaches down.

    `is_known`: segments above the floor must follow each other without a gap (compaction, which makes gaps, works
    below the recovery point only; a log that came without one may have them anywhere).
    """

    disk: Disk
    segments: list[Segment]
    epochs: EpochHistory
    snapshots: Snapshots
    is_known: bool
    floor: int
    verify: bool
    allow_data_loss: bool
    event: Event
    now_ms: int
    index_interval_bytes: int
    producers: ProducerTable = msgspec.field(default_factory=ProducerTable)
    replayed_bytes: int = 0

    def run(self) -> int:
        """Scan; leaves the last segment active. Returns the end offset."""
        segments = self.segments
        for segment, after in pairwise(segments):
            segment.next_offset = after.base_offset
        at = max(0, bisect_right(segments, self.floor, key=lambda segment: segment.base_offset) - 1)
        if self.verify:
            for segment in segments[:at]:
                self._check_indexes(segment)
        start = self._open_for_scan(segments[at])
        segments[at].next_offset = max(segments[at].next_offset, self.floor)
        self.snapshots.remove_above(self.floor)
        self.producers = producers_at(
            segments[: at + 1], self.snapshots, self.floor, now_ms=self.now_ms, event=self.event
        )
        end_offset = segments[at].base_offset
        while at < len(segments):
            segment = segments[at]
            if self._is_gap(at, end_offset):
                previous = segments[at - 1]
                self._cut(at - 1, previous.size, end_offset, "the segment ends before its successor begins")
                break
            if not segment.is_active:
                start = self._open_for_scan(segment)
            end_offset, stopped = self._scan_segment(segment, start, max(end_offset, segment.base_offset))
            if self.verify and end_offset > self.floor:
                segment.file.sync_now()  # a killed process leaves bytes that only the kernel has
                self.replayed_bytes += stopped - start
            if stopped < segment.size:
                self._judge(at, stopped, end_offset)
                self._cut(at, stopped, end_offset, "the write was not finished")
                break
            at += 1
            if at < len(segments):
                segment.seal()
                keep = [self.floor, *(other.base_offset for other in segments)]
                self.snapshots.write(segments[at].base_offset, self.producers.all(), keep=keep)
        if end_offset < self.floor and not self.allow_data_loss:
            last = segments[-1]
            raise CorruptLog(
                last.path(LOG),
                last.size,
                f"the log ends at offset {end_offset}, was durable up to {self.floor}; restore the file from a copy",
            )
        segments[-1].next_offset = end_offset
        self.snapshots.remove_above(end_offset)
        return end_offset

    def _scan_segment(self, segment: Segment, start: int, expected: int) -> tuple[int, int]:
        """Walk to the segment's end, verifying above the floor. Returns (next offset, where it stopped)."""
        stopped, size = start, segment.size
        for position, header, batch in segment.scan(start, size):
            base_offset = header.base_offset
            if base_offset < expected or header.last_offset_delta < 0:
                break
            if header.next_offset > self.floor:
                if self.verify and not crc_ok(batch, header):
                    break
                self._replay(header, batch)
            expected = header.next_offset
            stopped = position + header.size
            segment.note(position, header.size, header.last_offset, header.max_timestamp, self.index_interval_bytes)
        segment.size = size
        return expected, stopped

    def _replay(self, header: BatchHeader, batch: Buffer) -> None:
        if header.partition_leader_epoch > self.epochs.latest:
            self.epochs.assign(header.partition_leader_epoch, header.base_offset)
        if header.producer_id >= 0:
            self.producers.note(header, header.base_offset, batch, self.now_ms)

    def _open_for_scan(self, segment: Segment) -> int:
        """Open the segment for appending, its indexes cut to where the scan starts. Returns that position."""
        segment.activate(reset_indexes=segment.base_offset >= self.floor or segment.time_index.count == 0)
        start = segment.index.position_of(self.floor - 1)  # a batch that is durable whole
        if start == 0:
            segment.rewind(0, segment.base_offset)
            return 0
        first = next(segment.scan(start), None)
        if first is None or first[1].last_offset >= self.floor:  # the index tells lies
            segment.activate(reset_indexes=True)
            return 0
        segment.rewind(start, first[1].base_offset)
        return start

    def _check_indexes(self, segment: Segment) -> None:
        """Below the recovery point only the indexes can be at fault: they are not synced with the log."""
        if segment.size and not self._indexes_hold(segment):
            self.event("index_rebuilt", file=segment.path(LOG))
            segment.activate(reset_indexes=True)
            size, next_offset = segment.size, segment.next_offset
            for position, header, _ in segment.scan(0, size):
                segment.note(position, header.size, header.last_offset, header.max_timestamp, self.index_interval_bytes)
            segment.size, segment.next_offset = size, next_offset
            segment.seal()
        segment.close()

    def _indexes_hold(self, segment: Segment) -> bool:
        """Whether the newest entries are there, point at batches, and reach near enough to the segment's end."""
        if segment.time_index.count == 0:
            return False
        last = segment.index.last()
        position = last[1] if last is not None else 0
        first = next(segment.scan(position), None)
        if first is None or (last is not None and first[1].last_offset != segment.base_offset + last[0]):
            return False
        since = 0
        for _, header, _ in segment.scan(position):
            if since > self.index_interval_bytes:
                return False
            since += header.size
        timestamp, relative = segment.time_index.last() or (-1, 0)
        at = segment.position_of(segment.base_offset + relative) if relative >= 0 else segment.size
        latest = next(segment.scan(at), None)
        return latest is not None and latest[1].max_timestamp == timestamp

    # Damage

    def _is_gap(self, at: int, end_offset: int) -> bool:
        base_offset = self.segments[at].base_offset
        return self.verify and self.is_known and at > 0 and base_offset > end_offset and base_offset > self.floor

    def _judge(self, at: int, position: int, end_offset: int) -> None:
        """Return if what starts at `position` of segment `at` may be cut; raise CorruptLog otherwise."""
        segment = self.segments[at]
        if self.allow_data_loss:
            return
        if end_offset < self.floor:
            raise CorruptLog(
                segment.path(LOG),
                position,
                f"damaged at offset {end_offset}, below the recovery point {self.floor}, where all was durable; "
                "restore the file from a copy",
            )
        follows = self._next_valid(segment, position, end_offset)
        if follows is None and not any(self._starts_valid(later) for later in self.segments[at + 1 :]):
            return
        if follows is None and self._is_cut_short(segment, position):
            return
        if self._is_lost_write(segment, position, segment.size if follows is None else follows, end_offset):
            return
        raise CorruptLog(
            segment.path(LOG),
            position,
            f"damaged at offset {end_offset}, and valid batches follow, so that cutting here could lose acknowledged "
            "records; restore the file from a copy, or allow data loss for this start",
        )

    def _starts_valid(self, segment: Segment) -> bool:
        return any(crc_ok(batch, header) for _, header, batch in segment.scan(0))

    def _next_valid(self, segment: Segment, position: int, end_offset: int) -> int | None:
        """Where a batch with a good CRC and an offset above `end_offset` starts after `position`, if one does."""
        prefix = end_offset >> 24
        likely = b"|".join(re.escape(top.to_bytes(5, "big")) for top in (prefix, prefix + 1))
        pattern = re.compile(b"(?=(?:" + likely + rb").{11}\x02)", re.DOTALL)
        at = position + 1
        while at + HEADER_BYTES <= segment.size:
            window = segment.file.pread(SEARCH_WINDOW_BYTES, at)
            for match in pattern.finditer(window):
                if self._is_valid(segment, at + match.start(), end_offset):
                    return at + match.start()
            at += max(1, len(window) - HEADER_BYTES)
        return None

    def _is_valid(self, segment: Segment, position: int, end_offset: int) -> bool:
        try:
            header = read_header(segment.file.pread(HEADER_BYTES, position))
        except KafkaError:
            return False
        if header.base_offset < end_offset or position + header.size > segment.size:
            return False
        return crc_ok(segment.file.pread(header.size, position), header)

    def _is_cut_short(self, segment: Segment, position: int) -> bool:
        """Whether the file ends within the batch at `position`; not so if all of it is there but for its length."""
        rest = segment.file.pread(segment.size - position, position)
        if len(rest) < HEADER_BYTES:
            return True
        try:
            header = read_header(rest)
        except KafkaError:
            return False
        return header.size > len(rest) and crc_of(rest, len(rest)) != header.crc

    def _is_lost_write(self, segment: Segment, position: int, end: int, end_offset: int) -> bool:
        """Whether a sector of what lies between `position` and `end` reads as one that never reached the disk.

        Of the first sector only the part from `position` on, as what stood before it had been written earlier. Zeros
        there tell something when a batch that starts at `end_offset` could not have them. The last sector counts if
        it is whole or ends the file; otherwise it holds the beginning of a valid batch, so that it was written.
        """
        after = min(end, (position // SECTOR_BYTES + 1) * SECTOR_BYTES)
        part = after - position
        cannot_be_zero = part >= PREFIX_BYTES or any(end_offset.to_bytes(8, "big")[:part])
        if cannot_be_zero and not any(segment.file.pread(part, position)):
            return True
        last = end if end == segment.size else end - SECTOR_BYTES
        while after <= last:
            sector = segment.file.pread(min(SECTOR_BYTES, end - after), after)
            if len(sector) > 1 and not any(sector):  # a batch may well end with one zero: no headers
                return True
            after += SECTOR_BYTES
        return False

    def _cut(self, at: int, position: int, end_offset: int, reason: str) -> None:
        """End the log at `position` of segment `at`."""
        segment = self.segments[at]
        later = self.segments[at + 1 :]
        self.event(
            "log_tail_cut",
            file=segment.path(LOG),
            position=position,
            end_offset=end_offset,
            bytes_cut=segment.size - position + sum(other.size for other in later),
            reason=reason,
        )
        for other in reversed(later):
            other.delete()
        del self.segments[at + 1 :]
        if not segment.is_active:
            segment.activate()
        segment.truncate(position, end_offset)
        self.disk.sync_dir(segment.directory)
