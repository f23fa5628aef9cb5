"""Recovers a log when it opens: scans it from the recovery point on, unless it was closed cleanly.

Everything below the recovery point is durable and its records are not read. From there on every batch is checked
(length, magic, ascending offsets, CRC-32C), indexes are rebuilt, and producer state is replayed on top of the newest
snapshot at or below the recovery point. `damage` decides about invalid bytes: they are truncated, or the log does not
open.

With a transaction index that has lost entries, readers would see aborted records. The number and the checksum of its
entries must match the snapshot at the end of its segment; otherwise, or without that snapshot, it is rebuilt.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec
from semel_protocol.batch import BatchHeader, CorruptBatch, crc_ok

from semel_storage import checkpoints
from semel_storage.disk.disk import Buffer, Disk, EventCallback, ignore_event
from semel_storage.log.snapshot import Snapshots
from semel_storage.producers.producer_table import ProducerTable
from semel_storage.producers.transactions import AbortedTransaction
from semel_storage.segments import damage, sealed
from semel_storage.segments.compaction_swap import SWAP, recover_swaps
from semel_storage.segments.epoch_check import checked
from semel_storage.segments.epochs import EpochHistory
from semel_storage.segments.index import RELATIVE_OFFSET_MAX
from semel_storage.segments.log_config import LogConfig
from semel_storage.segments.segment import DELETED, LOG, CorruptLog, Segment, file_name, offset_of

__all__ = ["CorruptLog", "Recovered", "producers_at", "recover"]

TEMPORARY = ".tmp"
OWN_NAME = re.compile(r"\d{20}\.(log|index|timeindex|txnindex)")


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that the owner of a log knows when it opens it."""

    now_ms: int
    recovery_point: int | None = None
    """From the checkpoint file of the data directory; None: it has no entry."""
    start_offset: int = 0
    """As `recovery_point`."""
    clean: bool = False
    """The last owner closed the log."""
    is_synced: bool = False
    """All that the last owner left is durable."""
    settles_later: bool = False
    """Recovery does not wait for the disk: see `Log.is_settled`."""
    allow_data_loss: bool = False
    is_own: bool = False
    """semel made the log. Its offsets have no gaps but those that the file CLEANER_OFFSET tells of, also without an
    entry there.
    """
    event: EventCallback = ignore_event


class Recovered(msgspec.Struct):
    """The state of a log after recovery."""

    segments: list[Segment]
    start_offset: int
    end_offset: int
    recovery_point: int
    epochs: EpochHistory
    producers: ProducerTable
    snapshots: Snapshots
    replayed_bytes: int
    """Bytes above the recovery point, which the next recovery would scan again."""
    is_settled: bool
    """Whether all that was changed is durable. If not, it is a debt of the directory (`recover`, `settles_later`)."""


def recover(disk: Disk, directory: str, config: LogConfig, opening: Opening) -> Recovered:
    """Recover the existing log, or create an empty one at `start_offset`; see `Log.open`. Raises CorruptLog.

    Two interrupted changes are finished step by step, and block in any case: see `is_interrupted`.
    """
    start_offset, recovery_point = opening.start_offset, opening.recovery_point or 0
    disk.mkdir(directory)
    recover_swaps(disk, directory)
    names = [name for name in _without_leftovers(disk, directory) if OWN_NAME.fullmatch(name)]
    names = finish_deletion(disk, directory, names, start_offset, now_ms=opening.now_ms)
    bases = sorted(offset_of(name) for name in names if name.endswith(LOG))
    if not bases and recovery_point > start_offset and not opening.allow_data_loss:
        raise CorruptLog(directory, 0, f"no segment is left of records durable up to {recovery_point}; restore them")
    gone = [name for name in names if offset_of(name) not in bases]
    _remove_indexes_without_log(disk, directory, gone, opening.event)
    segments: list[Segment] = []
    try:
        segments.extend(Segment(disk, directory, base) for base in bases)
        return _recovered(disk, directory, config, segments, opening)
    except BaseException:
        for segment in segments:
            segment.close()
        raise


def _recovered(disk: Disk, directory: str, config: LogConfig, segments: list[Segment], opening: Opening) -> Recovered:
    """Scan the open `segments`, which the caller closes if this raises."""
    recovery_point = opening.recovery_point or 0
    epochs = EpochHistory(checkpoints.read_epochs(disk, f"{directory}/{checkpoints.LEADER_EPOCH}"))
    if not segments:
        segments.append(_create(disk, directory, max(opening.start_offset, recovery_point)))
    elif not opening.clean and not opening.is_synced and recovery_point <= segments[-1].base_offset:
        disk.sync_dir_later(directory)  # a process killed while it created a segment leaves a name that is not durable
    is_known = opening.is_own or opening.recovery_point is not None  # else another program may have left gaps
    scan = _Scan(
        disk=disk,
        segments=segments,
        epochs=epochs,
        snapshots=Snapshots(disk, directory),
        is_dense=is_known and not config.is_compacted and not _has_gaps(disk, directory),
        floor=max(recovery_point, segments[0].base_offset),
        opening=opening,
        index_interval_bytes=config.index_interval_bytes,
    )
    end_offset = scan.run()
    start_offset = min(max(opening.start_offset, segments[0].base_offset), end_offset)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(start_offset)
    epochs = checked(epochs, segments, start_offset, f"{directory}/{checkpoints.LEADER_EPOCH}", opening.event)
    return Recovered(
        segments=segments,
        start_offset=start_offset,
        end_offset=end_offset,
        recovery_point=min(scan.floor, end_offset),
        epochs=epochs,
        producers=scan.producers,
        snapshots=scan.snapshots,
        replayed_bytes=scan.replayed_bytes,
        is_settled=scan.is_settled,
    )


def producers_at(
    segments: list[Segment],
    snapshots: Snapshots,
    offset: int,
    *,
    now_ms: int,
    event: EventCallback = ignore_event,
    decided: Sequence[tuple[int, int]] = (),
) -> ProducerTable:
    """The producers as of `offset`, a batch boundary: from the newest snapshot before it and the batches after that.

    `decided`: transactions whose markers below `offset` may be above the high watermark (see `Transactions`).
    """
    since, states = snapshots.load_newest(offset, now_ms=now_ms, event=event) or (segments[0].base_offset, {})
    table = ProducerTable(states.values(), [place for place in decided if place[0] < since])
    for segment in segments:
        if segment.next_offset <= since or segment.base_offset >= offset or since >= offset:
            continue
        for at, header, batch in _below(segment, offset, segment.start_for(since), is_last=segment is segments[-1]):
            if header.producer_id >= 0 and header.base_offset >= since:
                _note(table, segment, at, header, batch, now_ms)
    return table


def _below(
    segment: Segment, offset: int, start: int = 0, *, is_last: bool
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield (position, header, bytes) of the batches below `offset`, from position `start` on; CRCs are not checked.

    Bytes after them may never have been durable and are ignored. Raises CorruptLog for invalid bytes before `offset`;
    in the last segment the iteration ends there instead, and recovery decides about them.
    """
    expected, position = segment.base_offset, start
    for at, header, batch in segment.scan(start):
        if expected >= offset or header.base_offset >= offset:
            return
        if header.base_offset < expected:
            break
        yield at, header, batch
        expected, position = header.next_offset, at + header.size
    if position < segment.size and expected < offset and not is_last:
        raise CorruptLog(segment.path(LOG), position, "no record batch starts here; restore the file from a copy")


def _note(
    table: ProducerTable, segment: Segment, position: int, header: BatchHeader, batch: Buffer, now_ms: int
) -> AbortedTransaction | None:
    """As `ProducerTable.note`, but raises CorruptLog for an unreadable marker: below the recovery point no CRC is
    checked."""
    try:
        return table.note(header, header.base_offset, batch, now_ms)
    except CorruptBatch as error:
        raise CorruptLog(segment.path(LOG), position, f"{error.message}; restore the file from a copy") from error


def is_interrupted(disk: Disk, directory: str, start_offset: int, *, clean: bool) -> bool:
    """Whether the replacement or the deletion of segments was interrupted, which `recover` has to finish in steps that
    are durable one by one. Raises OSError for a directory that cannot be read.
    """
    if clean and not start_offset:
        return False
    names = disk.listdir(directory)
    bases = sorted(offset_of(name) for name in names if name.endswith(LOG) and OWN_NAME.fullmatch(name))
    return bisect_right(bases, start_offset) > 1 or any(name.endswith(SWAP) for name in names)


def finish_deletion(disk: Disk, directory: str, names: list[str], start_offset: int, *, now_ms: int) -> list[str]:
    """Remove the segments below the start offset that an interrupted deletion left. Returns the remaining names.

    The remaining segments may not contain every producer, and their snapshots may not be durable. The snapshot at the
    new start of the log was made durable before the deletion began; without it, no segment has been deleted.
    """
    bases = sorted(offset_of(name) for name in names if name.endswith(LOG))
    at = bisect_right(bases, start_offset) - 1
    if at <= 0 or not Snapshots(disk, directory).secure(bases[at], now_ms=now_ms):
        return names
    for base in bases[:at]:
        Segment(disk, directory, base).delete()
    disk.sync_dir(directory)
    return [name for name in names if disk.exists(f"{directory}/{name}")]


def _without_leftovers(disk: Disk, directory: str) -> list[str]:
    """Remove the files of interrupted deletions and atomic writes. Returns the remaining names."""
    kept = []
    for name in disk.listdir(directory):
        if name.endswith((DELETED, TEMPORARY)):
            disk.remove(f"{directory}/{name}")
        else:
            kept.append(name)
    return kept


def _remove_indexes_without_log(disk: Disk, directory: str, names: Sequence[str], event: EventCallback) -> None:
    """Remove indexes without a log file. An interrupted deletion or the loss of the log file may leave them."""
    for base in sorted({offset_of(name): None for name in names}):
        event("log_damaged", file=f"{directory}/{file_name(base, LOG)}", position=0, reason="only its indexes exist")
    for name in names:
        disk.remove(f"{directory}/{name}")


def _has_gaps(disk: Disk, directory: str) -> bool:
    """Whether the log was compacted, on this broker or on the leader."""
    return disk.exists(f"{directory}/{checkpoints.CLEANER_OFFSET}")


def _create(disk: Disk, directory: str, base_offset: int) -> Segment:
    segment = Segment(disk, directory, base_offset)
    assert segment.file.size() == 0
    disk.sync_dir_later(directory)
    return segment


class _Scan(msgspec.Struct, kw_only=True):
    """One scan of the end of a log."""

    disk: Disk
    segments: list[Segment]
    epochs: EpochHistory
    snapshots: Snapshots
    is_dense: bool
    """Batches must follow each other without missing offsets. Offsets may be missing in a log that was compacted, on
    this broker or on the leader, and in a log of another program without a recovery point.
    """
    floor: int
    """The recovery point, at least the base offset of the first segment."""
    opening: Opening
    index_interval_bytes: int
    is_settled: bool = True
    """False after a change that is a debt (`Opening.settles_later`)."""
    producers: ProducerTable = msgspec.field(default_factory=ProducerTable)
    replayed_bytes: int = 0

    def run(self) -> int:
        """Scan the log; the last segment is active then. Returns the end offset."""
        segments = self.segments
        for segment, after in pairwise(segments):
            segment.next_offset = after.base_offset
        segments[-1].next_offset = max(segments[-1].base_offset, self.floor)  # until the scan has found its end
        at = max(0, bisect_right(segments, self.floor, key=lambda segment: segment.base_offset) - 1)
        for segment in segments[:at]:
            sealed.check_indexes(segment, index_interval_bytes=self.index_interval_bytes, event=self.opening.event)
            sealed.check_extent(segment, is_dense=self.is_dense, event=self.opening.event)
        closed_at = max(self.snapshots.offsets, default=0)
        self.snapshots.remove_above(self.floor)  # a power loss may have taken the batches that they tell of
        for segment in segments[: at + 1]:
            self._check_aborted(segment, min(segment.next_offset, self.floor))
        start = self._open_for_scan(segments[at])
        self.producers = producers_at(
            segments[: at + 1], self.snapshots, self.floor, now_ms=self.opening.now_ms, event=self.opening.event
        )
        end_offset = segments[at].base_offset
        while at < len(segments):
            segment = segments[at]
            if self._is_gap(at, end_offset):
                previous = segments[at - 1]
                self._cut(at - 1, previous.size, end_offset, "the segment ends before the next one starts")
                break
            if not segment.is_active:
                start = self._open_for_scan(segment)
                segment.aborted.clear()
            end_offset, stopped = self._scan_segment(segment, start, max(end_offset, segment.base_offset))
            if not self.opening.clean and end_offset > self.floor:
                if not self.opening.is_synced:
                    self._sync(segment)  # after a killed process, bytes may be in the page cache only
                self.replayed_bytes += stopped - start
            if stopped < segment.size:
                if not self.opening.allow_data_loss:
                    damage.judge(segments, at, stopped, end_offset, floor=self.floor)
                self._cut(at, stopped, end_offset, "the write is incomplete")
                break
            at += 1
            if at < len(segments):
                segment.seal()
                keep = [self.floor, *(other.base_offset for other in segments)]
                aborted = segment.aborted.sums
                self.snapshots.write(segments[at].base_offset, self.producers.all(), keep=keep, aborted=aborted)
        if end_offset < self.floor and not self.opening.allow_data_loss:
            last = segments[-1]
            raise CorruptLog(
                last.path(LOG),
                last.size,
                f"the log ends at offset {end_offset}, was durable up to {self.floor}; restore the file from a copy",
            )
        if self.opening.clean and end_offset < closed_at:
            self.opening.event(
                "log_damaged",
                file=segments[-1].path(LOG),
                position=segments[-1].size,
                reason=f"the log ends at offset {end_offset}, but was closed at {closed_at}",
            )
        segments[-1].next_offset = end_offset
        self.snapshots.remove_above(end_offset)
        return end_offset

    def _scan_segment(self, segment: Segment, start: int, expected: int) -> tuple[int, int]:
        """Scan to the end of the segment; check CRCs above the floor. Returns (next offset, end position)."""
        stopped, size = start, segment.size
        for position, header, batch in segment.scan(start, size):
            if not self._follows(segment, header, expected):
                break
            if header.next_offset > self.floor:
                if not self.opening.clean and not crc_ok(batch, header):
                    break
                self._replay(segment, position, header, batch)
            expected = header.next_offset
            stopped = position + header.size
            segment.note(position, header, header.last_offset, self.index_interval_bytes)
        segment.size = size
        return expected, stopped

    def _follows(self, segment: Segment, header: BatchHeader, expected: int) -> bool:
        """Whether the offsets of a batch, which no CRC covers, are valid after `expected`, the previous end offset."""
        if header.base_offset < expected or header.last_offset_delta < 0:
            return False
        if self.is_dense and not self.opening.clean and expected >= self.floor:
            return header.base_offset == expected
        return header.last_offset - segment.base_offset <= RELATIVE_OFFSET_MAX

    def _replay(self, segment: Segment, position: int, header: BatchHeader, batch: Buffer) -> None:
        if header.partition_leader_epoch > self.epochs.latest:
            self.epochs.assign(header.partition_leader_epoch, header.base_offset)
        if header.producer_id >= 0:
            aborted = _note(self.producers, segment, position, header, batch, self.opening.now_ms)
            if aborted is not None:
                segment.aborted.append(aborted)

    def _open_for_scan(self, segment: Segment) -> int:
        """Open the segment for appending and truncate its indexes to the start of the scan. Returns that position."""
        segment.activate(reset_indexes=segment.base_offset >= self.floor or segment.time_index.count == 0)
        start = segment.start_for(self.floor - 1)  # a batch that is completely durable
        if start == 0:
            segment.rewind(0, segment.base_offset)
            return 0
        first = next(segment.scan(start), None)
        if first is None or first[1].last_offset >= self.floor:  # the index is wrong
            segment.activate(reset_indexes=True)
            return 0
        segment.rewind(start, first[1].base_offset, is_clean=self.opening.clean)
        return start

    def _check_aborted(self, segment: Segment, up_to: int) -> None:
        """Make the transaction index of `segment` contain exactly the abort markers below `up_to`."""
        if segment.size > 0 and up_to > segment.base_offset:
            segment.aborted.truncate(up_to)
            if self.snapshots.aborted(up_to) != segment.aborted.sums:
                self._rebuild_aborted(segment, up_to)
        else:
            segment.aborted.clear()
        segment.aborted.close()

    def _rebuild_aborted(self, segment: Segment, up_to: int) -> None:
        """Rebuild the index from the log and write its count into the snapshot, for the next recovery.

        Compaction reduces the count, and a power loss may remove the snapshot; both lead here.
        """
        self.opening.event("index_rebuilt", file=segment.aborted.path)
        segment.aborted.clear()
        table = producers_at(self.segments, self.snapshots, segment.base_offset, now_ms=self.opening.now_ms)
        for position, header, batch in _below(segment, up_to, is_last=segment is self.segments[-1]):
            aborted = None
            if header.has_producer_id:
                aborted = _note(table, segment, position, header, batch, self.opening.now_ms)
            if aborted is not None:
                segment.aborted.append(aborted)
        if self.opening.settles_later:
            segment.aborted.sync_later()
            self.is_settled = False
        else:
            segment.aborted.sync_now()
        segment.close()
        found = self.snapshots.load_newest(up_to, now_ms=self.opening.now_ms, event=self.opening.event)
        states = found[1].values() if found is not None and found[0] == up_to else table.all()
        self.snapshots.write(up_to, states, keep=self.snapshots.offsets, aborted=segment.aborted.sums)

    # Damage

    def _is_gap(self, at: int, end_offset: int) -> bool:
        base_offset = self.segments[at].base_offset
        return (
            not self.opening.clean
            and self.is_dense
            and at > 0
            and base_offset > end_offset
            and base_offset > self.floor
        )

    def _cut(self, at: int, position: int, end_offset: int, reason: str) -> None:
        """Truncate the log at `position` of segment `at`."""
        segment = self.segments[at]
        later = self.segments[at + 1 :]
        self.opening.event(
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
        segment.truncate(position, end_offset, durable=not self.opening.settles_later)
        if self.opening.settles_later:
            self.disk.sync_dir_later(segment.directory)
            self.is_settled = False
        else:
            self.disk.sync_dir(segment.directory)

    def _sync(self, segment: Segment) -> None:
        if self.opening.settles_later:
            self.disk.sync_later(segment.path(LOG))
            self.is_settled = False
        else:
            segment.file.sync_now()
