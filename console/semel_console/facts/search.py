"""Records of all partitions of a topic, or of one, in the order of time: a page, and from where the next one begins.

Each partition is read in the order of its offsets, backward or forward, in small pieces. The next row is that of the
partition whose next record is the newest (the oldest). A record out of order holds no other back: the time of a
partition's next row is the newest (the oldest) of the rows at and behind it that are loaded. A record without a
timestamp takes this time.

One request is bounded in time and bytes. A cursor holds the position in each partition, so a search continues where
it ended, and pages neither overlap nor leave a record out.
"""

from __future__ import annotations

import asyncio
import heapq
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from semel import Admin, TopicPartition
from semel.admin import EARLIEST
from semel.diagnose import PartitionEnds, known_offsets
from semel.errors import CorruptRecordException, UnknownTopicOrPartitionError

from semel_console.answers import words_of
from semel_console.facts.cluster import ends_of
from semel_console.facts.filters import RecordFilter, filter_of
from semel_console.facts.records import SHOWN_BYTES, Decode, Lookup, OutcomesAbove, RecordRow, names_for, start_of
from semel_console.query import QueryParameters

ROWS_DEFAULT, ROWS_MAX = 100, 500
SEARCH_S = 1.5
SEARCH_BYTES = 16 << 20
"""The most time and bytes of one request. At least one piece is read."""
PIECE_BYTES = 2 << 20
"""A piece backward with more bytes is read again, with fewer offsets."""
FETCH_BYTES_MIN, FETCH_BYTES_MAX = 16 << 10, 256 << 10
RECORD_BYTES = 1_024
"""An estimate, for the size of a fetch."""
PIECE_ROWS_MIN = 4
FILTERED_OFFSETS = 64
"""The number of offsets that the first piece has with a filter; later ones grow where few records fit."""
OFFSETS_MAX = 1 << 22
STEP_FACTOR = 4
FIRST_LOADS = 8
"""The number of partitions whose first piece is read at the same time."""
PARTITIONS_MAX = 2_000
"""A cursor is a part of the address of a request."""
NEWEST, OLDEST = "newest", "oldest"
PARAMETERS = (
    "topic", "partition", "order", "from", "cursor", "limit", "contains", "key", "header", "path", "watch",
)  # fmt: skip
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
POSITION = re.compile(r"([0-9a-z]{1,6})-([0-9a-z]{1,13})(?:-([0-9a-z]{1,13}))?")


class ReadPosition(msgspec.Struct, frozen=True):
    """The offset at which the reading of a partition continues; backward it begins below it. time: of the next row, in
    ms, if it is known; -1 for a row without one.
    """

    offset: int
    time: int | None = None


def _in_base_36(number: int) -> str:
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = DIGITS[digit] + digits
        if not number:
            return digits


def cursor_text(order: str, positions: Mapping[int, ReadPosition]) -> str:
    """PURE. The positions of the partitions as a text for an address. Times are counted from -1, which is none."""
    parts = [order]
    for partition, position in sorted(positions.items()):
        part = f"{_in_base_36(partition)}-{_in_base_36(position.offset)}"
        parts.append(part if position.time is None else f"{part}-{_in_base_36(max(0, position.time + 1))}")
    return "_".join(parts)


def read_cursor(text: str) -> tuple[str, dict[int, ReadPosition]]:
    """PURE. The order and the positions of a cursor. Raises ValueError."""
    order, *parts = text.split("_")
    found: dict[int, ReadPosition] = {}
    for part in parts:
        match = POSITION.fullmatch(part)
        if match is None:
            raise ValueError(f"the cursor has the part {part!r}, which is no position: begin without a cursor")
        found[int(match[1], 36)] = ReadPosition(int(match[2], 36), None if match[3] is None else int(match[3], 36) - 1)
    if order not in (NEWEST, OLDEST) or not found:
        raise ValueError("the cursor is not one of this page: begin without a cursor")
    return order, found


class PartitionReader:
    """Reads one partition piece by piece, backward or forward.

    position: of the first row that was not taken. rows: loaded rows with their times, the next one last. looked,
    bytes_read: the numbers of records and bytes read. ended: markers that the filter left out.
    """

    def __init__(
        self,
        at: TopicPartition,
        bounds: PartitionEnds,
        position: ReadPosition,
        *,
        is_backward: bool,
        wanted: RecordFilter | None,
        rows_max: int,
        decode: Decode | None,
    ) -> None:
        self.at, self.bounds = at, bounds
        self.position = ReadPosition(min(max(position.offset, bounds.start), bounds.high_watermark), position.time)
        self.rows: list[tuple[int, RecordRow]] = []
        self.looked = self.bytes_read = 0
        self.ended: list[RecordRow] = []
        self.problem: str | None = None
        self._is_backward, self._wanted, self._rows_max, self._decode = is_backward, wanted, rows_max, decode
        self._offsets = FILTERED_OFFSETS if wanted is not None else rows_max
        self._outcomes = OutcomesAbove()
        self._behind = self.position.offset
        """The position behind the loaded rows."""

    @property
    def is_at_end(self) -> bool:
        """Whether there is nothing more to load or to take."""
        end = self.bounds.start if self._is_backward else self.bounds.high_watermark
        return not self.rows and (self._behind == end or self.problem is not None)

    @property
    def is_at_begin(self) -> bool:
        """Whether nothing is before the position."""
        return self.position.offset == (self.bounds.high_watermark if self._is_backward else self.bounds.start)

    def take(self) -> RecordRow:
        """The next row; the position moves past it."""
        _, row = self.rows.pop()
        if not self.rows:
            self.position = ReadPosition(self._behind, self.position.time)
        else:
            self.position = ReadPosition(row.offset if self._is_backward else row.offset + 1, self.rows[-1][0])
        return row

    async def load(self, admin: Admin) -> None:
        """Load the next piece, which may have no row. A damaged batch ends the partition, with a sentence."""
        try:
            await (self._load_backward(admin) if self._is_backward else self._load_forward(admin))
        except CorruptRecordException as e:
            self.problem = words_of(e)

    async def _load_forward(self, admin: Admin) -> None:
        looked = await self._look(admin, self._behind, self.bounds.high_watermark)
        self.ended += looked.ended
        self._behind = looked.at
        self._grow(looked)
        self._keep(looked.rows, looked.last_time)

    async def _load_backward(self, admin: Admin) -> None:
        while True:
            end = self._behind
            start = max(self.bounds.start, end - self._offsets)
            looked = await self._look(admin, start, end)
            if looked.at >= end or end - start == 1:
                break
            self._offsets = max(1, self._offsets // (2 * STEP_FACTOR))
        if looked.bytes_read < FETCH_BYTES_MAX:
            self._grow(looked)
        is_cut = len(looked.rows) == self._rows_max
        self._behind = looked.rows[0].offset if is_cut else start
        self._keep(looked.rows, looked.rows[0].timestamp if is_cut else looked.first_time)

    def _grow(self, looked: Lookup) -> None:
        if len(looked.rows) <= self._rows_max // 2:
            self._offsets = min(OFFSETS_MAX, self._offsets * STEP_FACTOR)

    async def _look(self, admin: Admin, start: int, end: int) -> Lookup:
        looked = Lookup(
            self.at, self._rows_max, self._wanted, SHOWN_BYTES, keep_last=self._is_backward, decode=self._decode
        )
        fetch_bytes = min(max(self._offsets * RECORD_BYTES, FETCH_BYTES_MIN), FETCH_BYTES_MAX)
        try:
            await looked.run(
                admin,
                start,
                end,
                self.bounds,
                outcomes=self._outcomes,
                fetch_bytes=fetch_bytes,
                bytes_max=PIECE_BYTES if self._is_backward else fetch_bytes,
            )
        finally:
            self.bytes_read += looked.bytes_read
            self.looked += looked.looked
        return looked

    def _keep(self, rows: list[RecordRow], last_time: int) -> None:
        """Keep the rows in the order of taking, the next one last. last_time: of the last record of the piece."""
        best = max if self._is_backward else min
        in_reverse = rows if self._is_backward else rows[::-1]
        dated = [row.timestamp for row in in_reverse if row.timestamp >= 0]
        time = dated[0] if dated else -1
        self.rows = []
        for row in in_reverse:
            time = best(time, row.timestamp) if row.timestamp >= 0 else time
            self.rows.append((time, row))
        if self.rows:
            self.position = ReadPosition(self.position.offset, self.rows[-1][0])
        else:
            known = -1 if self.position.time is None else self.position.time
            self.position = ReadPosition(self._behind, known if last_time < 0 else last_time)


class RecordSearch:
    """Takes rows of several partitions in the order of time, until there are enough, or the time or the bytes are over.

    rows: pairs of the time and the row, as they were taken.
    """

    def __init__(self, readers: Iterable[PartitionReader], *, is_backward: bool, limit: int) -> None:
        self.readers = list(readers)
        self.rows: list[tuple[int, RecordRow]] = []
        self._sign, self._limit = -1 if is_backward else 1, limit
        self._heap: list[tuple[int, int, PartitionReader]] = []

    async def run(self, admin: Admin) -> None:
        deadline = asyncio.get_running_loop().time() + SEARCH_S
        unknown = [each for each in self.readers if each.position.time is None and not each.is_at_end]
        for first in range(0, len(unknown), FIRST_LOADS):
            if first and self._is_over(deadline):
                return  # without the first row of each partition no row is the next one
            await asyncio.gather(*(each.load(admin) for each in unknown[first : first + FIRST_LOADS]))
        for each in self.readers:
            self._push(each)
        may_load = True  # at least one piece: each request comes further
        while self._heap and len(self.rows) < self._limit:
            reader = self._heap[0][2]
            if not reader.rows and not may_load:
                return
            heapq.heappop(self._heap)
            if reader.rows:
                time = reader.rows[-1][0]
                self.rows.append((time, reader.take()))
            else:
                await reader.load(admin)
                may_load = not self._is_over(deadline)
            self._push(reader)

    def _push(self, reader: PartitionReader) -> None:
        if not reader.is_at_end:
            time = reader.position.time if reader.position.time is not None else -1
            heapq.heappush(self._heap, (self._sign * time, self._sign * reader.at.partition, reader))

    def _is_over(self, deadline: float) -> bool:
        return (
            asyncio.get_running_loop().time() >= deadline
            or sum(each.bytes_read for each in self.readers) >= SEARCH_BYTES
        )

    @property
    def reached_ms(self) -> int | None:
        """Up to this time all partitions were searched; None at the end, and where it is not known."""
        left = [each.position.time for each in self.readers if not each.is_at_end]
        if not left or None in left:
            return None
        times = [each for each in left if each is not None and each >= 0]
        return (max(times) if self._sign < 0 else min(times)) if times else None

    def sorted_rows(self) -> list[RecordRow]:
        """The rows by timestamp, partition and offset, in the order of reading. A row without a timestamp has the time
        at which it was taken.
        """

        def rank(taken: tuple[int, RecordRow]) -> tuple[int, int, int]:
            time, row = taken
            return (row.timestamp if row.timestamp >= 0 else time, row.partition, row.offset)

        return [row for _, row in sorted(self.rows, key=rank, reverse=self._sign < 0)]


async def search(admin: Admin, query: QueryParameters, now_ms: int, *, decode: Decode | None = None) -> dict[str, Any]:
    """A page of records of a topic, of all its partitions or of `partition`, in the order of time.

    order: `newest` reads backward from the end, or from the time `from`; `oldest` reads forward from the beginning, or
    from `from`. In one partition `from` may also be an offset, or with `oldest` a number of last records. cursor:
    continues where an answer ended; it has the order, too. contains, key, header, path: as in `filter_of`.

    The answer has `cursor` for the next page in the same direction, and `back` for the page before it in the other
    one. `begins`: nothing is before it; `done`: nothing is behind it. `looked`, `bytes`: what was read; `reached_ms`:
    up to which time. `ended`: markers that a filter left out. `left_out`: partitions whose leader does not answer.
    """
    query.only(*PARAMETERS)
    topic, limit = query.text("topic"), max(1, query.number("limit", ROWS_DEFAULT, most=ROWS_MAX))
    wanted = filter_of(query)
    bounds, left_out = await _bounds(admin, query, topic)
    cursor = query.text("cursor", "\0")
    if cursor != "\0":
        order, positions = read_cursor(cursor)
    else:
        order = query.choice("order", (NEWEST, OLDEST), NEWEST)
        positions = await _first_positions(admin, query, now_ms, bounds, is_backward=order == NEWEST)
    is_backward = order == NEWEST
    readers = [
        PartitionReader(
            at,
            ends,
            positions.get(at.partition, ReadPosition(0 if is_backward else ends.start)),
            is_backward=is_backward,
            wanted=wanted,
            rows_max=min(limit, max(PIECE_ROWS_MIN, 2 * limit // len(bounds))),
            decode=decode,
        )
        for at, ends in bounds.items()
    ]
    back = {each.at.partition: ReadPosition(each.position.offset) for each in readers}
    begins = all(each.is_at_begin for each in readers)
    found = RecordSearch(readers, is_backward=is_backward, limit=limit)
    await found.run(admin)
    rows = found.sorted_rows()
    names = await names_for(admin, rows)
    for row in rows:
        row.transactional_id = names.get(row.producer_id)
    return {
        "topic": topic,
        "order": order,
        "partitions": [
            [at.partition, ends.start, ends.last_stable, ends.high_watermark] for at, ends in bounds.items()
        ],
        "records": rows,
        "ended": [row for each in readers for row in each.ended],
        "cursor": cursor_text(order, {each.at.partition: each.position for each in readers}),
        "back": cursor_text(OLDEST if is_backward else NEWEST, back),
        "begins": begins,
        "done": all(each.is_at_end for each in readers),
        "looked": sum(each.looked for each in readers),
        "bytes": sum(each.bytes_read for each in readers),
        "reached_ms": found.reached_ms,
        "left_out": left_out,
        "problems": [each.problem for each in readers if each.problem is not None],
    }


async def _bounds(
    admin: Admin, query: QueryParameters, topic: str
) -> tuple[dict[TopicPartition, PartitionEnds], list[int]]:
    """The ends of the wanted partitions, and the partitions whose leader does not answer."""
    (described,) = await admin.describe_topics([topic])
    wanted = list(described.partitions)
    if query.text("partition", ""):
        number = query.place.partition
        wanted = [each for each in wanted if each.partition == number]
        if not wanted:
            raise UnknownTopicOrPartitionError(
                f"There is no partition {number} in topic {topic!r}: it has {len(described.partitions)}"
            )
    if len(wanted) > PARTITIONS_MAX:
        raise ValueError(
            f"topic {topic!r} has {len(wanted)} partitions, more than {PARTITIONS_MAX}: choose one of them"
        )
    live = (await admin.describe_cluster()).brokers
    starts = await known_offsets(admin, wanted, live, EARLIEST)
    ends = await ends_of(admin, wanted, live)
    bounds = {at: PartitionEnds(starts[at], *ends[at]) for at in sorted(starts) if at in ends}
    left_out = [each.partition for each in wanted if TopicPartition(topic, each.partition) not in bounds]
    return bounds, sorted(left_out)


async def _first_positions(
    admin: Admin,
    query: QueryParameters,
    now_ms: int,
    bounds: Mapping[TopicPartition, PartitionEnds],
    *,
    is_backward: bool,
) -> dict[int, ReadPosition]:
    """The positions that the parameter `from` names. Raises ValueError."""
    default = "latest" if is_backward else "earliest"
    start = query.position("from", default, now_ms)
    if start.timestamp is None:
        if query.text("partition", "") == "":
            raise ValueError(
                "an offset, or a number of last records, is a position in one partition: choose the partition, or a "
                "time such as 2026-11-22T08:00 or -1h"
            )
        return {
            at.partition: ReadPosition(await start_of(admin, at, query, now_ms, ends)) for at, ends in bounds.items()
        }
    if start.timestamp < 0:
        is_start = start.timestamp == EARLIEST
        return {
            at.partition: ReadPosition(ends.start if is_start else ends.high_watermark) for at, ends in bounds.items()
        }
    found = await admin.list_offsets(dict.fromkeys(bounds, start.timestamp)) if bounds else {}
    return {
        at.partition: ReadPosition(ends.high_watermark if found[at].offset < 0 else found[at].offset)
        for at, ends in bounds.items()
    }
