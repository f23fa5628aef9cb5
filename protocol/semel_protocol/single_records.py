"""Builds and decodes batches of a single record fast, for coordinator journals with one record per batch.

`records` and `record_columns` are slow for such batches, because their cost is per batch. Records of a journal have few
different key and value lengths. The framing of one batch is cached; another batch with the same framing, byte for byte,
takes two slices. Batches with any other layout are left to `record_columns`, which also raises the errors. The caller
checks CRCs.
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
"""The head of a batch: length, magic, attributes, last offset delta, record count, and seven bytes of its first record.
These seven contain the lengths of the record and of its key, each of at most two bytes."""
assert _HEAD.size == HEADER_BYTES + RECORD_BYTES_MIN
_FRONT = Layout(">qiibI")
"""Base offset, length, leader epoch, magic and CRC."""
_CHECKED = Layout(">hiqqqhii")
"""Fields under the CRC: attributes, last offset delta, timestamps, producer id and epoch, sequence, record count."""
_NULL_VALUE = varint(-1)


def build_single(key: bytes, value: bytes | None, timestamp_ms: int) -> bytes:
    """Build a batch of one record without headers at offset 0, equal to that of `records.build_batch`."""
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


class KeysAndValues(msgspec.Struct, frozen=True, gc=False):
    """Keys and values of the records of many batches, in order. `next_offset`: the offset after the last batch, -1
    without batches."""

    keys: list[bytes | None]
    values: list[bytes | None]
    next_offset: int


class _Shape(msgspec.Struct, frozen=True, gc=False):
    """Positions of key and value of the only record, in bytes from the start of the batch.

    The batch has `size` bytes; the value ends one byte before its end. `between`: the bytes of the value length.
    """

    size: int
    key_at: int
    key_end: int
    value_at: int
    between: bytes


def read_rows(data: bytes) -> KeysAndValues:
    """Decode the records of all complete batches of `data`, without control batches and a partial batch at the end.

    Raises CorruptBatch for bytes that are not batches, or that contradict themselves; UNSUPPORTED_COMPRESSION_TYPE for
    an unknown codec.
    """
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
    return KeysAndValues(keys, values, read_header(data, last).next_offset if last >= 0 else -1)


def _shape(batch: bytes, header: BatchHeader) -> _Shape | None:
    """The layout of a batch if its head gives the position of the key, and the bytes after the key that of the value.

    This holds for one uncompressed record with deltas of 0, no headers, a key and a value that are not null, and
    lengths of at most two bytes each. None otherwise.
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
    """A length and the position after it; -1 for null and for a length of more than two bytes."""
    low, high = data[at], data[at + 1]
    if low < 0x80:
        return (-1 if low & 1 else low >> 1), at + 1
    return (-1 if low & 1 or high >= 0x80 else (low & 0x7F | high << 7) >> 1), at + 2
