"""Finding records by timestamp (ListOffsets, KIP-79 and KIP-734): time index first, then headers, then one batch."""

from collections.abc import Sequence

from semel_protocol.batch import BatchHeader
from semel_protocol.records import decode_batch

from semel_storage.disk import Buffer
from semel_storage.segment import Segment


def offset_for_timestamp(
    segments: Sequence[Segment], timestamp_ms: int, *, start: int, up_to: int
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record within [start, up_to) whose timestamp is at least `timestamp_ms`."""
    for segment in segments:
        if segment.base_offset >= up_to:
            return None
        if segment.next_offset <= start or segment.max_timestamp < timestamp_ms:
            continue
        first = max(start, segment.time_index.offset_before(timestamp_ms))
        for _, header, batch in segment.scan(segment.index.position_of(first)):
            if header.base_offset >= up_to:
                return None
            if header.max_timestamp < timestamp_ms or header.next_offset <= start or header.is_control:
                continue
            for offset, timestamp in _stamps(header, batch):
                if timestamp >= timestamp_ms and start <= offset < up_to:
                    return offset, timestamp
    return None


def max_timestamp(segments: Sequence[Segment], *, start: int, up_to: int) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record within [start, up_to) that has the largest timestamp there."""
    best: tuple[Segment, BatchHeader, int] | None = None
    for segment in segments:
        if segment.base_offset >= up_to:
            break
        if segment.next_offset <= start or segment.size == 0:
            continue
        if best is not None and segment.max_timestamp <= best[1].max_timestamp:
            continue
        found = _latest_batch(segment, start, up_to)
        if found is not None and (best is None or found[0].max_timestamp > best[1].max_timestamp):
            best = (segment, *found)
    if best is None:
        return None
    segment, header, position = best
    batch = segment.file.pread(header.size, position)
    stamps = [stamp for stamp in _stamps(header, batch) if start <= stamp[0] < up_to]
    offset, timestamp = max(stamps, key=lambda stamp: (stamp[1], -stamp[0]), default=(-1, -1))
    return (offset, timestamp) if offset >= 0 else None


def _latest_batch(segment: Segment, start: int, up_to: int) -> tuple[BatchHeader, int] | None:
    """Header and position of the first batch within [start, up_to) that has the segment's largest timestamp there."""
    if segment.base_offset >= start and segment.next_offset <= up_to:
        offset = segment.max_timestamp_offset
    elif segment.base_offset >= start:
        offset = segment.time_index.up_to(up_to)[1]
    else:
        offset = start
    best: tuple[BatchHeader, int] | None = None
    for position, header, _ in segment.scan(segment.position_of(offset)):
        if header.base_offset >= up_to:
            break
        if header.next_offset <= start or header.is_control or header.record_count == 0:
            continue
        if best is None or header.max_timestamp > best[0].max_timestamp:
            best = (header, position)
            if header.max_timestamp >= segment.max_timestamp:
                break
    return best


def _stamps(header: BatchHeader, batch: Buffer) -> list[tuple[int, int]]:
    """(offset, timestamp) of the records of one batch."""
    if header.log_append_time:
        return [(record.offset, header.max_timestamp) for record in decode_batch(batch)]
    return [(record.offset, record.timestamp) for record in decode_batch(batch)]
