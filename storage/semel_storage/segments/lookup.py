"""Finds records by timestamp (ListOffsets, KIP-79, KIP-734): by time index, then batch headers, then one batch.

A marker is a record with a time here, as in Kafka. A record without a timestamp (below 0) counts as one at -1: it is
never at or after a time, but it has the newest timestamp of a log without others.

A search blocks the event loop. So a batch with too many records, or one that decompresses to too many bytes, is not
decoded: the offset of its first record is returned, and a reader from there misses no record.
"""

from collections.abc import Iterable, Sequence

from semel_protocol.batch import BatchHeader
from semel_protocol.compression import InflatesTooLarge
from semel_protocol.records import decode_columns

from semel_storage.segments.segment import NO_TIMESTAMP, Segment

RECORDS_MAX = 100_000
INFLATED_BYTES_MAX = 32 << 20
OLDER_THAN_ALL = NO_TIMESTAMP - 1


def offset_for_timestamp(
    segments: Sequence[Segment], timestamp_ms: int, *, start: int, up_to: int
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record within [start, up_to) whose timestamp is at least `timestamp_ms`.

    `timestamp_ms`: 0 or above.
    """
    for segment in segments:
        if segment.base_offset >= up_to:
            return None
        if segment.next_offset <= start or segment.max_timestamp < timestamp_ms:
            continue
        first = max(start, segment.time_index.offset_before(timestamp_ms))
        for position, header in segment.headers(segment.start_for(first)):
            if header.base_offset >= up_to:
                return None
            if header.max_timestamp < timestamp_ms or header.next_offset <= start:
                continue
            for offset, timestamp in _stamps(segment, position, header, start):
                if timestamp >= timestamp_ms and offset < up_to:
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
        above = OLDER_THAN_ALL if best is None else best[1]
        if segment.max_timestamp > above:
            best = _newest(segment, start, up_to, above) or best
    return best


def _newest(segment: Segment, start: int, up_to: int, above: int) -> tuple[int, int] | None:
    """`max_timestamp` within one segment, if it is above `above`.

    The segment is searched from the last entry of its time index on: no batch before the batch of an entry is as new as
    the entry. That batch may have no record to return: compaction leaves empty batches with their timestamps, and it
    may be below `start`. Then the part before it is searched, and so on.
    """
    best: tuple[int, int] | None = None
    bound = segment.max_timestamp
    while True:
        indexed, last_offset = segment.time_index.up_to(up_to)
        since = max(last_offset, start, segment.base_offset)
        begin = up_to
        for position, header in segment.headers(segment.position_of(since)):
            if header.base_offset >= up_to:
                break
            begin = min(begin, header.base_offset)
            if max(header.max_timestamp, NO_TIMESTAMP) <= above or header.next_offset <= start:
                continue
            for offset, timestamp in _stamps(segment, position, header, start):
                if timestamp > above and offset < up_to:
                    best, above = (offset, timestamp), timestamp
            if above >= bound:
                break
        if above >= indexed or since <= max(start, segment.base_offset):
            return best
        up_to, bound = min(begin, since), indexed
        if best is not None:
            above = best[1] - 1  # of records with one timestamp, the first counts


def _stamps(segment: Segment, position: int, header: BatchHeader, start: int) -> Iterable[tuple[int, int]]:
    """(offset, timestamp) of the records of one batch from `start` on. Raises CorruptBatch.

    For a batch that is too large to decode: only its first offset from `start` on, with the batch's largest timestamp.
    """
    if header.record_count == 0:
        return ()
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
