"""Checks the sealed segments below the recovery point when a log opens: their indexes and their offset range.

Damage is reported (`log_damaged`) but not truncated, and the log opens: records before and after the damage can be
read; a read of the damaged part fails. Invalid indexes are rebuilt, because they are not synced with the log.
"""

from semel_storage.disk.disk import EventCallback
from semel_storage.segments.segment import LOG, NO_TIMESTAMP, CorruptLog, Segment


def check_indexes(segment: Segment, *, index_interval_bytes: int, event: EventCallback) -> None:
    """Check both sparse indexes of the sealed `segment`; rebuild them if they are invalid."""
    if segment.size and not _indexes_hold(segment, index_interval_bytes):
        event("index_rebuilt", file=segment.path(LOG))
        segment.activate(reset_indexes=True)
        size, next_offset = segment.size, segment.next_offset
        expected = segment.base_offset
        for position, header, _ in segment.scan(0, size):
            if header.base_offset < expected or header.next_offset > next_offset:
                break
            expected = header.next_offset
            segment.note(position, header, header.last_offset, index_interval_bytes)
        segment.size, segment.next_offset = size, next_offset
        segment.seal()
    segment.close()


def check_extent(segment: Segment, *, is_dense: bool, event: EventCallback) -> None:
    """Check that batches fill the sealed `segment` up to the next base offset. `is_dense`: without missing offsets."""
    last = segment.index.last()
    position, end_offset = 0, segment.base_offset
    for start in (last[1] if last is not None else 0, 0):
        for at, header, _ in segment.scan(start):
            position, end_offset = at + header.size, header.next_offset
        if position == segment.size:
            break
    first = next(segment.scan(0), None)
    reason = ""
    if position < segment.size:
        reason = "no record batch starts here"
    elif first is not None and first[1].base_offset < segment.base_offset:
        reason = f"it starts at offset {first[1].base_offset}"
    elif end_offset > segment.next_offset or (is_dense and end_offset < segment.next_offset):
        reason = f"it ends at offset {end_offset}, but the next segment starts at {segment.next_offset}"
    if reason:
        event("log_damaged", file=segment.path(LOG), position=position, reason=reason)
    segment.close()


def _indexes_hold(segment: Segment, index_interval_bytes: int) -> bool:
    """Whether the last entries exist, point at batches, and are near enough to the end of the segment."""
    if segment.time_index.count == 0 and not segment.disk.exists(segment.time_index.path):
        return False
    last = segment.index.last()
    position = last[1] if last is not None else 0
    first = next(segment.scan(position), None)
    if first is None or (last is not None and first[1].last_offset != segment.base_offset + last[0]):
        return False
    since = 0
    newest = NO_TIMESTAMP
    for _, header, _ in segment.scan(position):
        if since > index_interval_bytes:
            return False
        since += header.size
        newest = max(newest, header.max_timestamp)
    timestamp, relative = segment.time_index.last() or (NO_TIMESTAMP, 0)
    latest = None
    if newest <= timestamp and relative >= 0:
        try:
            at = segment.position_of(segment.base_offset + relative)
        except CorruptLog:
            return False
        latest = next(segment.scan(at), None)
    return latest is not None and max(latest[1].max_timestamp, NO_TIMESTAMP) == timestamp
