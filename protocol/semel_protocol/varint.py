"""Encodes and decodes zigzag varints, the integers inside records: at most 5 bytes for 32 bits, 10 for 64 bits."""

from semel_protocol.batch import Bytes, CorruptBatch

VARINT_BYTES_MAX = 5
VARLONG_BYTES_MAX = 10
TABLE_LIMIT = 1 << 14


def _zigzag(n: int) -> bytes:
    u = (n << 1) ^ (n >> 63)
    if u < 0x80:
        return bytes((u,))
    out = bytearray()
    while u >= 0x80:
        out.append(u & 0x7F | 0x80)
        u >>= 7
    out.append(u)
    return bytes(out)


VARINTS: tuple[bytes, ...] = tuple(_zigzag(n) for n in range(TABLE_LIMIT))
"""The encodings of 0 to TABLE_LIMIT - 1, by value: they cover nearly every integer of a record."""


def varint(n: int) -> bytes:
    """The zigzag encoding of a 32- or 64-bit signed integer."""
    return VARINTS[n] if 0 <= n < TABLE_LIMIT else _zigzag(n)


def read_varint(buf: Bytes, at: int, bytes_max: int = VARINT_BYTES_MAX) -> tuple[int, int]:
    """The integer at `at` and the position after it.

    Raises CorruptBatch if it does not end within `bytes_max` bytes or within the buffer.
    """
    u = 0
    for shift in range(0, 7 * bytes_max, 7):
        if at >= len(buf):
            break
        byte = buf[at]
        at += 1
        u |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (u >> 1) ^ -(u & 1), at
    raise CorruptBatch(f"a varint does not end within {bytes_max} bytes, by byte {at}")
