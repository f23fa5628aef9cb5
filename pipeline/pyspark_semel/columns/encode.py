"""PURE: encodes Arrow columns as the records of batches: a whole table in one pass, no Python per record.

Layout: KIP-98, "record": length, attributes, timestamp delta, offset delta, key, value, headers; every integer is a
zigzag varint. All records of a table get one timestamp, because the producer gets them at one moment. numpy writes the
integers of all rows side by side. Arrow joins them with keys, values and headers. The buffer of the joined column holds
the records, batch after batch.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Ints = NDArray[np.int64]

RECORD_OVERHEAD_BYTES_MAX = 5 + 1 + 1 + 5 + 5 + 5 + 5
"""The longest size of length, attributes, timestamp delta (0), offset delta, key length, value length, header count."""
VARINT_BYTES_MAX = 5
ATTRIBUTES_AND_DELTA = np.zeros((1, 2), np.uint8)
NO_HEADERS = pa.scalar(b"\x00", pa.binary())
EMPTY = pa.scalar(b"", pa.binary())


def size_bounds(keys: pa.Array | None, values: pa.Array, tails: pa.Array | None) -> Ints:
    """Return for each row an upper bound of the size of its record, in bytes. `tails`: from `header_tails`."""
    bounds = lengths(values) + RECORD_OVERHEAD_BYTES_MAX
    for column in (keys, tails):
        if column is not None:
            bounds += lengths(column)
    return bounds


def batch_starts(bounds: Ints, groups: Ints, bytes_max: int) -> Ints:
    """Return the rows at which batches start: at each of `groups` (ascending, from 0), and when `bytes_max` is full.

    A larger row gets a batch of its own.
    """
    ends = np.cumsum(bounds)
    starts: list[int] = []
    for first, last in zip(groups.tolist(), [*groups[1:].tolist(), len(bounds)], strict=True):
        while first < last:
            starts.append(first)
            taken = int(ends[first - 1]) if first else 0
            first = min(last, max(first + 1, int(np.searchsorted(ends, taken + bytes_max, side="right"))))
    return np.asarray(starts, np.int64)


def encode(keys: pa.Array | None, values: pa.Array, tails: pa.Array | None, starts: Ints) -> list[memoryview]:
    """Return the records of each batch. Batches start at the rows `starts`; offset deltas start at 0 in each.

    keys, values: binary, nulls allowed; keys None: all null. tails: from `header_tails`, None for no headers. All
    records together must be below 2 GiB. The views share one buffer and keep it alive.
    """
    count = len(values)
    key_lengths, value_lengths = _written_lengths(keys, count), _written_lengths(values, count)
    rows = np.arange(count, dtype=np.int64)
    deltas = rows - np.repeat(starts, np.diff(np.append(starts, count)))
    lead = [_varints(deltas), _varints(key_lengths)]
    middle = _varints(value_lengths)
    tail_lengths = 1 if tails is None else lengths(tails)
    sizes = 2 + sum(_widths(column) for column in (*lead, middle)) + tail_lengths
    sizes += np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0)
    prefix = [_varints(sizes), (np.broadcast_to(ATTRIBUTES_AND_DELTA, (count, 2)), None), *lead]
    parts = [_present(values), NO_HEADERS if tails is None else tails]
    if keys is None:
        parts = [_side_by_side([*prefix, middle]), *parts]
    else:
        parts = [_side_by_side(prefix), _present(keys), _side_by_side([middle]), *parts]
    joined = pc.binary_join_element_wise(*parts, EMPTY)
    places = offsets(joined)
    records = memoryview(joined.buffers()[2])
    cuts = [*places[starts].tolist(), int(places[-1])]
    return [records[begin:end] for begin, end in pairwise(cuts)]


def header_tails(headers: pa.Array) -> pa.Array:
    """Return the bytes after the value of each record: the header count and the headers; a zero for a row without
    headers.

    headers: list<struct<key: string, value: binary>>, nulls allowed except in the keys. Raises ValueError for a null
    key.
    """
    counts = np.diff(np.asarray(headers.offsets))
    flat = headers.flatten()  # of rows that are not null
    if headers.null_count:
        counts = np.where(np.asarray(headers.is_valid()), counts, 0)
    names = as_binary(pc.struct_field(flat, 0))
    contents = as_binary(pc.struct_field(flat, 1))
    if names.null_count:
        raise ValueError("a header has no key")
    joined = pc.binary_join_element_wise(
        _side_by_side([_varints(lengths(names))]),
        names,
        _side_by_side([_varints(_written_lengths(contents, len(contents)))]),
        _present(contents),
        EMPTY,
    )
    places = offsets(joined)[np.append(0, np.cumsum(counts))]
    per_row = _binary(places, joined.buffers()[2])
    return pc.binary_join_element_wise(_side_by_side([_varints(counts)]), per_row, EMPTY)


def as_binary(column: pa.Array) -> pa.Array:
    """Cast strings, binaries and their large variants to plain binary, without a copy if possible."""
    return column if column.type == pa.binary() else column.cast(pa.binary())


def offsets(column: pa.Array) -> NDArray[np.int32]:
    """Return the start of each row of a binary column in its data, and the end of the last row."""
    if not len(column):
        return np.zeros(1, np.int32)
    return np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]


def lengths(column: pa.Array) -> Ints:
    """Return the size of each row of a binary column in bytes; 0 for null."""
    taken = np.diff(offsets(column)).astype(np.int64)
    if column.null_count:
        taken[np.asarray(column.is_null())] = 0
    return taken


def _written_lengths(column: pa.Array | None, count: int) -> Ints:
    """Return the lengths of the wire format: -1 for null."""
    if column is None:
        return np.full(count, -1, np.int64)
    written = lengths(column)
    if column.null_count:
        written[np.asarray(column.is_null())] = -1
    return written


def _present(column: pa.Array) -> pa.Array:
    """Replace nulls by empty values."""
    return column.fill_null(b"") if column.null_count else column


Bytes = tuple[NDArray[np.uint8], NDArray[np.int64] | None]
"""A row of bytes for each record, and how many of these bytes are used (None: all)."""


def _varints(numbers: Ints) -> Bytes:
    zigzag = (numbers << 1) ^ (numbers >> 63)
    largest = int(zigzag.max(initial=0))
    widest = max(1, (largest.bit_length() + 6) // 7)
    cells = np.empty((len(numbers), widest), np.uint8)
    if widest == 1:
        cells[:, 0] = zigzag
        return cells, None
    widths = np.ones(len(numbers), np.int64)
    for at in range(widest):
        rest = zigzag >> (7 * at)
        more = rest >= 0x80
        cells[:, at] = (rest & 0x7F) | (more << 7)
        widths += more
    return cells, None if int(widths.min(initial=widest)) == widest else widths


def _widths(column: Bytes) -> Ints | int:
    return column[0].shape[1] if column[1] is None else column[1]


def _side_by_side(columns: list[Bytes]) -> pa.Array:
    """Join the columns row by row into one binary column."""
    count = len(columns[0][0])
    cells = np.ascontiguousarray(np.concatenate([cells for cells, _ in columns], axis=1))  # row by row in memory
    if all(widths is None for _, widths in columns):
        places = np.arange(count + 1, dtype=np.int32) * cells.shape[1]
        return _binary(places, pa.py_buffer(cells))
    meant = np.concatenate([_meant(column) for column in columns], axis=1)
    places = np.zeros(count + 1, np.int32)
    np.cumsum(meant.sum(axis=1), out=places[1:])
    return _binary(places, pa.py_buffer(cells[meant]))


def _meant(column: Bytes) -> NDArray[np.bool_]:
    cells, widths = column
    if widths is None:
        return np.ones(cells.shape, np.bool_)
    return np.arange(cells.shape[1]) < widths[:, None]


def _binary(places: NDArray[np.int32], data: pa.Buffer) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(), len(places) - 1, [None, pa.py_buffer(places.astype(np.int32)), data])
