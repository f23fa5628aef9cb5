"""Finds records by timestamp (ListOffsets, KIP-79, KIP-734): by time index, then batch headers, then one batch.

A search blocks the event loop. So a batch with too many records, or one that decompresses to too many bytes, is not
decoded: the offset of its first record is returned, and a reader from there misses no record.
"""

from collections.abc import Iterable, Sequence

from semel_protocol.batch import BatchHeader
from semel_protocol.compression import InflatesTooLarge
from semel_protocol.records import decode_columns

from semel_storage.disk.disk import Buffer
from semel_storage.segments.segment import Segment

RECORDS_MAX = 100_000
INFLATED_BYTES_MAX = 32 << 20


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
        for _, header, batch in segment.scan(segment.start_for(first)):
            if header.base_offset >= up_to:
                return None
            if header.max_timestamp < timestamp_ms or header.next_offset <= start or header.is_control:
                continue
            for offset, timestamp in _stamps(header, batch, start):
                if timestamp >= timestamp_ms and start <= offset < up_to:
                    return offset, timestamp
    return None


def max_timestamp(segments: Sequence[Segment], *, start: int, up_to: int) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record within [start, up_to) that has the largest timestamp there."""
    best: tuple[int, int] | None = None
    for segment in segments:
        if segment.base_offset >= up_to:
            break
        if segment.next_offset <= start or segment.size == 0:
            continue
        if best is None or segment.max_timestamp > best[1]:
            found = _latest_record(segment, start, up_to)
            if found is not None and (best is None or found[1] > best[1]):
                best = found
    return best


def _latest_record(segment: Segment, start: int, up_to: int) -> tuple[int, int] | None:
    """`max_timestamp` within one segment: by headers, then by the records of the batch with the maximum."""
    if segment.base_offset < start:
        since = start
    elif segment.next_offset <= up_to:
        since = segment.max_timestamp_offset
    else:
        since = segment.time_index.up_to(up_to)[1]
    latest = -1
    best: tuple[BatchHeader, int] | None = None
    for position, header, batch in segment.scan(segment.position_of(since)):
        if header.base_offset >= up_to:
            break
        if header.next_offset <= start or header.is_control or header.record_count == 0:
            continue
        timestamp = header.max_timestamp
        if header.base_offset < start:  # the maximum may belong to a record before the start
            timestamp = max((stamp for offset, stamp in _stamps(header, batch, start) if offset >= start), default=-1)
        if timestamp > latest:
            latest = timestamp
            best = (header, position)
            if timestamp == segment.max_timestamp:
                break
    if best is None:
        return None
    header, position = best
    stamps = _stamps(header, segment.file.pread(header.size, position), start)
    return next(((offset, stamp) for offset, stamp in stamps if stamp == latest and start <= offset < up_to), None)


def _stamps(header: BatchHeader, batch: Buffer, start: int) -> Iterable[tuple[int, int]]:
    """(offset, timestamp) of the records of one batch. Raises CorruptBatch.

    For a batch that is too large to decode: only its first offset from `start` on, with the batch's largest timestamp.
    """
    undecoded = [(max(header.base_offset, start), header.max_timestamp)]
    if header.record_count > RECORDS_MAX:
        return undecoded
    try:
        columns = decode_columns(batch, header, bytes_max=INFLATED_BYTES_MAX)
    except InflatesTooLarge:
        return undecoded
    return zip(columns.offsets, columns.timestamps, strict=True)
