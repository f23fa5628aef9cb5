"""The timeline of a partition: its batches as spans, each with the offsets and the outcome of a transaction."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

import msgspec
from semel_protocol.batch import BatchHeader
from semel_protocol.control import ControlType

from semel._texts import iso
from semel.admin import Admin
from semel.diagnose.log_scan import ScannedBatch, scan
from semel.diagnose.partitions import ends_of
from semel.structs import TopicPartition

NO_PRODUCER = -1
LAST_DEFAULT = 10_000


class Outcome(Enum):
    """The outcome of the records of a span."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    PLAIN = "plain"
    """Written outside of transactions."""


OUTCOME_OF = {ControlType.COMMIT: Outcome.COMMITTED, ControlType.ABORT: Outcome.ABORTED}


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one transaction in one partition (or a run outside of transactions), and the marker that ended it.

    pieces: first and last offsets of its runs of records, in order; empty for a marker without records in the range.
    marker_offset: None while it is open. Timestamps are in ms since the epoch, -1 without one.
    """

    producer_id: int
    producer_epoch: int
    outcome: Outcome
    pieces: tuple[tuple[int, int], ...]
    record_count: int = 0
    size_bytes: int = 0
    first_timestamp: int = -1
    marker_offset: int | None = None
    marker_timestamp: int = -1

    @property
    def first_offset(self) -> int:
        return self.pieces[0][0] if self.pieces else self.marker_offset or 0

    @property
    def last_offset(self) -> int:
        """The offset of its last record or its marker."""
        last = self.pieces[-1][1] if self.pieces else -1
        return max(last, -1 if self.marker_offset is None else self.marker_offset)

    @property
    def took_ms(self) -> int | None:
        """The time from its first record to its marker; None while it is open, or when a timestamp is missing."""
        if self.marker_offset is None or not 0 <= self.first_timestamp <= self.marker_timestamp:
            return None
        return self.marker_timestamp - self.first_timestamp


class PartitionTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """The spans of one partition from `start` to `end` (the high watermark).

    log_start: its first offset. last_stable_offset: read_committed consumers read below it.
    names: transactional ids by producer id, where a coordinator has them.
    """

    partition: TopicPartition
    log_start: int
    start: int
    end: int
    last_stable_offset: int
    spans: list[Span]
    names: dict[int, str] = {}

    def label(self, span: Span) -> str:
        """The transactional id of a span, else its producer id."""
        if span.producer_id == NO_PRODUCER:
            return "no producer id"
        name = self.names.get(span.producer_id)
        return f"producer {span.producer_id}" if name is None else name

    def lanes(self) -> dict[str, list[Span]]:
        """The spans by label, transactional ones first, in order of their first offsets."""
        lanes: dict[str, list[Span]] = {}
        for span in sorted(self.spans, key=lambda span: (span.outcome is Outcome.PLAIN, span.first_offset)):
            lanes.setdefault(self.label(span), []).append(span)
        return lanes

    @property
    def transactions(self) -> list[Span]:
        """The spans of transactions, without the runs outside of them."""
        return [span for span in self.spans if span.outcome is not Outcome.PLAIN]

    def count(self, outcome: Outcome) -> int:
        return sum(span.outcome is outcome for span in self.spans)


class _GrowingSpan:
    """The batches of a span so far."""

    def __init__(self, header: BatchHeader) -> None:
        self._producer_id, self._producer_epoch = header.producer_id, header.producer_epoch
        self._pieces: list[list[int]] = []
        self._record_count = self._size_bytes = 0
        self._first_timestamp = -1

    def add(self, batch: ScannedBatch) -> None:
        header = batch.header
        if self._pieces and self._pieces[-1][1] + 1 >= header.base_offset:
            self._pieces[-1][1] = header.last_offset
        else:
            self._pieces.append([header.base_offset, header.last_offset])
        self._record_count += header.record_count
        self._size_bytes += header.size
        if self._first_timestamp < 0:
            self._first_timestamp = header.base_timestamp

    def span(self, outcome: Outcome, marker: BatchHeader | None = None) -> Span:
        return Span(
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            outcome=outcome,
            pieces=tuple((first, last) for first, last in self._pieces),
            record_count=self._record_count,
            size_bytes=self._size_bytes,
            first_timestamp=self._first_timestamp,
            marker_offset=None if marker is None else marker.base_offset,
            marker_timestamp=-1 if marker is None else marker.max_timestamp,
        )


class SpanCollector:
    """Collects batches, in offset order, into spans."""

    def __init__(self) -> None:
        self._open: dict[int, _GrowingSpan] = {}
        self._plain: dict[int, _GrowingSpan] = {}
        self._done: list[Span] = []

    def add(self, batch: ScannedBatch) -> None:
        header = batch.header
        if batch.marker is not None:
            growing = self._open.pop(header.producer_id, None) or _GrowingSpan(header)
            self._done.append(growing.span(OUTCOME_OF[batch.marker], header))
        elif not header.is_control:  # or a control batch of another type
            spans = self._open if header.is_transactional else self._plain
            if header.producer_id not in spans:
                spans[header.producer_id] = _GrowingSpan(header)
            spans[header.producer_id].add(batch)

    def result(self) -> list[Span]:
        """All spans so far, in order of first offsets."""
        unfinished = [each.span(Outcome.OPEN) for each in self._open.values()]
        plain = [each.span(Outcome.PLAIN) for each in self._plain.values()]
        return sorted([*self._done, *unfinished, *plain], key=lambda span: span.first_offset)


def spans_of(batches: Iterable[ScannedBatch]) -> list[Span]:
    """The spans of these batches."""
    spans = SpanCollector()
    for batch in batches:
        spans.add(batch)
    return spans.result()


async def read_timeline(
    admin: Admin, at: TopicPartition, from_offset: int | None = None, last: int = LAST_DEFAULT
) -> PartitionTimeline:
    """The timeline of a partition: `last` offsets from `from_offset` on, or the last ones without it.

    Needs READ on the topic. Raises OffsetOutOfRangeError, UnknownTopicOrPartitionError, CorruptRecordException.
    """
    ends = (await ends_of(admin, [at]))[at]
    high = ends.high_watermark
    start = max(ends.start, high - last if from_offset is None else from_offset)
    end = high if from_offset is None else min(high, start + last)
    spans = SpanCollector()
    async for batch in scan(admin, at, start, end):
        spans.add(batch)
    found = spans.result()
    producer_ids = sorted({span.producer_id for span in found if span.outcome is not Outcome.PLAIN})
    return PartitionTimeline(
        partition=at,
        log_start=ends.start,
        start=start,
        end=max(start, end),
        last_stable_offset=ends.last_stable,
        spans=found,
        names=await transactional_ids_of(admin, producer_ids),
    )


async def transactional_ids_of(admin: Admin, producer_ids: list[int]) -> dict[int, str]:
    """The transactional ids that have these producer ids now. An id that has got a new producer id since is not
    found.
    """
    if not producer_ids:
        return {}
    return {row.producer_id: row.transactional_id for row in await admin.list_transactions(producer_ids=producer_ids)}


def timeline_facts(timeline: PartitionTimeline) -> dict[str, Any]:
    """PURE. The transactions of a partition as plain types, as `semel txn timeline --json` prints them."""
    return {
        "topic": timeline.partition.topic,
        "partition": timeline.partition.partition,
        "log_start_offset": timeline.log_start,
        "from_offset": timeline.start,
        "to_offset": timeline.end,
        "last_stable_offset": timeline.last_stable_offset,
        "transactions": [
            {
                "transactional_id": timeline.names.get(span.producer_id),
                "producer_id": span.producer_id,
                "producer_epoch": span.producer_epoch,
                "outcome": span.outcome.value,
                "first_offset": span.first_offset,
                "last_offset": span.pieces[-1][1] if span.pieces else None,
                "marker_offset": span.marker_offset,
                "records": span.record_count,
                "size_bytes": span.size_bytes,
                "began": iso(span.first_timestamp),
                "began_ms": span.first_timestamp if span.first_timestamp >= 0 else None,
                "took_ms": span.took_ms,
            }
            for span in timeline.transactions
        ],
    }
