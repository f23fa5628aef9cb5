"""Batches of a single record, written and read by the thousand: the short cut for journals, which store one decision
at a time.

A batch per record is the layout on which `records` and `record_columns` are slowest: all of their cost is per batch.
Here it is a few look-ups. What is laid out in any other way, or contradicts itself, is left to `record_columns`, which
knows how to read it or to complain. As there, CRCs are the caller's to check.
"""

from struct import Struct as Layout

import msgspec
from crc32c import crc32c

from semel_protocol.batch import (
    BATCH_LENGTH_MIN,
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    PREFIX_BYTES,
    read_header,
)
from semel_protocol.record_columns import RECORD_BYTES_MIN, decode_columns
from semel_protocol.records import NO_LEADER_EPOCH
from semel_protocol.varint import varint

NULL = 1
"""The zigzag varint of length -1."""
_HEAD = Layout(">8xi4xb4xhi30xi")
"""Of a batch's header: its length, magic, attributes, last offset delta and record count."""
assert _HEAD.size == HEADER_BYTES
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


def read_rows(data: bytes) -> Rows:
    """The records of all whole batches of `data`; those of control batches, and a partial batch at the end, are left
    out. Raises CorruptBatch for bytes that are no batches, or that contradict themselves."""
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    head = _HEAD.unpack_from
    at, last, size = 0, -1, len(data)
    while at + HEADER_BYTES <= size:
        length, magic, attributes, last_delta, count = head(data, at)
        end = at + PREFIX_BYTES + length
        if magic != MAGIC or end < at + HEADER_BYTES:
            read_header(data, at)  # says what is wrong
        if end > size:
            break
        if not attributes & CONTROL:
            is_simple = count == 1 and last_delta >= 0 and not attributes & CODEC_MASK
            found = _single(data, at + HEADER_BYTES, end) if is_simple else None
            if found is not None:
                keys.append(found[0])
                values.append(found[1])
            else:
                columns = decode_columns(memoryview(data)[at:end])
                keys += columns.keys
                values += columns.values
        last, at = at, end
    return Rows(keys, values, read_header(data, last).next_offset if last >= 0 else -1)


def _single(data: bytes, at: int, end: int) -> tuple[bytes, bytes | None] | None:
    """Key and value of the record that takes all from `at` to `end`; None where it is not of the simple kind.

    Simple: no headers, deltas of 0, a key that is not null, and each length a varint of at most two bytes.
    """
    if end - at < RECORD_BYTES_MIN or data[end - 1]:
        return None
    length = data[at]
    at += 1
    if length >= 0x80:
        length += (data[at] - 1) << 7
        at += 1
        if data[at - 1] >= 0x80:
            return None
    if length != (end - at) * 2 or data[at + 1] or data[at + 2]:
        return None
    length = data[at + 3]
    at += 4
    if length >= 0x80:
        length += (data[at] - 1) << 7
        at += 1
    key_end = at + (length >> 1)
    if length & 1 or key_end >= end - 1 or data[at - 1] >= 0x80:
        return None
    key = data[at:key_end]
    length = data[key_end]
    at = key_end + 1
    if length == NULL:
        return (key, None) if at + 1 == end else None
    if length >= 0x80:
        length += (data[at] - 1) << 7
        at += 1
    if length & 1 or at + (length >> 1) + 1 != end or data[at - 1] >= 0x80:
        return None
    return key, data[at : end - 1]
