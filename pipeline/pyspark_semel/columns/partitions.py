"""PURE: computes the partition of each key of a column: murmur2, as in Java's default partitioner, for all keys at
once.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from semel_protocol.hashes import murmur2

from pyspark_semel.columns.encode import Ints, lengths, offsets

SEED = np.uint32(0x9747B28C)
M = np.uint32(0x5BD1E995)
LONG_KEY_BYTES = 256
"""Longer keys are rare and are hashed one by one: a round costs the same for one key as for thousands."""


def for_keys(keys: pa.Array, partition_count: int) -> Ints:
    """Return the partition of each key. keys: binary; the result for a null key is undefined."""
    hashes = murmur2_column(keys).astype(np.int64)
    return (hashes & 0x7FFFFFFF) % partition_count


def murmur2_column(keys: pa.Array) -> NDArray[np.uint32]:
    """Return the hash of each key, unsigned."""
    sizes = lengths(keys)
    data = keys.buffers()[2]
    if not len(keys) or data is None or not data.size:
        return np.full(len(keys), murmur2(b""), np.uint32)
    begins = offsets(keys)[:-1].astype(np.int64)
    cells = np.frombuffer(data, np.uint8)
    hashes = SEED ^ sizes.astype(np.uint32)
    rounds = np.where(sizes < LONG_KEY_BYTES, sizes >> 2, 0)
    for at in range(int(rounds.max(initial=0))):
        rows = np.flatnonzero(rounds > at)
        word = _mixed(_words(cells, begins[rows] + 4 * at))
        hashes[rows] = (hashes[rows] * M) ^ word
    for left in (3, 2, 1):
        rows = np.flatnonzero((sizes & 3) == left)
        ends = begins[rows] + (sizes[rows] & ~3)
        rest = np.zeros(len(rows), np.uint32)
        for at in range(left):
            rest |= cells[ends + at].astype(np.uint32) << np.uint32(8 * at)
        hashes[rows] = (hashes[rows] ^ rest) * M
    hashes = (hashes ^ (hashes >> np.uint32(13))) * M
    hashes ^= hashes >> np.uint32(15)
    for row in np.flatnonzero(sizes >= LONG_KEY_BYTES).tolist():
        hashes[row] = murmur2(keys[row].as_py())
    return hashes


def _words(cells: NDArray[np.uint8], at: Ints) -> NDArray[np.uint32]:
    """Read the four bytes at each position as a little-endian number."""
    word = cells[at].astype(np.uint32)
    for byte in (1, 2, 3):
        word |= cells[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word


def _mixed(word: NDArray[np.uint32]) -> NDArray[np.uint32]:
    word = word * M
    return (word ^ (word >> np.uint32(24))) * M
