"""PURE: reads the batch headers of a range of a segment file into columns.

One loop follows the lengths from batch to batch and computes each CRC. One numpy gather reads all other fields. Layout:
KIP-98, "message format", as in `semel_protocol.batch`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray
from semel_protocol.batch import BATCH_LENGTH_MIN, CHECKED, CHECKED_AT, HEADER, HEADER_BYTES, MAGIC, PREFIX_BYTES

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

FIELDS = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", ">i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
assert FIELDS.itemsize == HEADER.size == HEADER_BYTES


class Headers(NamedTuple):
    """The whole batches in file order. `positions`: the start of each batch, relative to the bytes that were read."""

    positions: Ints
    columns: NDArray[Any]
    """Of dtype `FIELDS`."""
    crc_holds: Flags
    end: int
    """The position after the last whole batch."""
    fault: str
    """The reason if an invalid header ended the walk early; "" otherwise, also if the rest is a partial batch."""

    def __len__(self) -> int:
        return len(self.positions)

    def ints(self, name: str) -> Ints:
        """Return one column as native 64-bit integers."""
        return self.columns[name].astype(np.int64)


def walk(data: memoryview) -> Headers:
    """Read every whole batch of `data`, which starts with a batch.

    Stops at bytes that are no batch header (`fault` gives the reason). A partial batch at the end is left out.
    """
    positions, sums = [], []
    at, size, fault = 0, len(data), ""
    while size - at >= HEADER_BYTES:
        length, _ = CHECKED.unpack_from(data, at)
        after = at + PREFIX_BYTES + length
        if length < BATCH_LENGTH_MIN or data[at + 16] != MAGIC:
            fault = f"no batch: length {length}, magic {data[at + 16]}"
            break
        if after > size:
            break
        sums.append(crc32c(data[at + CHECKED_AT : after]))
        positions.append(at)
        at = after
    where = np.array(positions, np.int64)
    columns = _gathered(data, where)
    return Headers(where, columns, columns["crc"] == np.array(sums, np.uint32), at, fault)


def _gathered(data: memoryview, positions: Ints) -> NDArray[Any]:
    raw = np.frombuffer(data, np.uint8)
    if not len(positions):
        return np.empty(0, FIELDS)
    rows: NDArray[Any] = raw[positions[:, None] + np.arange(HEADER_BYTES)].view(FIELDS).reshape(-1)
    return rows
