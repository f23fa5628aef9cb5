"""PURE: finds the starts of the records of a batch, walking from one record to the next by their lengths.

Consecutive records of one size have a fixed stride, and one comparison finds how many there are. The stated length of
each of them is compared, so the result is exact. All other records cost one loop iteration each.
"""

from __future__ import annotations

from array import array

import numpy as np
from semel_protocol.batch import CorruptBatch
from semel_protocol.varint import read_varint

from semel._arrow.varints import MORE, Bytes8, Ints

RUN_ROWS_MIN = 32
"""A shorter run is not faster than the walk."""
STRETCH_ROWS_MIN = 32
STRETCH_ROWS_MAX = 4096
"""Rows that are walked before the next search for a run; doubled after each search without a run."""


def record_starts(data: bytes, view: Bytes8, at: int, end: int, count: int) -> list[Ints]:
    """Return the positions of the length prefixes of `count` records that fill `data` from `at` to `end`, in pieces.

    view: the same bytes. Raises CorruptBatch if the records do not end at `end`, IndexError if the data ends before.
    """
    pieces: list[Ints] = []
    stretch = STRETCH_ROWS_MIN
    while count > 0:
        if count >= RUN_ROWS_MIN:
            stride, rows = _run(data, view, at, end, count)
            if rows >= RUN_ROWS_MIN:
                pieces.append(np.arange(at, at + rows * stride, stride, dtype=np.int64))
                at += rows * stride
                count -= rows
                stretch = STRETCH_ROWS_MIN
                continue
        rows = min(count, stretch)
        walked, at = _walk(data, at, rows)
        pieces.append(walked)
        count -= rows
        stretch = min(2 * stretch, STRETCH_ROWS_MAX)
    if at != end:
        raise CorruptBatch(f"the records end at byte {at} and the batch at byte {end}")
    return pieces


def _run(data: bytes, view: Bytes8, at: int, end: int, count: int) -> tuple[int, int]:
    """Return the size of the record at `at`, with its length prefix, and how many records from there have the same
    length.
    """
    length, body = read_varint(data, at)
    stride = body - at + length
    rows = min(count, (end - at) // stride) if length > 0 else 0
    for place in range(at, body):
        alike = view[place : place + (rows - 1) * stride + 1 : stride] == data[place] if rows > 0 else None
        if alike is not None and not alike.all():
            rows = int(alike.argmin())
    return stride, rows


def _walk(data: bytes, at: int, rows: int) -> tuple[Ints, int]:
    """Return the starts of the next `rows` records, and the end of the last one."""
    starts = array("q")
    add = starts.append
    for _ in range(rows):
        add(at)
        raw = data[at]
        if raw < MORE:
            at += (raw >> 1) + 1
        elif (high := data[at + 1]) < MORE:
            at += ((raw & 0x7F | high << 7) >> 1) + 2
        else:
            length, at = read_varint(data, at)
            at += max(length, 0)
    return np.frombuffer(starts, dtype=np.int64), at
