"""Finds records by timestamp (ListOffsets, KIP-79, KIP-734): by time index, then batch headers, then one batch.

Markers are not found; records of an aborted transaction are. (Kafka 4.3 also returns the offset of a marker, where a
reader finds no record.) A record without a timestamp (below 0) counts as one at -1: it is never at or after a time, but
it has the newest timestamp of a log without others.

A search blocks the event loop. So a batch with too many records, or one that decompresses to too many bytes, is not
decoded: the offset of its first record is returned, and a reader from there misses no record.
"""

from collections.abc import Iterable, Sequence

import msgspec
from semel_protocol.batch import BatchHeader
from semel_protocol.compression import InflatesTooLarge
from semel_protocol.records import decode_columns

from semel_storage.segments.segment import NO_RECORD, NO_TIMESTAMP, Segment

RECORDS_MAX = 100_000
INFLATED_BYTES_MAX = 32 << 20


def offset_for_timestamp(
    segments: Sequence[Segment], timestamp_ms: int, *, start: int, up_to: int
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record within [start, up_to) whose timestamp is at least `timestamp_ms`.

    `timestamp_ms`: 0 or above.
    """
    for segment in segments:
        if segment.base_offset >= up_to:
            return None
        newest = segment.max_timestamp if segment.newest_batch is None else segment.newest_batch[0]
        if segment.next_offset <= start or newest < timestamp_ms:
            continue
        first = max(start, segment.time_index.offset_before(timestamp_ms))
        for position, header in segment.headers(segment.start_for(first)):
            if header.base_offset >= up_to:
                return None
            if header.max_timestamp < timestamp_ms or header.next_offset <= start or header.is_control:
                continue
            for offset, timestamp in _stamps(segment, position, header, start):
                if timestamp >= timestamp_ms and offset < up_to:
                    return offset, timestamp
    return None


def max_timestamp(segments: Sequence[Segment], *, start: int, up_to: int) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record within [start, up_to) that has the largest timestamp there."""
    best: tuple[int, int] | None = None
    within = [segment for segment in segments if segment.base_offset < up_to and segment.next_offset > start]
    for segment in sorted(within, key=lambda segment: (-segment.max_timestamp, segment.base_offset)):
        if best is not None and segment.max_timestamp < best[1]:
            break
        found = _newest_record(segment, start, up_to)
        if found is not None and (best is None or (-found[1], found[0]) < (-best[1], best[0])):
            best = found
    return best


class _Batch(msgspec.Struct, frozen=True):
    """A batch with records within the searched offsets, and the largest timestamp of these."""

    position: int
    header: BatchHeader
    timestamp: int


def _newest_record(segment: Segment, start: int, up_to: int) -> tuple[int, int] | None:
    """`max_timestamp` within one segment. Of a whole segment, the batch is noted for the next search."""
    is_whole = start <= segment.base_offset and segment.next_offset <= up_to
    if is_whole and segment.newest_batch is not None:
        timestamp, offset = segment.newest_batch
        position = segment.position_of(offset)
        found = next(segment.headers(position), None) if timestamp > NO_RECORD else None
        batch = None if found is None else _Batch(position, found[1], timestamp)
    else:
        batch = _newest_batch(segment, start, up_to)
        if is_whole:
            none = (NO_RECORD, segment.base_offset)
            segment.newest_batch = none if batch is None else (batch.timestamp, batch.header.last_offset)
    if batch is None:
        return None
    stamps = _stamps(segment, batch.position, batch.header, start)
    return next((pair for pair in stamps if pair[1] == batch.timestamp and pair[0] < up_to), None)


def _newest_batch(segment: Segment, start: int, up_to: int) -> _Batch | None:
    """The first batch with the largest timestamp of records within [start, up_to); reads only headers.

    The segment is searched from the last entry of its time index on: no batch before the batch of an entry is as new as
    the entry. That batch may have no record to return: it may be a marker, below `start`, or emptied by compaction,
    which keeps its timestamp. Then the part before it is searched, and so on.
    """
    best: _Batch | None = None
    bound = segment.max_timestamp
    while True:
        indexed, last_offset = segment.time_index.up_to(up_to)
        since = max(last_offset, start, segment.base_offset)
        begin, newest = up_to, None
        for position, header in segment.headers(segment.position_of(since)):
            if header.base_offset >= up_to:
                break
            begin = min(begin, header.base_offset)
            timestamp = _timestamp_of(segment, position, header, start)
            if timestamp > (NO_RECORD if newest is None else newest.timestamp):
                newest = _Batch(position, header, timestamp)
                if timestamp >= bound:
                    break
        if newest is not None and (best is None or newest.timestamp >= best.timestamp):
            best = newest  # of records with one timestamp, the first counts
        if (best is not None and best.timestamp >= indexed) or since <= max(start, segment.base_offset):
            return best
        up_to, bound = min(begin, since), indexed


def _timestamp_of(segment: Segment, position: int, header: BatchHeader, start: int) -> int:
    """The largest timestamp of the records of one batch from `start` on; NO_RECORD without such a record."""
    if header.is_control or header.record_count == 0 or header.next_offset <= start:
        return NO_RECORD
    if header.base_offset >= start:
        return max(header.max_timestamp, NO_TIMESTAMP)
    return max((timestamp for _, timestamp in _stamps(segment, position, header, start)), default=NO_RECORD)


def _stamps(segment: Segment, position: int, header: BatchHeader, start: int) -> Iterable[tuple[int, int]]:
    """(offset, timestamp) of the records of one batch from `start` on. Raises CorruptBatch.

    For a batch that is too large to decode: only its first offset from `start` on, with the batch's largest timestamp.
    """
    undecoded = [(max(header.base_offset, start), header.max_timestamp)]
    if header.record_count > RECORDS_MAX:
        return undecoded
    try:
        batch = segment.file.pread(header.size, position)
        columns = decode_columns(batch, header, bytes_max=INFLATED_BYTES_MAX)
    except InflatesTooLarge:
        return undecoded
    stamps = zip(columns.offsets, columns.timestamps, strict=True)
    return ((offset, max(timestamp, NO_TIMESTAMP)) for offset, timestamp in stamps if offset >= start)
