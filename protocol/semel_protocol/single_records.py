"""Batches of a single record, by the thousand: the short cut for journals, which store one decision at a time.

A batch per record is the layout on which `records` and `record_columns` are slowest: all of their cost is per batch.
But records of such a journal are much alike: few lengths of keys, few of values. What the framing of one batch says is
kept, and the next one that is framed the same, byte for byte, costs two slices. What is laid out in any other way, or
contradicts itself, is left to `record_columns`, which knows how to read it or to complain. As there, CRCs are the
caller's to check.
"""

from struct import Struct as Layout

import msgspec
from crc32c import crc32c

from semel_protocol.batch import (
    BATCH_LENGTH_MIN,
    HEADER_BYTES,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    read_header,
)
from semel_protocol.record_columns import RECORD_BYTES_MIN, decode_columns
from semel_protocol.records import NO_LEADER_EPOCH
from semel_protocol.varint import varint

SHAPES_MAX = 4096
_HEAD = Layout(">8xi4xb4xhi30xi7s")
"""Of a batch: its length, magic, attributes, last offset delta and record count, and how its first record begins: in
these seven bytes are the lengths of the record and of its key, each of at most two bytes."""
assert _HEAD.size == HEADER_BYTES + RECORD_BYTES_MIN
_FRONT = Layout(">qiibI")
"""Base offset, length, leader epoch, magic and CRC."""
_CHECKED = Layout(">hiqqqhii")
"""What the CRC covers: attributes, last offset delta, timestamps, producer id and epoch, sequence, record count."""
_NULL_VALUE = varint(-1)


def build_single(key: bytes, value: bytes | None, timestamp_ms: int) -> bytes:
    """A batch of one plain record without headers, as `records.build_batch` makes it, at offset 0."""
    record = b"".join(
        (
            b"\x00\x00\x00",  # attributes, and the deltas of timestamp and offset
            varint(len(key)),
            key,
            _NULL_VALUE if value is None else varint(len(value)) + value,
            b"\x00",
        )
    )
    length = varint(len(record))
    checked = b"".join(
        (
            _CHECKED.pack(0, 0, timestamp_ms, timestamp_ms, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, 1),
            length,
            record,
        )
    )
    batch_length = BATCH_LENGTH_MIN + len(length) + len(record)
    return _FRONT.pack(0, batch_length, NO_LEADER_EPOCH, MAGIC, crc32c(checked)) + checked


class Rows(msgspec.Struct, frozen=True, gc=False):
    """Keys and values of the records of many batches, in their order; `next_offset`: behind the last batch, -1 where
    there was none."""

    keys: list[bytes | None]
    values: list[bytes | None]
    next_offset: int


class _Shape(msgspec.Struct, frozen=True, gc=False):
    """Where key and value of a batch's only record lie, in bytes from the batch's start; the value ends one byte before
    the batch, of `size` bytes. `between`: what stands between key and value, the value's length."""

    size: int
    key_at: int
    key_end: int
    value_at: int
    between: bytes


def read_rows(data: bytes) -> Rows:
    """The records of all whole batches of `data`; those of control batches, and a partial batch at the end, are left
    out. Raises CorruptBatch for bytes that are no batches, or that contradict themselves."""
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    shapes: dict[tuple[int | bytes, ...], _Shape] = {}
    known, unpack = shapes.get, _HEAD.unpack_from
    at, last, size = 0, -1, len(data)
    while at + HEADER_BYTES <= size:
        head = unpack(data, at) if at + _HEAD.size <= size else ()
        shape = known(head)
        if shape is not None:
            end = at + shape.size
            if end <= size and data[at + shape.key_end : at + shape.value_at] == shape.between and not data[end - 1]:
                keys.append(data[at + shape.key_at : at + shape.key_end])
                values.append(data[at + shape.value_at : end - 1])
                last, at = at, end
                continue
        header = read_header(data, at)
        end = at + header.size
        if end > size:
            break
        if not header.is_control:
            if len(shapes) < SHAPES_MAX and (shape := _shape(data[at:end], header)) is not None:
                shapes[head] = shape
                continue
            columns = decode_columns(memoryview(data)[at:end], header)
            keys += columns.keys
            values += columns.values
        last, at = at, end
    return Rows(keys, values, read_header(data, last).next_offset if last >= 0 else -1)


def _shape(batch: bytes, header: BatchHeader) -> _Shape | None:
    """How the batch is framed, if its head tells where the key lies, and the bytes after the key where the value does.

    So it is with one record that is not compressed, its deltas 0, without headers, neither key nor value null, lengths
    of at most two bytes each.
    """
    is_single = header.record_count == 1 and header.last_offset_delta >= 0
    if not is_single or header.codec or len(batch) < _HEAD.size or batch[-1]:
        return None
    length, at = _length(batch, HEADER_BYTES)
    if length != len(batch) - at or batch[at + 1] or batch[at + 2]:
        return None
    length, key_at = _length(batch, at + 3)
    key_end = key_at + length
    if length < 0 or key_end >= len(batch) - 1:
        return None
    length, value_at = _length(batch, key_end)
    if length < 0 or value_at + length + 1 != len(batch):
        return None
    return _Shape(len(batch), key_at, key_end, value_at, batch[key_end:value_at])


def _length(data: bytes, at: int) -> tuple[int, int]:
    """A length, and the position behind it; -1 for null, and for one of more than two bytes."""
    low, high = data[at], data[at + 1]
    if low < 0x80:
        return (-1 if low & 1 else low >> 1), at + 1
    return (-1 if low & 1 or high >= 0x80 else (low & 0x7F | high << 7) >> 1), at + 2
