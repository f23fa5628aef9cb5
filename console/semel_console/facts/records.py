"""The message browser: stored records and markers of a partition, each with the outcome of its transaction.

Below the last stable offset the broker names the aborted transactions. Above it the log is scanned for markers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from semel import Admin, TopicPartition
from semel.diagnose import OUTCOME_OF, PartitionEnds, ends_of, fetch_stored, scan, transactional_ids_of
from semel.errors import CorruptRecordException, UnsupportedVersionError
from semel_protocol.batch import BatchHeader, CorruptBatch, iterate
from semel_protocol.control import ControlType, read_marker
from semel_protocol.messages.k01_fetch import FetchResponsePartition
from semel_protocol.records import Record, decode_batch

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
LOOK_AHEAD = 20_000
"""The number of offsets above the last stable one that are scanned for markers."""


class RecordRow(msgspec.Struct, kw_only=True):
    """A record or a marker. outcome: of its transaction; `plain` outside of one; `unknown` when the marker is far
    ahead.

    key, value: base64 of at most the shown bytes; None for null. headers: pairs of a name and a value as base64.
    key_decoded, value_decoded: as JSON, if a schema registry has their schema. not_decoded: why it could not be read.
    marker: whether this is a marker, whose outcome it is.
    """

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
    not_decoded: str | None = None


async def records(admin: Admin, query: QueryParameters, now_ms: int) -> dict[str, Any]:
    """Rows from a position on: `from` is earliest, latest, an offset, a time, a time ago such as -1h, or -50 for the
    last 50 records. `limit`: the number of rows; of records for the last ones, whose markers come with them. `contains`
    selects records with this text in key, value or headers.
    """
    at, limit = query.place, max(1, query.number("limit", ROWS_DEFAULT, most=ROWS_MAX))
    bounds = await bounds_of(admin, at)
    start = await start_of(admin, at, query, now_ms, bounds, default=f"-{limit}")
    is_tail = query.position("from", f"-{limit}", now_ms).last is not None
    looked = Lookup(limit, needle_of(query), FULL_BYTES if limit == 1 else SHOWN_BYTES, count_markers=not is_tail)
    await looked.run(admin, at, start, bounds)
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


def needle_of(query: QueryParameters) -> bytes | None:
    """The text that records must contain; None without one."""
    needle = query.text("contains", "\0").encode()
    return None if needle == b"\0" else needle


async def names_for(admin: Admin, rows: Iterable[RecordRow]) -> dict[int, str]:
    """The transactional ids of the producers of these rows, as far as the brokers list them."""
    producer_ids = sorted({row.producer_id for row in rows if row.outcome != "plain"})
    try:
        return await transactional_ids_of(admin, producer_ids) if producer_ids else {}
    except UnsupportedVersionError:  # before KIP-664
        return {}


class Lookup:
    """Collects rows. count_markers: whether `limit` is of all rows, or of records alone. at: the next offset to look
    at.
    """

    def __init__(
        self, limit: int, needle: bytes | None, shown_bytes: int = FULL_BYTES, *, count_markers: bool = True
    ) -> None:
        self._limit, self._needle, self._shown_bytes, self._count_markers = limit, needle, shown_bytes, count_markers
        self.rows: list[RecordRow] = []
        self._records = 0
        self._is_full = False
        self.at = 0

    async def run(self, admin: Admin, at: TopicPartition, start: int, bounds: PartitionEnds) -> None:
        self.at = start
        last = (
            bounds.high_watermark if self._needle is None else min(bounds.high_watermark, start + FILTERED_OFFSETS_MAX)
        )
        outcomes: dict[int, str] | None = None
        while self.at < last and not self._is_full:
            below = self.at < bounds.last_stable
            if not below and outcomes is None:
                outcomes = await _outcomes(admin, at, bounds)
            fetched = await fetch_stored(admin, at, self.at, read_committed=below, bytes_max=FETCH_BYTES)
            before = self.at
            try:
                self._take(fetched, bounds.last_stable if below else last, None if below else outcomes)
            except CorruptBatch as e:
                raise CorruptRecordException(f"{at.topic}-{at.partition} at offset {self.at}: {e.message}") from e
            if self.at == before:
                self.at = bounds.last_stable if below else last  # the rest was compacted away

    def _take(self, fetched: FetchResponsePartition, end: int, outcomes: Mapping[int, str] | None) -> None:
        """Rows of one answer, below `end`. outcomes: of the batches above the last stable offset."""
        ahead = sorted((each.first_offset, each.producer_id) for each in fetched.aborted_transactions or ())
        aborted: set[int] = set()
        for header, view in iterate(fetched.records or b""):
            if header.base_offset >= end:
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
                    if self._is_at_limit:
                        self._is_full, self.at = True, record.offset
                        return
                    self._take_record(record, header, outcome)
            self.at = max(self.at, header.next_offset)
            if (self._count_markers and self._is_at_limit) or len(self.rows) >= self._limit + MARKERS_MAX:
                self._is_full = True
                return

    @property
    def _is_at_limit(self) -> bool:
        return (len(self.rows) if self._count_markers else self._records) >= self._limit

    def _take_marker(self, header: BatchHeader, view: memoryview, aborted: set[int]) -> None:
        marker = read_marker(view, header) if header.record_count else None
        if marker is None:
            return
        if marker.control_type is ControlType.ABORT:
            aborted.discard(header.producer_id)
        if header.base_offset >= self.at and self._needle is None:
            outcome = OUTCOME_OF[marker.control_type].value
            self.rows.append(
                RecordRow(
                    offset=header.base_offset,
                    timestamp=header.max_timestamp,
                    outcome=outcome,
                    marker=True,
                    producer_id=header.producer_id,
                    producer_epoch=header.producer_epoch,
                )
            )

    def _take_record(self, record: Record, header: BatchHeader, outcome: str) -> None:
        if self._needle is not None and not any(self._needle in part for part in _parts(record)):
            return
        shown = self._shown_bytes
        self._records += 1
        self.rows.append(
            RecordRow(
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


def _parts(record: Record) -> Iterator[bytes]:
    yield record.key or b""
    yield record.value or b""
    for name, value in record.headers:
        yield name.encode(errors="surrogateescape")
        yield value or b""


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


async def _outcomes(admin: Admin, at: TopicPartition, bounds: PartitionEnds) -> dict[int, str]:
    """The outcome of each transactional batch from the last stable offset on, by base offset. A batch without a marker
    within LOOK_AHEAD is left out, unless the scan reaches the end: then its transaction is open.
    """
    end = min(bounds.high_watermark, bounds.last_stable + LOOK_AHEAD)
    found: dict[int, str] = {}
    waiting: dict[int, list[int]] = {}
    async for batch in scan(admin, at, bounds.last_stable, end):
        header = batch.header
        if batch.marker is not None:
            found.update(dict.fromkeys(waiting.pop(header.producer_id, ()), OUTCOME_OF[batch.marker].value))
        elif header.is_transactional:
            waiting.setdefault(header.producer_id, []).append(header.base_offset)
    if end == bounds.high_watermark:
        found.update(dict.fromkeys((offset for offsets in waiting.values() for offset in offsets), "open"))
    return found
