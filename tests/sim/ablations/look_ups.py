"""Safeguards of look-ups by time: ListOffsets finds the records that a reader would, whatever lies between them."""

from __future__ import annotations

from collections.abc import Sequence

from semel_protocol.batch import BatchHeader
from semel_storage.segments import lookup
from semel_storage.segments.segment import NO_RECORD, NO_TIMESTAMP, Segment

from sim.ablations.ablation import Seam, safeguard


@safeguard(
    "look-ups by time pass over markers",
    "the record with the newest timestamp is found where the last batch is a marker",
    "transactional",
)
def markers_are_found(seam: Seam) -> None:
    def of_any_batch(segment: Segment, position: int, header: BatchHeader, start: int) -> int:
        if header.next_offset <= start:
            return NO_RECORD
        return max(header.max_timestamp, NO_TIMESTAMP)

    seam.replace(lookup, "_timestamp_of", of_any_batch)


@safeguard(
    "look-ups by time search all segments",
    "the record with the newest timestamp is found in whichever segment it lies, also after clocks went back",
)
def last_segment_alone(seam: Seam) -> None:
    def of_the_last(segments: Sequence[Segment], *, start: int, up_to: int) -> tuple[int, int] | None:
        for segment in reversed(segments):
            found = lookup._newest_record(segment, start, up_to)
            if found is not None:
                return found
        return None

    seam.replace(lookup, "max_timestamp", of_the_last)


@safeguard(
    "look-ups by time go on before an entry without a record",
    "the newest record is found where the batch of the last index entry is a marker, or was emptied by compaction",
)
def last_entry_alone(seam: Seam) -> None:
    def behind_the_last_entry(segment: Segment, start: int, up_to: int) -> lookup._Batch | None:
        _, last_offset = segment.time_index.up_to(up_to)
        newest = None
        for position, header in segment.headers(segment.position_of(max(last_offset, start, segment.base_offset))):
            timestamp = lookup._timestamp_of(segment, position, header, start)
            if header.base_offset < up_to and timestamp > (NO_RECORD if newest is None else newest.timestamp):
                newest = lookup._Batch(position, header, timestamp)
        return newest

    seam.replace(lookup, "_newest_batch", behind_the_last_entry)
