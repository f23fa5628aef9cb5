"""Checks the records of a produced batch against its header: every framing byte, without creating record objects.

`check_records` is a generator that yields the cost of each step, so that a broker can serve other requests during a
large batch. Records with the same layout are compared column by column in blocks of 8,192 rows, as in `record_runs`.
All other records are read one by one. Layout: KIP-98, "record".
"""

from collections.abc import Generator

import msgspec

from semel_protocol.batch import HEADER_BYTES, NO_TIMESTAMP, BatchHeader, Bytes, CorruptBatch
from semel_protocol.compression import InflatesTooLarge, inflating
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.record_columns import RECORD_BYTES_MIN, read_headers, read_long
from semel_protocol.record_runs import FIRST_BYTES_LONG, FIRST_BYTES_SHORT, HIGH, LOW, RecordLayout, shape_of

RUN_ROWS_MIN = 32
"""Shorter runs are read one by one, which is as fast."""
STRETCH_ROWS_MIN = 32
STRETCH_ROWS_MAX = 1024
"""Rows read one by one before the next search for a run; doubled after each search without a result."""
ROW_COST = 256
"""Cost of a record that is read alone, in bytes decompressed in the same time."""
ALIKE_ROW_COST = 16
"""Cost of a record in a run, in the same unit."""
INT64_MAX = (1 << 63) - 1

SHORT_ROWS, MIDDLE_ROWS, LONG_ROWS = 1 << 6, 1 << 13, 1 << 20
"""From these rows on, the varint of the offset delta has one more byte."""
FIRST_BYTES = FIRST_BYTES_LONG * (MIDDLE_ROWS // SHORT_ROWS)
"""First bytes of the offset delta varints from row 64 on, for a block of 8,192 rows."""
SECOND_BYTES = b"".join(bytes((high,)) * SHORT_ROWS for high in range(MIDDLE_ROWS // SHORT_ROWS))
"""Second bytes of the offset delta varints of rows 64 to 8,191, by row."""
SECOND_BYTES_LONG = bytes(byte | 0x80 for byte in SECOND_BYTES)
"""Second bytes of the offset delta varints of higher rows, which have a third byte; by row % 8,192."""


EVEN = bytes(range(0, 0x100, 2))


class CheckedRecords(msgspec.Struct, kw_only=True):
    """The result of `check_records`. `data[at:]` are the decompressed records. `keyless`: the rows without a key, if
    requested. Timestamps are in ms. A record at -1 has none and does not count; both are -1 if no record counts.
    `max_timestamp` is never below -1, as in the header that Kafka stores.
    """

    data: bytes | bytearray
    at: int
    min_timestamp: int = NO_TIMESTAMP
    max_timestamp: int = NO_TIMESTAMP
    keyless: list[int] = []


class _Timestamps:
    """Minimum and maximum of zigzag timestamp deltas: of the even ones (not negative) and the odd ones (negative).

    The delta that gives timestamp -1 is that of a record without one, and is left out.
    """

    __slots__ = ("_base_timestamp", "_undated", "even_max", "even_min", "odd_max", "odd_min")

    def __init__(self, base_timestamp: int) -> None:
        delta = NO_TIMESTAMP - base_timestamp
        self._base_timestamp, self._undated = base_timestamp, delta << 1 if delta >= 0 else (-delta << 1) - 1
        self.even_max = self.odd_max = -1
        self.even_min = self.odd_min = 1 << 80

    def note(self, u: int) -> None:
        if u == self._undated:
            return
        if u & 1:
            self.odd_max, self.odd_min = max(self.odd_max, u), min(self.odd_min, u)
        else:
            self.even_max, self.even_min = max(self.even_max, u), min(self.even_min, u)

    def note_all(self, column: bytes | bytearray) -> None:
        """Take a column of deltas of one byte each."""
        for u in column[:1] if column.count(column[:1]) == len(column) else dict.fromkeys(column):
            self.note(u)

    def note_pairs(self, lows: bytes | bytearray, highs: bytes | bytearray) -> None:
        """Take two columns of deltas of two bytes each.

        Timestamps mostly ascend, so equal high bytes stand together. Then only the lowest and highest one count.
        """
        extremes = (_only_run(highs, range(0x80)), _only_run(highs, range(0x7F, -1, -1)))
        may_be_undated = 1 << 7 <= self._undated < 1 << 14
        if None in extremes or may_be_undated or lows.translate(None, EVEN):
            for low, high in dict.fromkeys(zip(lows, highs, strict=True)):
                self.note(low & 0x7F | high << 7)
            return
        for run in extremes:
            assert run is not None
            for low in dict.fromkeys(lows[run]):
                self.note(low & 0x7F | highs[run.start] << 7)

    def least_and_most(self) -> tuple[int, int]:
        """The smallest and the largest timestamp; -1 twice if there is none."""
        if self.even_max < 0 and self.odd_max < 0:
            return NO_TIMESTAMP, NO_TIMESTAMP
        least = -(self.odd_max >> 1) - 1 if self.odd_max >= 0 else self.even_min >> 1
        most = self.even_max >> 1 if self.even_max >= 0 else -(self.odd_min >> 1) - 1
        return self._base_timestamp + least, self._base_timestamp + most


def _only_run(column: bytes | bytearray, order: range) -> slice | None:
    """The slice of the first byte of `order` that occurs in `column`; None if its positions are not adjacent."""
    byte = next(byte for byte in order if byte in column)
    run = slice(column.find(byte), column.rfind(byte) + 1)
    return run if column.count(byte) == run.stop - run.start else None


def check_records(
    buf: Bytes, header: BatchHeader, *, bytes_max: int, wants_keyless: bool = False
) -> Generator[int, None, CheckedRecords]:
    """Check the records of the batch at the start of `buf` in steps; `check_produced` has accepted its header.

    Each step yields its cost in bytes decompressed. Raises KafkaError: INVALID_RECORD for records that contradict the
    header or themselves, or an invalid blob; MESSAGE_TOO_LARGE for a batch that decompresses to more than `bytes_max`
    bytes (producers then split it).
    """
    try:
        if header.codec:
            blob = memoryview(buf)[HEADER_BYTES : header.size]
            checked = CheckedRecords(data=(yield from inflating(header.codec, blob, bytes_max)), at=0)
        else:
            checked = CheckedRecords(data=bytes(memoryview(buf)[: header.size]), at=HEADER_BYTES)
        yield from _check(checked, header, checked.keyless if wants_keyless else None)
    except InflatesTooLarge as error:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{error.message}; send smaller batches") from None
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, error.message) from None
    except IndexError:
        raise KafkaError(ErrorCode.INVALID_RECORD, "the last record is cut short") from None
    return checked


def _check(checked: CheckedRecords, header: BatchHeader, keyless: list[int] | None) -> Generator[int, None, None]:
    data, at, count = checked.data, checked.at, header.record_count
    if count * RECORD_BYTES_MIN > len(data) - at:
        raise CorruptBatch(f"{len(data) - at} bytes cannot hold {count} records")
    timestamps = _Timestamps(header.base_timestamp)
    row = 0
    stretch = STRETCH_ROWS_MIN
    while row < count:
        end = None if count - row < RUN_ROWS_MIN else _run_end(data, at, row, count, timestamps, keyless)
        if end is None:
            row_end = min(count, row + stretch)
            at = _rows(data, at, row, row_end, timestamps, keyless)
            cost = (row_end - row) * ROW_COST
            stretch = min(stretch * 2, STRETCH_ROWS_MAX)
        else:
            row_end, at = end
            cost = (row_end - row) * ALIKE_ROW_COST
            stretch = STRETCH_ROWS_MIN
        row = row_end
        yield cost
    if at != len(data):
        raise CorruptBatch(f"{len(data) - at} bytes follow the last of {count} records")
    least, most = timestamps.least_and_most()
    for timestamp in (least, most):
        if not -INT64_MAX - 1 <= timestamp <= INT64_MAX:
            raise CorruptBatch(f"timestamp {timestamp} exceeds 64 bits")
    checked.min_timestamp, checked.max_timestamp = least, max(most, NO_TIMESTAMP)


def _rows(  # noqa: C901 (one pass, as in `record_columns`: one call per field would double the cost)
    data: bytes | bytearray, at: int, row: int, row_end: int, timestamps: _Timestamps, keyless: list[int] | None
) -> int:
    """Check the records `row` to `row_end`, the first at position `at`; return the position after the last.

    As in `record_columns`: integers are raw zigzag, odd ones are negative. A length beyond the end raises IndexError at
    the next byte.
    """
    even_min, even_max = timestamps.even_min, timestamps.even_max
    for n in range(row, row_end):
        length = data[at]
        at += 1
        if length >= 0x80:
            length, at = (length & 0x7F | c << 7, at + 1) if (c := data[at]) < 0x80 else read_long(data, at, length)
        start = at
        u = data[at + 1]
        at += 2
        if u >= 0x80:
            u, at = (u & 0x7F | c << 7, at + 1) if (c := data[at]) < 0x80 else read_long(data, at, u)
        if u & 1 or u > even_max or u < even_min:
            timestamps.note(u)
            even_min, even_max = timestamps.even_min, timestamps.even_max
        u = data[at]
        at += 1
        if u >= 0x80:
            u, at = (u & 0x7F | c << 7, at + 1) if (c := data[at]) < 0x80 else read_long(data, at, u)
        if u != n + n:
            raise CorruptBatch(f"record {n} has offset delta {(u >> 1) ^ -(u & 1)}")
        u = data[at]
        at += 1
        if u != 1:
            if u >= 0x80:
                u, at = read_long(data, at, u)
            if u & 1:
                raise CorruptBatch(f"record {n} has a key of length {-(u >> 1) - 1}")
            at += u >> 1
        elif keyless is not None:
            keyless.append(n)
        u = data[at]
        at += 1
        if u != 1:
            if u >= 0x80:
                u, at = (u & 0x7F | c << 7, at + 1) if (c := data[at]) < 0x80 else read_long(data, at, u)
            if u & 1:
                raise CorruptBatch(f"record {n} has a value of length {-(u >> 1) - 1}")
            at += u >> 1
        if data[at]:
            _, at = read_headers(data, at)
        else:
            at += 1
        if at + at - start - start != length:
            raise CorruptBatch(f"record {n} states {length / 2:g} bytes and has {at - start}")
    return at


def _run_end(
    data: bytes | bytearray, at: int, row: int, row_end: int, timestamps: _Timestamps, keyless: list[int] | None
) -> tuple[int, int] | None:
    """The row and position after the run that starts with `row` at position `at`; None if the run is too short."""
    shape = shape_of(data, at, row)
    if shape is None:
        return None
    block = SHORT_ROWS - row if row < SHORT_ROWS else MIDDLE_ROWS - row % MIDDLE_ROWS
    count = min(block, row_end - row, (len(data) - at) // shape.size)
    if count < RUN_ROWS_MIN or row + count > LONG_ROWS:
        return None
    if _alike(data, at, row, RUN_ROWS_MIN, shape) < RUN_ROWS_MIN:  # most differences show in the first rows
        return None
    count = _alike(data, at, row, count, shape)
    if count < RUN_ROWS_MIN:
        return None
    end = at + count * shape.size
    firsts = data[at + shape.timestamp_at : end : shape.size]
    if shape.offset_at - shape.timestamp_at == 1:
        timestamps.note_all(firsts)
    else:
        timestamps.note_pairs(firsts, data[at + shape.timestamp_at + 1 : end : shape.size])
    if keyless is not None and shape.key_bytes < 0:
        keyless.extend(range(row, row + count))
    return row + count, end


def _alike(data: bytes | bytearray, at: int, row: int, count: int, shape: RecordLayout) -> int:
    """The number of records, all in one block, with the layout of the first one and consecutive offset deltas."""
    size = shape.size
    steady = [
        *range(shape.timestamp_at - 1),
        *range(shape.offset_at + 2, shape.key_length_at + 1),
        *range(shape.value_length_at, shape.value_at),
        size - 1,
    ]
    if row < SHORT_ROWS:
        steady.append(shape.key_length_at)
    for place in steady:
        column = data[at + place : at + count * size : size]
        if column.count(column[:1]) != count:
            count -= len(column.lstrip(column[:1]))
    for place in range(shape.timestamp_at, shape.offset_at):
        column = data[at + place : at + count * size : size]
        is_last = place == shape.offset_at - 1
        if not column.isascii() if is_last else column.translate(None, HIGH):
            count -= len(column.lstrip(LOW if is_last else HIGH))
    if row < SHORT_ROWS:
        numbers = [(0, FIRST_BYTES_SHORT, row)]
    else:
        seconds = SECOND_BYTES if row < MIDDLE_ROWS else SECOND_BYTES_LONG
        numbers = [(0, FIRST_BYTES, row % SHORT_ROWS), (1, seconds, row % MIDDLE_ROWS)]
    for place, expected, first in numbers:
        column = data[at + shape.offset_at + place : at + count * size : size]
        if column != expected[first : first + count]:
            return 0
    return count
