"""Decodes the records of a batch into columns; this is the hot path of the consumer.

Columns let the caller build its own rows in one pass (`list(map(Row, columns.offsets, columns.timestamps, …))`)
without an intermediate object per record.
Layout: KIP-98, "record"; every integer is a zigzag varint.
"""

from collections.abc import Sequence

import msgspec

from semel_protocol.batch import HEADER_BYTES, BatchHeader, Bytes, CorruptBatch, read_header
from semel_protocol.compression import BYTES_MAX, decompress
from semel_protocol.record_runs import RUN_ROWS_MIN, take_run
from semel_protocol.varint import VARLONG_BYTES_MAX, read_varint

Headers = tuple[tuple[str, bytes | None], ...]

RECORD_BYTES_MIN = 7
"""Length, attributes, timestamp delta, offset delta, key length, value length, header count: at least a byte each."""
RECORD_HEADER_BYTES_MIN = 2
STRETCH_ROWS_MIN = 16
STRETCH_ROWS_MAX = 1024
"""Rows read one by one before the next search for a run; doubled after each search without a result."""
NO_HEADERS: list[Headers] = [()]


class Columns(msgspec.Struct, frozen=True, gc=False):
    """The records of one batch as columns of equal length. Offsets ascend; timestamps are in ms."""

    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers]


def decode_columns(buf: Bytes, header: BatchHeader | None = None, *, bytes_max: int = BYTES_MAX) -> Columns:
    """Decode the records of the batch at the start of `buf`. Pass `header` if it has been read already.

    Decompressed records take at most `bytes_max` bytes. Raises CorruptBatch if the records contradict the header or
    themselves (count, lengths, offsets, codec). The caller checks the CRC.
    """
    if header is None:
        header = read_header(buf)
    if len(buf) < header.size:
        raise CorruptBatch(f"the batch states {header.size} bytes, {len(buf)} are left")
    codec = header.codec
    if codec:
        data = decompress(codec, memoryview(buf)[HEADER_BYTES : header.size], bytes_max)
        at = 0
    else:
        data = bytes(memoryview(buf)[: header.size])
        at = HEADER_BYTES
    count = header.record_count
    if count < 0 or count * RECORD_BYTES_MIN > len(data) - at:
        raise CorruptBatch(f"{len(data) - at} bytes cannot hold {count} records")
    if count > header.last_offset_delta + 1:
        raise CorruptBatch(f"{count} records do not fit into offset deltas up to {header.last_offset_delta}")
    try:
        return _scan(data, at, header)
    except IndexError:
        raise CorruptBatch("the last record is cut short") from None


def _scan(data: bytes, at: int, header: BatchHeader) -> Columns:
    """Read all records from `at` on; raise CorruptBatch if bytes are left."""
    columns = _Columns()
    count = header.record_count
    base_timestamp = header.base_timestamp
    dense = _dense(header)
    row = 0
    stretch = STRETCH_ROWS_MIN
    while row < count:
        run = take_run(data, at, row, count) if dense and count - row >= RUN_ROWS_MIN else None
        if run is None:
            row_end = min(count, row + stretch)
            at = _rows(data, at, row, row_end, header, columns)
            row = row_end
            stretch = min(stretch * 2, STRETCH_ROWS_MAX)
        else:
            columns.timestamps += [base_timestamp + delta for delta in run.timestamp_deltas]
            columns.keys += run.keys
            columns.values += run.values
            at = run.end
            row = len(columns.values)
            stretch = STRETCH_ROWS_MIN
    if at != len(data):
        raise CorruptBatch(f"{len(data) - at} bytes follow the last of {count} records")
    return columns.finish(header)


class _Columns:
    """Columns under construction. Dense offsets and missing headers, the common case, are not stored."""

    __slots__ = ("deltas", "headers", "keys", "timestamps", "values")

    def __init__(self) -> None:
        self.deltas: list[int] = []
        self.timestamps: list[int] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: dict[int, Headers] = {}

    def add_delta(self, u: int, header: BatchHeader) -> None:
        """Add the offset delta of the raw zigzag value `u`, in a batch whose offsets are not dense.

        Raises CorruptBatch unless deltas ascend and do not exceed the last offset delta of the header.
        """
        delta = u >> 1
        previous = self.deltas[-1] if self.deltas else -1
        if u & 1 or not previous < delta <= header.last_offset_delta or _dense(header):
            raise CorruptBatch(
                f"offset delta {(u >> 1) ^ -(u & 1)} after {previous}, of {header.last_offset_delta} at most"
            )
        self.deltas.append(delta)

    def finish(self, header: BatchHeader) -> Columns:
        count = header.record_count
        base = header.base_offset
        offsets = range(base, base + count) if _dense(header) else [base + delta for delta in self.deltas]
        timestamps = [header.max_timestamp] * count if header.log_append_time else self.timestamps
        by_row = self.headers
        headers = [by_row.get(row, ()) for row in range(count)] if by_row else NO_HEADERS * count
        return Columns(offsets, timestamps, self.keys, self.values, headers)


def _dense(header: BatchHeader) -> bool:
    """Whether compaction removed no record, so that record n has offset delta n."""
    return header.record_count == header.last_offset_delta + 1


def _rows(data: bytes, at: int, row: int, row_end: int, header: BatchHeader, columns: _Columns) -> int:
    """Read the records `row` to `row_end`, the first at position `at`; return the position after the last.

    Integers of one and two bytes are read inline as raw zigzag (odd ones are negative), longer ones by `read_long`.
    A length beyond the end raises IndexError at the next byte. A wrong length raises CorruptBatch at the record's end.
    """
    base_timestamp = header.base_timestamp
    dense = _dense(header)
    add_timestamp, add_key, add_value = columns.timestamps.append, columns.keys.append, columns.values.append
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
        add_timestamp(base_timestamp + ((u >> 1) ^ -(u & 1)))
        u = data[at]
        at += 1
        if u >= 0x80:
            u, at = (u & 0x7F | c << 7, at + 1) if (c := data[at]) < 0x80 else read_long(data, at, u)
        if u != n + n or not dense:
            columns.add_delta(u, header)
        u = data[at]
        at += 1
        if u == 1:
            add_key(None)
        else:
            if u >= 0x80:
                u, at = read_long(data, at, u)
            if u & 1:
                raise CorruptBatch(f"record {n} has a key of length {-(u >> 1) - 1}")
            u = at + (u >> 1)
            add_key(data[at:u])
            at = u
        u = data[at]
        at += 1
        if u == 1:
            add_value(None)
        else:
            if u >= 0x80:
                u, at = (u & 0x7F | c << 7, at + 1) if (c := data[at]) < 0x80 else read_long(data, at, u)
            if u & 1:
                raise CorruptBatch(f"record {n} has a value of length {-(u >> 1) - 1}")
            u = at + (u >> 1)
            add_value(data[at:u])
            at = u
        if data[at]:
            columns.headers[n], at = read_headers(data, at)
        else:
            at += 1
        if at + at - start - start != length:
            raise CorruptBatch(f"record {n} states {length / 2:g} bytes and has {at - start}")
    return at


def read_long(data: bytes | bytearray, at: int, first: int) -> tuple[int, int]:
    """The raw zigzag integer with first byte `first`, which stands before `at`, and the position after it."""
    u = first & 0x7F
    for shift in range(7, 7 * VARLONG_BYTES_MAX, 7):
        byte = data[at]
        at += 1
        u |= (byte & 0x7F) << shift
        if byte < 0x80:
            return u, at
    raise CorruptBatch(f"a varint does not end within {VARLONG_BYTES_MAX} bytes, by byte {at}")


def read_headers(data: bytes | bytearray, at: int) -> tuple[Headers, int]:
    """The headers of a record and the position after them; `at` is the position of their count."""
    count, at = read_varint(data, at)
    if count < 0 or count * RECORD_HEADER_BYTES_MIN > len(data) - at:
        raise CorruptBatch(f"{len(data) - at} bytes cannot hold {count} record headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, at = read_varint(data, at)
        if not 0 <= length <= len(data) - at:
            raise CorruptBatch(f"a record header has a key of length {length}, {len(data) - at} bytes are left")
        key = data[at : at + length].decode("utf-8", "surrogateescape")
        at += length
        length, at = read_varint(data, at)
        if not -1 <= length <= len(data) - at:
            raise CorruptBatch(f"a record header has a value of length {length}, {len(data) - at} bytes are left")
        headers.append((key, None if length < 0 else bytes(data[at : at + length])))
        at += max(length, 0)
    return tuple(headers), at
