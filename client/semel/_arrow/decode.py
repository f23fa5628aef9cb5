"""PURE: decodes record batches to Arrow: many batches in one pass, column by column.

Only the starts of records are found one after the other (`record_starts`). Each later step is one operation over all
records. Keys and values are not copied one by one: an Arrow array has a value and the bytes up to the next value as
alternating elements, and every second element is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np
import pyarrow as pa
from semel_protocol.batch import HEADER_BYTES, BatchHeader, CorruptBatch
from semel_protocol.compression import BYTES_MAX, decompress
from semel_protocol.record_columns import decode_columns

from semel._arrow.record_starts import record_starts
from semel._arrow.varints import Bytes8, Ints, read_varints

HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
COLUMNS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("timestamp_type", pa.int8()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
"""The fields of `ConsumerRecord`, under its names."""
SCHEMA = COLUMNS.append(pa.field("headers", HEADERS))

TABLE_BYTES = 16 << 20
"""Decompressed batches are joined to Arrow batches up to this size; one batch alone may be larger."""

Placed = tuple[BatchHeader, int]
"""The header of a batch, and the position of the batch in its data."""


class Slice(msgspec.Struct, frozen=True):
    """A range of a partition: records from offset `start` up to, not including, `end`. headers: as a column."""

    topic: str
    partition: int
    start: int
    end: int
    headers: bool = True

    @property
    def columns(self) -> pa.Schema:
        return SCHEMA if self.headers else COLUMNS


def arrow_batches(data: bytes, batches: Sequence[Placed], wanted: Slice) -> Iterator[pa.RecordBatch]:
    """Yield the wanted records of these batches, in the columns of `wanted.columns`. The batches ascend in `data`.

    Raises CorruptBatch with the offset for a batch that contradicts itself, KafkaError for an unknown codec.
    """
    for piece in _unpacked(data, batches):
        try:
            made = _arrow(piece, _records(piece).between(wanted.start, wanted.end), wanted)
        except (IndexError, CorruptBatch) as e:
            raise CorruptBatch(_complaint(data, batches) or f"{wanted.topic}-{wanted.partition}: {e}") from e
        if made.num_rows:
            yield made


class Piece(msgspec.Struct, frozen=True):
    """Batches whose records are uncompressed in `data`: each header with the start and end of its records."""

    data: bytes
    places: list[tuple[BatchHeader, int, int]]


def _unpacked(data: bytes, batches: Sequence[Placed]) -> Iterator[Piece]:
    """Uncompressed batches stay in place. If one is compressed, all are copied into one buffer."""
    if not any(header.codec for header, _ in batches):
        yield Piece(data, [(header, at + HEADER_BYTES, at + header.size) for header, at in batches])
        return
    view = memoryview(data)
    parts: list[bytes | memoryview] = []
    places: list[tuple[BatchHeader, int, int]] = []
    size = 0
    for header, at in batches:
        body = view[at + HEADER_BYTES : at + header.size]
        part = decompress(header.codec, body, BYTES_MAX) if header.codec else body
        if parts and size + len(part) > TABLE_BYTES:
            yield Piece(b"".join(parts), places)
            parts, places, size = [], [], 0
        parts.append(part)
        places.append((header, size, size + len(part)))
        size += len(part)
    if parts:
        yield Piece(b"".join(parts), places)


class FieldPositions(msgspec.Struct, frozen=True):
    """The positions of the fields of all records, one row per record; a length of -1 is a null."""

    offsets: Ints
    timestamps: Ints
    stamped: Ints
    """1 if the timestamp type is LogAppendTime."""
    key_at: Ints
    key_length: Ints
    value_at: Ints
    value_length: Ints
    headers_at: Ints
    header_count: Ints
    end: Ints

    def between(self, start: int, end: int) -> FieldPositions:
        """Return the records with offsets from `start` up to, not including, `end`."""
        if not len(self.offsets) or (self.offsets[0] >= start and self.offsets[-1] < end):
            return self
        first, last = np.searchsorted(self.offsets, (start, end))
        return FieldPositions(*(column[first:last] for column in msgspec.structs.astuple(self)))


def _records(piece: Piece) -> FieldPositions:
    """Find the fields of all records. Raises CorruptBatch, or IndexError if a record runs past the end of the data."""
    view: Bytes8 = np.frombuffer(piece.data, dtype=np.uint8)
    headers = [header for header, _, _ in piece.places]
    starts = [
        start
        for header, at, end in piece.places
        for start in record_starts(piece.data, view, at, end, header.record_count)
    ]
    length, body = read_varints(view, np.concatenate(starts) if starts else np.empty(0, np.int64))
    end = body + length
    timestamp, at = read_varints(view, body + 1)
    delta, at = read_varints(view, at)
    key_length, key_at = read_varints(view, at)
    at = _past(key_at, key_length, end)
    value_length, value_at = read_varints(view, at)
    headers_at = _past(value_at, value_length, end)
    header_count, at = read_varints(view, headers_at)
    if (header_count < 0).any() or ((at != end) & ((header_count == 0) | (at > end))).any():
        raise CorruptBatch("a record is not as long as it states")
    counts = np.array([header.record_count for header in headers], dtype=np.int64)
    offsets = _each(headers, "base_offset", counts) + delta
    if len(offsets) and not ((offsets[1:] > offsets[:-1]).all() and _fit(offsets, headers, counts)):
        raise CorruptBatch("offsets do not ascend")
    stamped = np.array([header.log_append_time for header in headers], dtype=np.int64)
    timestamp += _each(headers, "base_timestamp", counts)
    if stamped.any():
        timestamp = np.where(np.repeat(stamped, counts), _each(headers, "max_timestamp", counts), timestamp)
    return FieldPositions(
        offsets, timestamp, np.repeat(stamped, counts), key_at, key_length, value_at, value_length, headers_at,
        header_count, end,
    )  # fmt: skip


def _past(at: Ints, length: Ints, end: Ints) -> Ints:
    """Return the end of a field that starts at `at`; a field of length -1 is a null and take no bytes."""
    if len(length) and (int(length.min()) < -1 or (length > end - at).any()):
        raise CorruptBatch("a key or value is longer than its record")
    return at + np.maximum(length, 0)


def _each(headers: Iterable[BatchHeader], name: str, counts: Ints) -> Ints:
    """Repeat a field of the batch headers for each record."""
    return np.repeat(np.array([getattr(header, name) for header in headers], dtype=np.int64), counts)


def _fit(offsets: Ints, headers: list[BatchHeader], counts: Ints) -> bool:
    """Whether the ascending offsets lie inside their batches."""
    after = np.cumsum(counts)
    full = counts > 0
    first = np.array([header.base_offset for header in headers])[full]
    last = np.array([header.last_offset for header in headers])[full]
    return bool((offsets[(after - counts)[full]] >= first).all() and (offsets[after[full] - 1] <= last).all())


def _complaint(data: bytes, batches: Sequence[Placed]) -> str:
    """Describe the first invalid batch, in the words of the reader that reads batches one by one."""
    for header, at in batches:
        try:
            decode_columns(memoryview(data)[at : at + header.size], header)
        except CorruptBatch as e:
            return f"the batch at offset {header.base_offset}: {e.message}"
    return ""


def _arrow(piece: Piece, found: FieldPositions, wanted: Slice) -> pa.RecordBatch:
    count = len(found.offsets)
    data = pa.py_buffer(piece.data)
    columns = [
        _constant(wanted.topic, count),
        pa.array(np.full(count, wanted.partition, dtype=np.int32)),
        pa.array(found.offsets),
        pa.array(found.timestamps).cast(COLUMNS.field("timestamp").type),
        pa.array(found.stamped.astype(np.int8)),
        _binary(data, found.key_at, found.key_length),
        _binary(data, found.value_at, found.value_length),
    ]
    if wanted.headers:
        columns.append(_headers(piece, found))
    return pa.RecordBatch.from_arrays(columns, schema=wanted.columns)


def _binary(data: pa.Buffer, at: Ints, length: Ints) -> pa.Array:
    """Return the byte strings at these ascending positions; null where the length is -1."""
    nulls = length < 0
    if nulls.all():
        return pa.nulls(len(at), pa.binary())
    borders = np.empty(2 * len(at) + 1, dtype=np.int32)
    borders[:-1:2] = at
    borders[1::2] = at + np.maximum(length, 0)
    borders[-1] = borders[-2]
    cut = pa.Array.from_buffers(pa.binary(), 2 * len(at), [None, pa.py_buffer(borders), data])
    every_second = pa.array(np.arange(0, 2 * len(at), 2, dtype=np.int32), mask=nulls if nulls.any() else None)
    return cut.take(every_second)


def _constant(text: str, count: int) -> pa.Array:
    encoded = text.encode()
    borders = np.arange(0, (count + 1) * len(encoded), max(len(encoded), 1), dtype=np.int32)[: count + 1]
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(borders), pa.py_buffer(encoded * count)])


def _headers(piece: Piece, found: FieldPositions) -> pa.Array:
    """Return a list of headers for each record, empty for a record without headers."""
    view: Bytes8 = np.frombuffer(piece.data, dtype=np.uint8)
    count, at = read_varints(view, found.headers_at)
    rows = np.flatnonzero(count > 0)
    at = at[rows]
    parts: list[tuple[Ints, ...]] = []
    for number in range(int(count.max(initial=0))):
        going_on = count[rows] > number
        rows, at = rows[going_on], at[going_on]
        end = found.end[rows]
        key_length, key_at = read_varints(view, at)
        if (key_length < 0).any():
            raise CorruptBatch("a record header without a key")
        value_length, value_at = read_varints(view, _past(key_at, key_length, end))
        at = _past(value_at, value_length, end)
        if (at[count[rows] == number + 1] != end[count[rows] == number + 1]).any():
            raise CorruptBatch("the headers of a record do not end where it does")
        parts.append((rows, key_at, key_length, value_at, value_length))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else [np.empty(0, np.int64)] * 5
    order = np.argsort(columns[0], kind="stable")
    _, key_at, key_length, value_at, value_length = (column[order] for column in columns)
    data = pa.py_buffer(piece.data)
    pairs = pa.StructArray.from_arrays(
        [_text(_binary(data, key_at, key_length)), _binary(data, value_at, value_length)], names=["key", "value"]
    )
    borders = np.zeros(len(count) + 1, dtype=np.int32)
    np.cumsum(count, out=borders[1:])
    return pa.ListArray.from_arrays(pa.array(borders), pairs, type=HEADERS)


def _text(column: pa.Array) -> pa.Array:
    """Convert binary to text. Bytes that are not UTF-8 become the replacement character, as in Java."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([data.decode("utf-8", "replace") for data in column.to_pylist()], pa.string())
