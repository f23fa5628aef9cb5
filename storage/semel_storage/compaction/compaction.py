"""Log compaction: keeps the last record of every key, at its original offset.

One round reads the dirty part of a log (from the end of the last round on) into a map of key digests. Then it copies
the segments from the oldest on, without the records that the map outdates, several small ones into one, and swaps each
copy in. If the map is full before the dirty part ends, the round ends there, and the next one continues. Records at or
above the last stable offset or the recovery point, and the active segment, do not change. Memory: the map, one read
window, one batch.

The swap survives a crash at every step (`compaction_swap`). A log calls `recover_swaps` before it opens its files.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
from semel_protocol.batch import HEADER_BYTES, BatchHeader, CorruptBatch, read_header

from semel_storage.compaction.filter import (
    RECORD_COST_BYTES,
    ROWS_PER_STEP,
    Cleaning,
    OffsetMap,
    TransactionFates,
    cost,
    decode,
)
from semel_storage.compaction.pace import Pace, Pause
from semel_storage.log import recovery
from semel_storage.log.durability import Steps
from semel_storage.producers.producers import ProducerState
from semel_storage.segments.compaction_swap import (
    CLEANED,
    SwappedSegment,
    announced,
    completed,
    recover_swaps,
    withdrawn,
)
from semel_storage.segments.index import RELATIVE_OFFSET_MAX
from semel_storage.segments.log_config import INT64_MAX, LogConfig
from semel_storage.segments.segment import LOG, SUFFIXES, Segment

if TYPE_CHECKING:
    from semel_storage.log.log import Log

__all__ = ["Compacted", "CompactionAborted", "Dirtiness", "compact", "dirtiness", "recover_swaps"]


class CompactionAborted(Exception):  # noqa: N818 (named for what happened)
    """A segment under compaction was removed: by deletion, truncation or close of the log. Start a new round."""


EXPECTED_OFFSETS = 4096
"""The size in offsets of the range of each lookup of aborted transactions, to bound its memory."""


class Dirtiness(msgspec.Struct, frozen=True):
    """How much of a log can be compacted: clean bytes before the first dirty offset, dirty bytes from there on."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool
    """A dirty record is older than max.compaction.lag.ms; compaction is due at any ratio."""

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        return self.dirty_bytes > 0 and (self.overdue or self.ratio > config.min_cleanable_dirty_ratio)


class Compacted(msgspec.Struct, frozen=True):
    """The result of a round. `end_offset` is the next first dirty offset; bytes of the segments read and written."""

    end_offset: int
    bytes_before: int
    bytes_after: int
    is_complete: bool
    """False: the map was full; run another round."""


def dirtiness(log: "Log", first_dirty_offset: int, *, last_stable_offset: int, now_ms: int) -> Dirtiness:
    """The clean and dirty bytes of `log`; `first_dirty_offset` is the end of the last round.

    Only complete segments below the recovery point count: above it, recovery after a crash expects no missing offsets.
    A first dirty offset outside of the log (the checkpoint is older or newer) is replaced by the log's start.
    """
    if not log.segments[0].base_offset <= first_dirty_offset <= log.end_offset:
        first_dirty_offset = log.segments[0].base_offset
    stable_offset = min(last_stable_offset, log.durability.recovery_point)
    clean_bytes = 0
    dirty: list[Segment] = []
    uncleanable = log.segments[0].base_offset
    for segment, after in pairwise(log.segments):
        is_dirty = after.base_offset > first_dirty_offset
        if after.base_offset > stable_offset or (is_dirty and _is_too_young(segment, log.config, now_ms)):
            break
        uncleanable = after.base_offset
        if is_dirty:
            dirty.append(segment)
        else:
            clean_bytes += segment.size
    return Dirtiness(
        first_dirty_offset,
        max(uncleanable, first_dirty_offset),
        clean_bytes,
        sum(segment.size for segment in dirty),
        any(_is_overdue(segment, log.config, now_ms) for segment in dirty),
    )


def _is_too_young(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    return config.min_compaction_lag_ms > 0 and segment.newest_ms > now_ms - config.min_compaction_lag_ms


def _is_overdue(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    if config.max_compaction_lag_ms == INT64_MAX:
        return False
    first = segment.file.pread(HEADER_BYTES, 0)
    if len(first) < HEADER_BYTES:
        return False
    oldest_ms = read_header(first).max_timestamp
    return now_ms - (oldest_ms if oldest_ms >= 0 else segment.modified_ms) > config.max_compaction_lag_ms


async def compact(
    log: "Log",
    dirty: Dirtiness,
    *,
    now_ms: int,
    keys_max: int,
    held_by_all: int,
    pause: Pause,
) -> Compacted:
    """Run one round over `log`.

    `held_by_all`: every replica has all records below this offset, so that expired tombstones and markers below it can
    be removed. `pause` is awaited every few milliseconds of work and before each swap. It raises CompactionAborted to
    end the round, if the log was deleted or `held_by_all` is not valid any more.

    Raises CorruptBatch or CorruptLog for an unreadable batch, CompactionAborted if the log changed during the round.
    Finished groups of segments stay compacted then, and the log is complete.
    """
    producers = _producers_at(log, dirty.first_uncleanable_offset, now_ms)
    pace = Pace(pause)
    latest = OffsetMap(keys_max)
    is_complete = await _map_keys(log, dirty, latest, TransactionFates(), pace)
    assert latest.end_offset > dirty.first_dirty_offset or not dirty.dirty_bytes, "a round must make progress"
    cleaning = Cleaning(
        latest=latest,
        now_ms=now_ms,
        delete_retention_ms=log.config.delete_retention_ms,
        held_by_all=held_by_all,
        first_uncleanable_offset=dirty.first_uncleanable_offset,
        producers=producers,
        transactions=TransactionFates(),
        pace=pace,
    )
    bytes_before = bytes_after = 0
    for group in list(_groups([s for s in log.segments[:-1] if s.base_offset < latest.end_offset], log.config)):
        bytes_before += sum(segment.size for segment in group)
        bytes_after += await _clean_group(log, group, cleaning)
    return Compacted(latest.end_offset, bytes_before, bytes_after, is_complete)


def _producers_at(log: "Log", offset: int, now_ms: int) -> dict[int, ProducerState]:
    """The active producers as of `offset`, which is not above the high watermark.

    Batches above the high watermark may be truncated. Then the batches that they replaced in the window are the last
    ones of their producer again. The snapshot of a segment's base offset is there, unless a power loss has damaged it.
    """
    table = recovery.producers_at(log.segments.all, log.durability.snapshots, offset, now_ms=now_ms)
    return {state.producer_id: state for state in table.all() if log.producers.get(state.producer_id) is not None}


async def _map_keys(log: "Log", dirty: Dirtiness, latest: OffsetMap, fates: TransactionFates, pace: Pace) -> bool:
    """Fill `latest` from the dirty part, batch by batch. False if the map has no room for the keys of the next batch.

    Always ends between batches: a tombstone that is not in the map must not be removed, otherwise an older value of its
    key would reappear.
    """
    start, stop = dirty.first_dirty_offset, dirty.first_uncleanable_offset
    latest.end_offset = start
    for segment in [s for s in log.segments[:-1] if s.next_offset > start and s.base_offset < stop]:
        _check_there(log, segment)
        for header, data in _batches(segment, segment.position_of(start)):
            _expect_aborted(log, header, fates)
            if not latest.has_room(header.record_count):
                return False
            await _map_batch(latest, header, data, fates, start, pace)
            latest.end_offset = header.next_offset
            _check_there(log, segment)
    latest.end_offset = stop
    return True


async def _map_batch(
    latest: OffsetMap, header: BatchHeader, data: memoryview, fates: TransactionFates, start: int, pace: Pace
) -> None:
    await pace.spend(cost(header))
    if fates.can_discard(header, data) or header.is_control:
        return
    columns = decode(header, data)
    for row in range(0, header.record_count, ROWS_PER_STEP):
        offsets, keys = columns.offsets[row : row + ROWS_PER_STEP], columns.keys[row : row + ROWS_PER_STEP]
        for offset, key in zip(offsets, keys, strict=True):
            if key is not None and offset >= start:
                latest.put(key, offset)
        await pace.spend(RECORD_COST_BYTES * len(offsets))


def _groups(segments: Sequence[Segment], config: LogConfig) -> Iterator[list[Segment]]:
    """Yield groups of neighbours that fit into one segment, by bytes, index bytes and offsets."""
    group: list[Segment] = []
    size = index_size = 0
    for segment in segments:
        size += segment.size
        index_size += max(segment.index.size, segment.time_index.size)
        fits = size <= config.segment_bytes and index_size <= config.segment_index_bytes
        if group and not (fits and segment.next_offset - group[0].base_offset <= RELATIVE_OFFSET_MAX):
            yield group
            group, size, index_size = [], segment.size, max(segment.index.size, segment.time_index.size)
        group.append(segment)
    if group:
        yield group


class CleanedSegment(Segment):
    """A segment under construction. Recovery removes files of its names (`.cleaned`)."""

    def path(self, suffix: str) -> str:
        return super().path(suffix) + CLEANED

    async def finish(self, modified_ms: int) -> None:
        """End writing and make all files durable, also without batches. `modified_ms`: of the segments it replaces.

        An empty transaction index is created too, so that it replaces the old one.
        """
        self.seal()
        self.aborted.create()
        self.disk.sync_dir_later(self.directory)
        await self.file.sync()  # and the debts: indexes and names
        self.disk.set_modified(self.path(LOG), modified_ms)

    def remove(self) -> None:
        self.close()
        for suffix in SUFFIXES:
            self.disk.remove(self.path(suffix))


async def _clean_group(log: "Log", group: list[Segment], cleaning: Cleaning) -> int:
    """Copy the group without outdated records and swap the copy in. Returns the bytes of the copy."""
    for suffix in SUFFIXES:
        log.disk.remove(group[0].path(suffix) + CLEANED)
    cleaned = CleanedSegment(log.disk, log.directory, group[0].base_offset)
    cleaned.activate(reset_indexes=True)
    try:
        has_changed, modified_ms = len(group) > 1, 0
        for segment in group:
            _check_there(log, segment)
            modified_ms = max(modified_ms, segment.modified_ms)
            for header, data in _batches(segment):
                _expect_aborted(log, header, cleaning.transactions)
                kept = await cleaning.retained(header, data)
                has_changed = has_changed or kept is not data
                if kept is not None:
                    _append(cleaned, kept, log.config)
                if cleaning.transactions.just_aborted is not None:
                    cleaned.aborted.append(cleaning.transactions.just_aborted)
                _check_there(log, segment)
        if not has_changed:
            cleaned.remove()
            return group[0].size
        await cleaned.finish(modified_ms)
        await cleaning.pace.rest()
        for segment in group:
            _check_there(log, segment)
    except BaseException:
        cleaned.remove()
        raise
    cleaned.close()
    return await log.carry_out(_replacement(log, group))


def _replacement(log: "Log", group: list[Segment]) -> Steps[int]:
    """Replace the group by its copy, in steps (`Log.carry_out`). Returns the bytes of the copy."""
    disk, directory = log.disk, log.directory
    for _ in announced(disk, directory, group[0]):
        yield
        if log.durability.is_closed:
            raise CompactionAborted(f"{directory} was closed")
    try:
        for segment in group:
            _check_there(log, segment)
    except CompactionAborted:
        withdrawn(disk, directory, group[0])
        yield
        raise
    swapped = SwappedSegment(disk, directory, group[0].base_offset)
    log.segments.replace(group, swapped)
    for _ in completed(disk, directory, swapped):
        yield
        if log.durability.is_closed or swapped.is_deleted:
            raise CompactionAborted(f"{directory} was closed or deleted")
    return swapped.size


def _expect_aborted(log: "Log", header: BatchHeader, fates: TransactionFates) -> None:
    """Load the aborted transactions of the range that starts with this batch, unless they are loaded."""
    if header.next_offset > fates.known_below:
        below = header.next_offset + EXPECTED_OFFSETS
        fates.expect(log.aborted_transactions(header.base_offset, below), below)


def _append(cleaned: Segment, batch: bytes | memoryview, config: LogConfig) -> None:
    header = read_header(batch)
    position = cleaned.append(batch)
    cleaned.note(position, header, header.last_offset, config.index_interval_bytes)


def _batches(segment: Segment, start: int = 0) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches from the boundary `start` to the end. Raises CorruptBatch if other bytes are left."""
    at = start
    for position, header, data in segment.scan(start):
        yield header, data
        at = position + header.size
    if at != segment.size:
        raise CorruptBatch(f"{segment.path(LOG)} has no batch at byte {at} of {segment.size}")


def _check_there(log: "Log", segment: Segment) -> None:
    if log.is_in_truncation or segment.is_deleted or not any(segment is other for other in log.segments):
        raise CompactionAborted(f"{segment.path(LOG)} was removed")
