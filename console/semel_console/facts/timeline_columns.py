"""The transactions of a partition in columns, straight from the stored batches: 100,000 of them within a second."""

from __future__ import annotations

import msgspec
from semel import Admin, TopicPartition
from semel.diagnose import OUTCOME_OF, Outcome, fetch_stored
from semel.errors import CorruptRecordException
from semel_protocol.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    PREFIX_BYTES,
    TRANSACTIONAL,
    Bytes,
    CorruptBatch,
    read_header,
)
from semel_protocol.control import read_marker

OUTCOMES = (Outcome.COMMITTED, Outcome.ABORTED, Outcome.OPEN, Outcome.PLAIN)
OPEN, PLAIN = OUTCOMES.index(Outcome.OPEN), OUTCOMES.index(Outcome.PLAIN)
KINDS = {int(kind): OUTCOMES.index(outcome) for kind, outcome in OUTCOME_OF.items()}
"""The outcome of a transaction by the type of its marker."""
KEY_SIZE_AT, KIND_AT = HEADER_BYTES + 4, HEADER_BYTES + 8
"""Places in the batch of a marker as brokers write it: four fields of one byte each, the size of the key, the key."""
KEY_SIZE = 8
"""Four bytes, as a varint: a version and the type."""


class TimelineColumns(msgspec.Struct):
    """One entry a transaction, in order of first offsets; a run outside of transactions is an entry, too.

    producer: index in the list of producers. outcome: index in OUTCOMES. marker: -1 without one. Times are in ms, -1
    without one.
    """

    producer: list[int] = []
    epoch: list[int] = []
    outcome: list[int] = []
    first: list[int] = []
    last: list[int] = []
    marker: list[int] = []
    records: list[int] = []
    bytes: list[int] = []
    began: list[int] = []
    ended: list[int] = []


class ColumnScan:
    """Collects batches in offset order. index_of: producer ids with their indexes in the columns, in order."""

    def __init__(self) -> None:
        self.columns = TimelineColumns()
        self.index_of: dict[int, int] = {}
        self._open: dict[int, int] = {}
        self._run: dict[int, int] = {}

    def take(self, records: Bytes, start: int, end: int) -> int:
        """Take the complete batches with offsets from `start` to `end` - 1. Returns the offset after the last batch;
        `start` without one.

        Raises CorruptBatch.
        """
        view, size, at, reached = memoryview(records), len(records), 0, start
        unpack = HEADER.unpack_from
        while size - at >= HEADER_BYTES:
            offset, length, _, _, _, attributes, delta, began, ended, producer_id, epoch, _, count = unpack(view, at)
            after = at + PREFIX_BYTES + length
            if length < HEADER_BYTES - PREFIX_BYTES:
                read_header(view, at)  # raises CorruptBatch
            if after > size or offset >= end:
                return reached
            last = offset + delta
            if last >= start:
                if attributes & CONTROL:
                    kind = None
                    if count == 1 and view[at + KEY_SIZE_AT] == KEY_SIZE and not attributes & CODEC_MASK:
                        kind = KINDS.get(view[at + KIND_AT])
                    elif count:
                        kind = _kind_of(view[at:after])
                    if kind is not None:
                        self._end(kind, producer_id, epoch, offset, ended)
                elif attributes & TRANSACTIONAL:
                    self._add(producer_id, epoch, offset, last, count, after - at, began)
                else:
                    self._add_plain(producer_id, epoch, offset, last, began)
            reached = max(reached, last + 1)
            at = after
        return reached

    def _add(self, producer_id: int, epoch: int, first: int, last: int, count: int, size: int, began: int) -> None:
        at = self._open.get(producer_id)
        if at is None:
            self._open[producer_id] = self._new(producer_id, epoch, OPEN, first, last, count, size, began)
        else:
            columns = self.columns
            columns.last[at] = last
            columns.records[at] += count
            columns.bytes[at] += size

    def _add_plain(self, producer_id: int, epoch: int, first: int, last: int, began: int) -> None:
        """Batches of a producer that follow one another directly are one run."""
        at, columns = self._run.get(producer_id), self.columns
        if at is not None and columns.last[at] + 1 >= first:
            columns.last[at] = last
            columns.records[at] = last - columns.first[at] + 1
        else:
            self._run[producer_id] = self._new(producer_id, epoch, PLAIN, first, last, last - first + 1, -1, began)

    def _end(self, outcome: int, producer_id: int, epoch: int, offset: int, ended: int) -> None:
        columns = self.columns
        at = self._open.pop(producer_id, None)
        if at is None:  # its records lie before the range
            at = self._new(producer_id, epoch, OPEN, offset, offset, 0, 0, -1)
        columns.outcome[at] = outcome
        columns.marker[at] = offset
        columns.ended[at] = ended

    def _new(
        self, producer_id: int, epoch: int, outcome: int, first: int, last: int, count: int, size: int, began: int
    ) -> int:
        columns, index_of = self.columns, self.index_of
        producer = index_of.get(producer_id)
        if producer is None:
            producer = index_of[producer_id] = len(index_of)
        columns.producer.append(producer)
        columns.epoch.append(epoch)
        columns.outcome.append(outcome)
        columns.first.append(first)
        columns.last.append(last)
        columns.marker.append(-1)
        columns.records.append(count)
        columns.bytes.append(size)
        columns.began.append(began)
        columns.ended.append(-1)
        return len(columns.first) - 1


def _kind_of(batch: memoryview) -> int | None:
    """PURE. The outcome that a control batch of another form tells; None for another type."""
    marker = read_marker(batch, read_header(batch))
    return None if marker is None else KINDS[marker.control_type]


async def scan_columns(admin: Admin, at: TopicPartition, start: int, end: int) -> ColumnScan:
    """The transactions of the offsets from `start` to `end` - 1.

    Raises OffsetOutOfRangeError, UnknownTopicOrPartitionError, CorruptRecordException.
    """
    found = ColumnScan()
    position = start
    while position < end:
        row = await fetch_stored(admin, at, position)
        try:
            reached = found.take(row.records or b"", position, end)
        except CorruptBatch as e:
            raise CorruptRecordException(f"{at.topic}-{at.partition} at offset {position}: {e.message}") from e
        if reached == position:
            break  # the rest was compacted away, or truncated
        position = reached
    return found
