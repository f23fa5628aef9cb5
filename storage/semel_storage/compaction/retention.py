"""Retention: deletes segments by age, by size, and those with all records below the start offset.

`deletable` is PURE and decides; `apply_retention` deletes. Kafka's rules (`retention.ms`, `retention.bytes`,
`cleanup.policy`): only complete segments, oldest first, never above the high watermark. -1 means no limit. The age of a
segment without timestamps is the time since the last change of its log file.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from semel_storage.log.durability import Steps
from semel_storage.log.log import SEGMENTS_PER_STEP, Log
from semel_storage.segments.log_config import LogConfig

SEGMENTS_MAX = SEGMENTS_PER_STEP
"""Segments that one call looks at and deletes. Each takes a read of its time index, and four files to rename."""
NO_LIMIT = -1
NO_TIMESTAMP = -1


class SegmentFacts(Protocol):
    """The properties of a segment that retention needs."""

    @property
    def base_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def modified_ms(self) -> int: ...


class Expired(msgspec.Struct, frozen=True):
    """The number of oldest segments to delete, and the reason for the last of them."""

    count: int = 0
    reason: str = ""


class Deleted(msgspec.Struct, frozen=True):
    """The result of retention: deleted segments, their bytes, and the new start offset."""

    segments: int
    size_bytes: int
    start_offset: int
    reason: str


def deletable(
    segments: Sequence[SegmentFacts], config: LogConfig, *, start_offset: int, high_watermark: int, now_ms: int
) -> Expired:
    """The number of segments to delete, from the oldest on; includes the active one (the last) only if it has records.

    Ends at the first segment that must stay, so that the log has no gap, or after `SEGMENTS_MAX`.
    """
    excess_bytes = sum(segment.size for segment in segments) - config.retention_bytes
    expired = Expired()
    for count, segment in enumerate(segments[:SEGMENTS_MAX], 1):
        is_active = count == len(segments)
        upper_offset = segment.next_offset if is_active else segments[count].base_offset
        if upper_offset > high_watermark or (is_active and segment.size == 0):
            break
        reason = _reason(segment, config, excess_bytes=excess_bytes, now_ms=now_ms)
        if not reason and not is_active and upper_offset <= start_offset:
            reason = "start_offset"
        if not reason:
            break
        excess_bytes -= segment.size
        expired = Expired(count, reason)
    return expired


def _reason(segment: SegmentFacts, config: LogConfig, *, excess_bytes: int, now_ms: int) -> str:
    if not config.is_deleted:
        return ""
    if config.retention_ms != NO_LIMIT:
        newest_ms = segment.max_timestamp if segment.max_timestamp > NO_TIMESTAMP else segment.modified_ms
        if now_ms - newest_ms > config.retention_ms:
            return "retention.ms"
    if config.retention_bytes != NO_LIMIT and excess_bytes >= segment.size:
        return "retention.bytes"
    return ""


def apply_retention(log: Log, *, high_watermark: int, now_ms: int) -> Deleted | None:
    """As `retention`, but blocks."""
    return log.carry_out_now(retention(log, high_watermark=high_watermark, now_ms=now_ms))


def retention(log: Log, *, high_watermark: int, now_ms: int) -> Steps[Deleted | None]:
    """Delete expired segments of `log`, in steps (`Log.carry_out`). Returns None if there is none: repeat it until
    then.

    Unsynced records stay, also below the high watermark. If the active segment has expired too, it is rolled first, so
    that the log keeps its end offset.
    """
    expired = deletable(
        log.segments,
        log.config,
        start_offset=log.start_offset,
        high_watermark=min(high_watermark, log.durability.synced_offset),
        now_ms=now_ms,
    )
    if not expired.count:
        return None
    old = log.segments[: expired.count]
    size_bytes = sum(segment.size for segment in old)
    if expired.count == len(log.segments):
        if not log.can_roll:
            return None  # the next time: its newest segment has just begun
        log.roll()
    yield from log.deletion_of_segments(old)
    return Deleted(len(old), size_bytes, log.start_offset, expired.reason)
