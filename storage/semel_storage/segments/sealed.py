"""What a start looks at in the segments below the recovery point: indexes that hold, and an extent that fits.

Damage there is told (`log_damaged`), not cut, and the log is opened: what lies before and behind it can be read, and
who reads there is refused. The indexes are built anew; they are not synced with the log.
"""

from semel_storage.disk.disk import Event
from semel_storage.segments.segment import LOG, CorruptLog, Segment


def check_indexes(segment: Segment, *, index_interval_bytes: int, event: Event) -> None:
    """Leave both sparse indexes of the sealed `segment` as they should be."""
    if segment.size and not _indexes_hold(segment, index_interval_bytes):
        event("index_rebuilt", file=segment.path(LOG))
        segment.activate(reset_indexes=True)
        size, next_offset = segment.size, segment.next_offset
        expected = segment.base_offset
        for position, header, _ in segment.scan(0, size):
            if header.base_offset < expected or header.next_offset > next_offset:
                break
            expected = header.next_offset
            segment.note(position, header.size, header.last_offset, header.max_timestamp, index_interval_bytes)
        segment.size, segment.next_offset = size, next_offset
        segment.seal()
    segment.close()


def check_extent(segment: Segment, *, is_dense: bool, event: Event) -> None:
    """See that batches fill the sealed `segment` from its base offset to its successor's. `is_dense`: without gaps."""
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
        reason = f"it begins with offset {first[1].base_offset}"
    elif end_offset > segment.next_offset or (is_dense and end_offset < segment.next_offset):
        reason = f"it ends before offset {end_offset}, its successor begins with {segment.next_offset}"
    if reason:
        event("log_damaged", file=segment.path(LOG), position=position, reason=reason)
    segment.close()


def _indexes_hold(segment: Segment, index_interval_bytes: int) -> bool:
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
        if since > index_interval_bytes:
            return False
        since += header.size
    timestamp, relative = segment.time_index.last() or (-1, 0)
    latest = None
    if relative >= 0:
        try:
            at = segment.position_of(segment.base_offset + relative)
        except CorruptLog:
            return False
        latest = next(segment.scan(at), None)
    return latest is not None and latest[1].max_timestamp == timestamp
