"""PURE: reads zigzag varints at many positions at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from semel_protocol.batch import CorruptBatch
from semel_protocol.varint import VARLONG_BYTES_MAX

Bytes8 = NDArray[np.uint8]
Ints = NDArray[np.int64]

MORE = 0x80
"""The bit that is set in every byte of a varint except the last."""


def read_varints(data: Bytes8, at: Ints) -> tuple[Ints, Ints]:
    """Return the integers that start at `at`, and the end of each.

    Raises IndexError if one runs past the end of `data`, CorruptBatch if one does not end within 10 bytes.
    """
    byte = data[at]
    after = at + 1
    raw = byte.astype(np.uint64)
    if byte.size and int(byte.max()) >= MORE:
        raw &= np.uint64(MORE - 1)
        _read_on(data, byte, raw, after)
    return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64), after


def _read_on(data: Bytes8, byte: Bytes8, raw: NDArray[np.uint64], after: Ints) -> None:
    """Add the second and later bytes to `raw`, and move `after` past them."""
    if int(byte.min()) >= MORE:  # all continue, as record lengths mostly do: no selection is needed
        byte = data[after]
        after += 1
        raw |= (byte & np.uint8(MORE - 1)).astype(np.uint64) << np.uint64(7)
        shift = 14
    else:
        shift = 7
    going_on = np.flatnonzero(byte >= MORE)
    while going_on.size:
        if shift >= 7 * VARLONG_BYTES_MAX:
            raise CorruptBatch(f"a varint does not end within {VARLONG_BYTES_MAX} bytes")
        byte = data[after[going_on]]
        after[going_on] += 1
        raw[going_on] |= (byte & np.uint8(MORE - 1)).astype(np.uint64) << np.uint64(shift)
        going_on = going_on[byte >= MORE]
        shift += 7
