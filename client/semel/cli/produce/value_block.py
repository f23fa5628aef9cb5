"""PURE: encodes many values at once as the records of one batch (layout: KIP-98, "record").

All records have the same timestamp and headers. Without a key, a record is its length, constant bytes, its offset
delta, the value's length, the value and the headers. Tables give the first four by the value's length and the record's
position.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from semel_protocol.records import Headers
from semel_protocol.varint import TABLE_LIMIT, VARINTS, varint

COUNT_MAX = TABLE_LIMIT
"""The largest number of values in a block."""
RECORD_OVERHEAD_BYTES_MAX = 20
"""The most bytes of a record besides value and headers."""
NULL_KEY = b"\x01"
ATTRIBUTES_AND_TIMESTAMP_DELTA = b"\x00\x00"
DELTA_WIDTHS = ((0, 1 << 6, 1), (1 << 6, 1 << 13, 2), (1 << 13, COUNT_MAX, 3))
"""Offset deltas from, below, and the bytes of each: zigzag varints."""


def encoded_headers(headers: Headers) -> bytes:
    """The headers of a record, with their count."""
    parts = [varint(len(headers))]
    for name, value in headers:
        key = name.encode("utf-8", "surrogateescape")  # as `records.encode`
        parts += [varint(len(key)), key]
        parts += [varint(-1)] if value is None else [varint(len(value)), value]
    return b"".join(parts)


def encoded_block(values: Sequence[bytes], headers: bytes) -> bytes:
    """The records of a batch with these values, in order. headers: as `encoded_headers` gives them."""
    assert 0 < len(values) <= COUNT_MAX
    lengths = list(map(len, values))
    distinct = dict.fromkeys(lengths)
    before_value = {length: NULL_KEY + varint(length) for length in distinct}
    blocks = []
    for first, last, width in DELTA_WIDTHS:
        if first >= len(values):
            break
        # The headers of a record stand in front of the next one, which saves a part in each.
        before_delta = {
            length: headers
            + varint(len(ATTRIBUTES_AND_TIMESTAMP_DELTA) + width + len(before_value[length]) + length + len(headers))
            + ATTRIBUTES_AND_TIMESTAMP_DELTA
            for length in distinct
        }
        part = lengths[first:last]
        rows = zip(
            map(before_delta.__getitem__, part),
            VARINTS[first:last],
            map(before_value.__getitem__, part),
            values[first:last],
            strict=False,  # the table of varints is longer
        )
        blocks.append(b"".join(chain.from_iterable(rows)))
    blocks.append(headers)
    return b"".join(blocks)[len(headers) :]


def encoded_keyed_block(keys: Sequence[bytes], values: Sequence[bytes], headers: bytes) -> bytes:
    """As `encoded_block`, with a key for each value."""
    assert 0 < len(values) <= COUNT_MAX
    parts: list[bytes] = []
    for key, value, delta in zip(keys, values, VARINTS, strict=False):  # the table of varints is longer
        key_length, value_length = varint(len(key)), varint(len(value))
        fixed = len(ATTRIBUTES_AND_TIMESTAMP_DELTA) + len(delta) + len(key_length) + len(value_length) + len(headers)
        length = varint(fixed + len(key) + len(value))
        parts += (length, ATTRIBUTES_AND_TIMESTAMP_DELTA, delta, key_length, key, value_length, value, headers)
    return b"".join(parts)
