"""Decodes runs of records with the same layout in blocks of 64, which saves Python's cost per record.

Records of one size (telemetry, fixed-width rows, keys of one length) repeat their framing at a fixed stride. One
strided slice then gives one framing byte of 64 records, one comparison checks all of them, and one
`struct.iter_unpack` reads keys and values. Every framing byte of every record in the run is compared. Records that
differ are left to the loop in `record_columns`, which also raises the errors.
"""

from struct import iter_unpack

import msgspec

from semel_protocol.varint import varint

RUN_ROWS_MIN = 8
"""Shorter runs are left to the loop, which is as fast."""
BLOCK_ROWS = 64
"""Within a block of 64 rows only the first byte of the offset delta varint changes."""

LOW = bytes(range(0x80))
HIGH = bytes(range(0x80, 0x100))
FIRST_BYTES_SHORT = bytes(range(0, 0x80, 2))
FIRST_BYTES_LONG = bytes(range(0x80, 0x100, 2))
"""First byte of the offset delta varint, by row % 64: SHORT for rows 0 to 63 (the only byte), LONG from row 64 on."""


class Run(msgspec.Struct, frozen=True, gc=False):
    """Columns of the records of a run; `end` is the position after the last one."""

    timestamp_deltas: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    end: int


class RecordLayout(msgspec.Struct, frozen=True, gc=False):
    """The layout of each record of a run: positions in bytes from its start."""

    timestamp_at: int
    offset_at: int
    key_length_at: int
    key_bytes: int
    """-1 for null."""
    value_length_at: int
    value_at: int
    value_bytes: int
    size: int


def take_run(data: bytes, at: int, row: int, row_end: int) -> Run | None:
    """Read the run that starts with `row` at position `at` and ends at the latest with its block of 64 rows.

    The batch must have dense offsets. None if the run is too short, or its layout is not supported (null values,
    headers, long keys). Raises IndexError, as the loop does, if the data ends too early.
    """
    shape = shape_of(data, at, row)
    if shape is None:
        return None
    size = shape.size
    count = min(BLOCK_ROWS - row % BLOCK_ROWS, row_end - row, (len(data) - at) // size)
    count = _alike(data, at, row, count, shape)
    if count < RUN_ROWS_MIN:
        return None
    end = at + count * size
    records = memoryview(data)[at:end]
    skip = shape.value_at
    keys: list[bytes | None]
    values: list[bytes | None]
    if shape.key_bytes < 0:
        keys = [None] * count
        values = [value for (value,) in iter_unpack(f"{skip}x{shape.value_bytes}sx", records)]
    else:
        key_at = shape.key_length_at + 1
        gap = skip - key_at - shape.key_bytes
        pairs = iter_unpack(f"{key_at}x{shape.key_bytes}s{gap}x{shape.value_bytes}sx", records)
        keys, values = map(list, zip(*pairs, strict=True))
    return Run(_timestamp_deltas(data, at, end, shape), keys, values, end)


def shape_of(data: bytes | bytearray, at: int, row: int) -> RecordLayout | None:
    """The layout of the record at `at`; None for an unsupported layout."""
    length, timestamp_at = _short(data, at)
    timestamp_at += 1
    offset_at = timestamp_at + (1 if data[at + timestamp_at] < 0x80 else 2)
    offset = varint(row)
    if not data.startswith(offset, at + offset_at):
        return None
    key_length_at = offset_at + len(offset)
    key_length = data[at + key_length_at]
    if key_length == 1:
        key_bytes, value_length_at = -1, key_length_at + 1
    elif key_length < 0x80 and not key_length & 1:
        key_bytes = key_length >> 1
        value_length_at = key_length_at + 1 + key_bytes
    else:
        return None
    value_length, width = _short(data, at + value_length_at)
    value_at = value_length_at + width
    size = value_at + (value_length >> 1) + 1
    if value_length & 1 or length != (size - timestamp_at + 1) * 2 or data[at + size - 1]:
        return None
    return RecordLayout(
        timestamp_at, offset_at, key_length_at, key_bytes, value_length_at, value_at, value_length >> 1, size
    )


def _short(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """A raw zigzag integer of up to three bytes and its width; -1, never a valid length, for a longer one."""
    u = data[at]
    if u < 0x80:
        return u, 1
    u = u & 0x7F | data[at + 1] << 7
    if u < 0x4000:
        return u, 2
    u = u & 0x3FFF | data[at + 2] << 14
    return (u, 3) if u < 0x200000 else (-1, 3)


def _alike(data: bytes, at: int, row: int, count: int, shape: RecordLayout) -> int:
    """The number of consecutive records with the layout of the first one."""
    size = shape.size
    steady = [
        *range(shape.timestamp_at - 1),
        *range(shape.offset_at + 1, shape.key_length_at + 1),
        *range(shape.value_length_at, shape.value_at),
        size - 1,
    ]
    for place in steady:
        if count < RUN_ROWS_MIN:
            return 0
        column = data[at + place : at + count * size : size]
        count -= len(column.lstrip(column[:1]))
    for place in range(shape.timestamp_at, shape.offset_at):
        column = data[at + place : at + count * size : size]
        count -= len(column.lstrip(LOW if place == shape.offset_at - 1 else HIGH))
    first_bytes = FIRST_BYTES_SHORT if row < BLOCK_ROWS else FIRST_BYTES_LONG
    block_row = row % BLOCK_ROWS
    offsets = data[at + shape.offset_at : at + count * size : size]
    return count if offsets == first_bytes[block_row : block_row + count] else 0


def _timestamp_deltas(data: bytes, at: int, end: int, shape: RecordLayout) -> list[int]:
    first = data[at + shape.timestamp_at : end : shape.size]
    if shape.offset_at - shape.timestamp_at == 1:
        if first.count(first[:1]) == len(first):
            u = first[0]
            return [(u >> 1) ^ -(u & 1)] * len(first)
        return [(u >> 1) ^ -(u & 1) for u in first]
    second = data[at + shape.timestamp_at + 1 : end : shape.size]
    return [((u := low & 0x7F | high << 7) >> 1) ^ -(u & 1) for low, high in zip(first, second, strict=True)]
