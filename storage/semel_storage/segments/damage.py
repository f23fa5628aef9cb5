"""Decides whether recovery may truncate invalid bytes of a log, or must refuse to open it.

There are three cases:

* **Torn tail**: no valid batch follows. The write never finished. Truncated.
* **Lost write**: valid batches follow, but a sector of the damaged place contains only zeros, or a segment ends within
  a batch or before the next one begins. A power loss may drop any subset of the unsynced bytes, and nothing after the
  last sync was acknowledged as durable. Truncated with everything after it, so that sequences have no gap.
* **Corruption**: valid batches follow and the damage is not a lost write, or the log ends below its recovery point.
  Acknowledged records may be lost, so the log does not open: `CorruptLog` names the file and the byte.
"""

import re
from collections.abc import Sequence

from semel_protocol.batch import HEADER_BYTES, PREFIX_BYTES, crc_of, crc_ok, read_header
from semel_protocol.errors import KafkaError

from semel_storage.segments.segment import LOG, CorruptLog, Segment

SECTOR_BYTES = 512
SEARCH_WINDOW_BYTES = 4 << 20


def judge(segments: Sequence[Segment], at: int, position: int, end_offset: int, *, floor: int) -> None:
    """Return if the log may be truncated at `position` of segment `at`; raise CorruptLog otherwise.

    `end_offset`: the offset at this position. `floor`: the recovery point; everything below it was durable.
    """
    segment = segments[at]
    if end_offset < floor:
        raise CorruptLog(
            segment.path(LOG),
            position,
            f"damaged at offset {end_offset}, below the recovery point {floor}, where records were durable; "
            "restore the file from a copy",
        )
    follows = _next_valid(segment, position, end_offset)
    if follows is None and not any(_starts_valid(later) for later in segments[at + 1 :]):
        return
    if follows is None and _is_cut_short(segment, position):
        return
    if _is_lost_write(segment, position, segment.size if follows is None else follows, end_offset):
        return
    raise CorruptLog(
        segment.path(LOG),
        position,
        f"damaged at offset {end_offset}, and valid batches follow, so that a truncation could lose acknowledged "
        "records; restore the file from a copy, or allow data loss for this start",
    )


def _starts_valid(segment: Segment) -> bool:
    return any(crc_ok(batch, header) for _, header, batch in segment.scan(0))


def _next_valid(segment: Segment, position: int, end_offset: int) -> int | None:
    """Position of the next batch after `position` with a valid CRC and an offset above `end_offset`, or None."""
    prefix = end_offset >> 24
    likely = b"|".join(re.escape(top.to_bytes(5, "big")) for top in (prefix, prefix + 1))
    pattern = re.compile(b"(?=(?:" + likely + rb").{11}\x02)", re.DOTALL)
    at = position + HEADER_BYTES
    while at + HEADER_BYTES <= segment.size:
        window = segment.file.pread(SEARCH_WINDOW_BYTES, at)
        for match in pattern.finditer(window):
            if _is_valid(segment, at + match.start(), end_offset):
                return at + match.start()
        at += max(1, len(window) - HEADER_BYTES)
    return None


def _is_valid(segment: Segment, position: int, end_offset: int) -> bool:
    try:
        header = read_header(segment.file.pread(HEADER_BYTES, position))
    except KafkaError:
        return False
    if header.base_offset <= end_offset or position + header.size > segment.size:
        return False
    return crc_ok(segment.file.pread(header.size, position), header)


def _is_cut_short(segment: Segment, position: int) -> bool:
    """Whether the file ends within the batch at `position`; False if the batch is complete with a wrong length."""
    rest = segment.file.pread(segment.size - position, position)
    if len(rest) < HEADER_BYTES:
        return True
    try:
        header = read_header(rest)
    except KafkaError:
        return False
    return header.size > len(rest) and crc_of(rest, len(rest)) != header.crc


def _is_lost_write(segment: Segment, position: int, end: int, end_offset: int) -> bool:
    """Whether a sector between `position` and `end` contains only zeros, as if its write was lost.

    Of the first sector only the part from `position` on counts, because earlier bytes were written before. Its zeros
    count only if a batch that starts at `end_offset` cannot contain them. The last sector counts as a whole. It may
    also contain the first bytes of a valid batch, which are zeros, too, if they are the upper bytes of its offset.
    """
    after = min(end, (position // SECTOR_BYTES + 1) * SECTOR_BYTES)
    part = after - position
    cannot_be_zero = part >= PREFIX_BYTES or any(end_offset.to_bytes(8, "big")[:part])
    if cannot_be_zero and not any(segment.file.pread(part, position)):
        return True
    while after < end:
        sector = segment.file.pread(min(SECTOR_BYTES, segment.size - after), after)
        if len(sector) > 1 and not any(sector):  # a valid batch may end with one zero: no headers
            return True
        after += SECTOR_BYTES
    return False
