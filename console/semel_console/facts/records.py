"""The message browser: stored records and markers of a partition, each with the outcome of its transaction.

Below the last stable offset the broker names the aborted transactions. Above it the log is scanned for markers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec
from semel import Admin, TopicPartition
from semel.diagnose import OUTCOME_OF, PartitionEnds, ends_of, fetch_stored, scan, transactional_ids_of
from semel.errors import CorruptRecordException, UnsupportedVersionError
from semel_protocol.batch import BatchHeader, CorruptBatch, iterate
from semel_protocol.control import ControlType, read_marker
from semel_protocol.messages.k01_fetch import FetchResponsePartition
from semel_protocol.records import Record, decode_batch

from semel_console.facts.filters import RecordFilter, filter_of
from semel_console.query import QueryParameters

ROWS_DEFAULT, ROWS_MAX = 100, 1_000
SHOWN_BYTES = 4_096
"""The bytes of a key, a value or a header that a listing holds. One record alone is sent whole up to FULL_BYTES."""
FULL_BYTES = 1 << 20
FETCH_BYTES = 1 << 20
FILTERED_OFFSETS_MAX = 50_000
"""The number of offsets that one request looks through for a text."""
MARKERS_MAX = 5_000
"""The number of markers that one answer holds besides its records."""
LOOK_BACK_MAX = 1_000_000
"""The number of offsets before the end that are searched for the last records."""
STEP_FACTOR = 4
LOOK_AHEAD, LOOK_AHEAD_BYTES = 20_000, 8 << 20
"""The most offsets and bytes above the last stable offset that are scanned for the markers of a piece."""
Decode = Callable[[bytes], Awaitable[str | None]]
"""The JSON of a value whose schema a registry has; None for other bytes."""


class RecordRow(msgspec.Struct, kw_only=True):
    """A record or a marker. outcome: of its transaction; `plain` outside of one; `unknown` when the marker is far
    ahead.

    key, value: base64 of at most the shown bytes; None for null. headers: pairs of a name and a value as base64.
    key_decoded, value_decoded: as JSON, if a schema registry has their schema; key_schema, value_schema: its type,
    name, version and id, in words. not_decoded: why it could not be read.
    marker: whether this is a marker, whose outcome it is.
    """

    partition: int
    offset: int
    timestamp: int
    outcome: str
    marker: bool = False
    producer_id: int
    producer_epoch: int
    transactional_id: str | None = None
    key: bytes | None = None
    value: bytes | None = None
    key_size: int = -1
    value_size: int = -1
    headers: list[tuple[str, bytes | None]] = []
    key_decoded: str | None = None
    value_decoded: str | None = None
    key_schema: str | None = None
    value_schema: str | None = None
    not_decoded: str | None = None


async def records(admin: Admin, query: QueryParameters, now_ms: int) -> dict[str, Any]:
    """Rows from a position on: `from` is earliest, latest, an offset, a time, a time ago such as -1h, or -50 for the
    last 50 records. `limit`: the number of rows; of records for the last ones, whose markers come with them.
    `contains`, `key`, `header` and `path` select records, as `filter_of` says.
    """
    at, limit = query.place, max(1, query.number("limit", ROWS_DEFAULT, most=ROWS_MAX))
    bounds = await bounds_of(admin, at)
    start = await start_of(admin, at, query, now_ms, bounds, default=f"-{limit}")
    is_tail = query.position("from", f"-{limit}", now_ms).last is not None
    wanted = filter_of(query)
    looked = Lookup(at, limit, wanted, FULL_BYTES if limit == 1 else SHOWN_BYTES, count_markers=not is_tail)
    last = bounds.high_watermark if wanted is None else min(bounds.high_watermark, start + FILTERED_OFFSETS_MAX)
    await looked.run(admin, start, last, bounds)
    names = await names_for(admin, looked.rows)
    for row in looked.rows:
        row.transactional_id = names.get(row.producer_id)
    return {
        "topic": at.topic,
        "partition": at.partition,
        "log_start_offset": bounds.start,
        "last_stable_offset": bounds.last_stable,
        "high_watermark": bounds.high_watermark,
        "from_offset": start,
        "next_offset": looked.at,
        "records": looked.rows,
    }


async def bounds_of(admin: Admin, at: TopicPartition) -> PartitionEnds:
    """The ends of a partition now."""
    return (await ends_of(admin, [at]))[at]


async def start_of(
    admin: Admin,
    at: TopicPartition,
    query: QueryParameters,
    now_ms: int,
    bounds: PartitionEnds,
    default: str = "earliest",
) -> int:
    """The offset that the parameter `from` names. Raises ValueError."""
    wanted = query.position("from", default, now_ms)
    if wanted.last is not None:
        return await _start_of_last(admin, at, wanted.last, bounds)
    if wanted.offset is not None:
        offset = wanted.offset
    else:
        assert wanted.timestamp is not None
        offset = (await admin.list_offsets({at: wanted.timestamp}))[at].offset
        offset = bounds.high_watermark if offset < 0 else offset
    return min(max(offset, bounds.start), bounds.high_watermark)


async def _start_of_last(admin: Admin, at: TopicPartition, count: int, bounds: PartitionEnds) -> int:
    """The offset of the `count`-th last record. Markers and offsets without a record do not count, so it is looked for
    further and further back.
    """
    step = count
    while count:
        first = max(bounds.start, bounds.high_watermark - step)
        runs = await _runs(admin, at, first, bounds.high_watermark)
        if sum(size for _, size in runs) >= count or first == bounds.start or step >= LOOK_BACK_MAX:
            left = count
            for start, size in reversed(runs):
                if size >= left:
                    return start + size - left
                left -= size
            return first
        step *= STEP_FACTOR
    return bounds.high_watermark


async def _runs(admin: Admin, at: TopicPartition, first: int, end: int) -> list[tuple[int, int]]:
    """The records from `first` up to `end`: runs of offsets without a gap, each with its number of records."""
    runs: list[tuple[int, int]] = []
    position = first
    while position < end:
        fetched = await fetch_stored(admin, at, position, read_committed=False, bytes_max=FETCH_BYTES)
        before = position
        try:
            for header, view in iterate(fetched.records or b""):
                if header.base_offset >= end:
                    return runs
                position = max(position, header.next_offset)
                if header.is_control:
                    continue
                if header.record_count == header.next_offset - header.base_offset:
                    start = max(first, header.base_offset)
                    runs.append((start, min(header.next_offset, end) - start))
                else:  # compaction has removed some of them
                    offsets = [record.offset for record in decode_batch(view, header)]
                    runs += [(offset, 1) for offset in offsets if first <= offset < end]
        except CorruptBatch:
            return runs  # the lookup from there on names it
        if position == before:
            break
    return runs


async def names_for(admin: Admin, rows: Iterable[RecordRow]) -> dict[int, str]:
    """The transactional ids of the producers of these rows, as far as the brokers list them."""
    producer_ids = sorted({row.producer_id for row in rows if row.outcome != "plain"})
    try:
        return await transactional_ids_of(admin, producer_ids) if producer_ids else {}
    except UnsupportedVersionError:  # before KIP-664
        return {}


class Lookup:
    """Collects rows of a partition.

    wanted: leaves out other records, and all markers. count_markers: whether `limit` is of all rows, or of records
    alone. keep_last: keep the last `limit` rows, and not the first. decode: reads values for the filter's path.
    at: the next offset to look at. looked, bytes_read: the numbers of records and bytes that were read. first_time,
    last_time: the timestamps of the first and the last record with one; -1 without. ended: markers that were left out.
    """

    def __init__(
        self,
        at: TopicPartition,
        limit: int,
        wanted: RecordFilter | None,
        shown_bytes: int = FULL_BYTES,
        *,
        count_markers: bool = True,
        keep_last: bool = False,
        decode: Decode | None = None,
    ) -> None:
        self._place, self._limit, self._wanted, self._shown_bytes = at, limit, wanted, shown_bytes
        self._count_markers, self._keep_last, self._decode = count_markers, keep_last, decode
        self.rows: list[RecordRow] = []
        self.ended: list[RecordRow] = []
        self._records = 0
        self._is_full = False
        self.at = 0
        self.looked = self.bytes_read = 0
        self.first_time = self.last_time = -1

    async def run(
        self,
        admin: Admin,
        start: int,
        end: int,
        bounds: PartitionEnds,
        *,
        outcomes: OutcomesAbove | None = None,
        fetch_bytes: int = FETCH_BYTES,
        bytes_max: int | None = None,
    ) -> None:
        """Look at the offsets from `start` up to `end`. bytes_max: stop earlier after so many bytes."""
        self.at = start
        outcomes = outcomes or OutcomesAbove()
        while self.at < end and not self._is_full:
            below = self.at < bounds.last_stable
            known = None if below else await outcomes.get(admin, self._place, bounds, self.at)
            fetched = await fetch_stored(admin, self._place, self.at, read_committed=below, bytes_max=fetch_bytes)
            before = self.at
            last = min(bounds.last_stable, end) if below else end
            try:
                await self._take(fetched, last, known)
            except CorruptBatch as e:
                where = f"{self._place.topic}-{self._place.partition} at offset {self.at}"
                raise CorruptRecordException(f"{where}: {e.message}") from e
            if self.at == before:
                self.at = last  # the rest was compacted away
            self.bytes_read += len(fetched.records or b"")
            if bytes_max is not None and self.bytes_read >= bytes_max:
                return

    async def _take(self, fetched: FetchResponsePartition, end: int, outcomes: Mapping[int, str] | None) -> None:
        """Rows of one answer, below `end`. outcomes: of the batches above the last stable offset."""
        ahead = sorted((each.first_offset, each.producer_id) for each in fetched.aborted_transactions or ())
        aborted: set[int] = set()
        for header, view in iterate(fetched.records or b""):
            if header.base_offset >= end:
                self.at = max(self.at, end)
                return
            while ahead and ahead[0][0] <= header.last_offset:
                aborted.add(ahead.pop(0)[1])
            if header.is_control:
                self._take_marker(header, view, aborted)
            else:
                outcome = _outcome_above(outcomes, header) if outcomes is not None else _outcome_below(header, aborted)
                for record in decode_batch(view, header):
                    if record.offset < self.at:
                        continue
                    if record.offset >= end:
                        self.at = end
                        return
                    if self._is_at_limit:
                        self._is_full, self.at = True, record.offset
                        return
                    await self._take_record(record, header, outcome)
            self.at = max(self.at, min(header.next_offset, end) if self._keep_last else header.next_offset)
            if self._keep_last:
                del self.rows[: -self._limit]
            elif (self._count_markers and self._is_at_limit) or len(self.rows) >= self._limit + MARKERS_MAX:
                self._is_full = True
                return
            await asyncio.sleep(0)  # other requests go on between batches

    @property
    def _is_at_limit(self) -> bool:
        if self._keep_last:
            return False
        return (len(self.rows) if self._count_markers else self._records) >= self._limit

    def _take_marker(self, header: BatchHeader, view: memoryview, aborted: set[int]) -> None:
        marker = read_marker(view, header) if header.record_count else None
        if marker is None:
            return
        if marker.control_type is ControlType.ABORT:
            aborted.discard(header.producer_id)
        if header.base_offset >= self.at:
            outcome = OUTCOME_OF[marker.control_type].value
            (self.rows if self._wanted is None else self.ended).append(
                RecordRow(
                    partition=self._place.partition,
                    offset=header.base_offset,
                    timestamp=header.max_timestamp,
                    outcome=outcome,
                    marker=True,
                    producer_id=header.producer_id,
                    producer_epoch=header.producer_epoch,
                )
            )

    async def _take_record(self, record: Record, header: BatchHeader, outcome: str) -> None:
        self.looked += 1
        if record.timestamp >= 0:
            self.first_time = record.timestamp if self.first_time < 0 else self.first_time
            self.last_time = record.timestamp
        if self._wanted is not None and not await self._is_wanted(record, self._wanted):
            return
        shown = self._shown_bytes
        self._records += 1
        self.rows.append(
            RecordRow(
                partition=self._place.partition,
                offset=record.offset,
                timestamp=record.timestamp,
                outcome=outcome,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                key=_shown(record.key, shown),
                value=_shown(record.value, shown),
                key_size=-1 if record.key is None else len(record.key),
                value_size=-1 if record.value is None else len(record.value),
                headers=[(name, _shown(value, shown)) for name, value in record.headers],
            )
        )

    async def _is_wanted(self, record: Record, wanted: RecordFilter) -> bool:
        if not wanted.matches_bytes(record):
            return False
        if not wanted.path:
            return True
        decoded = await self._decode(record.value) if self._decode is not None and record.value is not None else None
        return wanted.matches_json(record.value if decoded is None else decoded)


def _shown(data: bytes | None, size: int) -> bytes | None:
    """msgspec writes bytes as base64."""
    return None if data is None else data[:size]


def _outcome_below(header: BatchHeader, aborted: set[int]) -> str:
    """PURE. Below the last stable offset each transaction is complete."""
    if not header.is_transactional:
        return "plain"
    return "aborted" if header.producer_id in aborted else "committed"


def _outcome_above(outcomes: Mapping[int, str], header: BatchHeader) -> str:
    """PURE. outcomes: the result of `_outcomes`."""
    return outcomes.get(header.base_offset, "unknown") if header.is_transactional else "plain"


class OutcomesAbove:
    """The outcomes of batches above the last stable offset of one partition. What was scanned is kept."""

    def __init__(self) -> None:
        self._known: Mapping[int, str] = {}
        self._first = self._end = -1

    async def get(self, admin: Admin, at: TopicPartition, bounds: PartitionEnds, first: int) -> Mapping[int, str]:
        """The outcomes of the transactional batches from the offset `first` on, by base offset."""
        if not self._first <= first < self._end:
            self._known, end = await _outcomes(admin, at, bounds, first)
            self._first, self._end = first, max(end, first + 1)
        return self._known


async def _outcomes(admin: Admin, at: TopicPartition, bounds: PartitionEnds, first: int) -> tuple[dict[int, str], int]:
    """The outcome of each transactional batch from `first` on, by base offset, and the offset up to which was scanned.
    A batch without a marker within LOOK_AHEAD is left out, unless the scan reaches the end: then its transaction is
    open.
    """
    end = min(bounds.high_watermark, first + LOOK_AHEAD)
    found: dict[int, str] = {}
    waiting: dict[int, list[int]] = {}
    bytes_left = LOOK_AHEAD_BYTES
    async for batch in scan(admin, at, first, end):
        header = batch.header
        if batch.marker is not None:
            found.update(dict.fromkeys(waiting.pop(header.producer_id, ()), OUTCOME_OF[batch.marker].value))
        elif header.is_transactional:
            waiting.setdefault(header.producer_id, []).append(header.base_offset)
        bytes_left -= header.size
        if bytes_left <= 0:
            end = min(end, header.next_offset)
            break
    if end == bounds.high_watermark:
        found.update(dict.fromkeys((offset for offsets in waiting.values() for offset in offsets), "open"))
    return found, end
