"""Kafka's primitive encodings: unsigned varints, tag buffers and their limits (KIP-482).

Integers of fixed size are big-endian and use `struct` directly.
"""

from __future__ import annotations

from semel_protocol.errors import ProtocolError

Buffer = bytes | bytearray | memoryview
"""Bytes that can be written to a socket without a copy."""

UVARINT_BYTES_MAX = 5
TAGGED_FIELDS_MAX = 64

_ONE_BYTE = tuple(bytes((n,)) for n in range(128))


def uvarint(n: int) -> bytes:
    """`n` (0 <= n < 2**32) as an unsigned varint: seven bits a byte, low group first."""
    if n < 128:
        return _ONE_BYTE[n]
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def read_uvarint(buf: memoryview, at: int) -> tuple[int, int]:
    """The unsigned varint at `at` and the position after it.

    Raises ProtocolError if it is longer than five bytes or above 2**32 - 1, IndexError at the end of the buffer.
    """
    byte = buf[at]
    if byte < 128:
        return byte, at + 1
    n = byte & 127
    for i in range(1, UVARINT_BYTES_MAX):
        byte = buf[at + i]
        n |= (byte & 127) << (7 * i)
        if byte < 128:
            if n > 0xFFFFFFFF:
                raise ProtocolError(f"varint at byte {at} is above 32 bits")
            return n, at + i + 1
    raise ProtocolError(f"varint at byte {at} is longer than {UVARINT_BYTES_MAX} bytes")


def skip_tagged_fields(buf: memoryview, at: int) -> int:
    """The position after the tag buffer at `at`; all its fields are skipped (KIP-482)."""
    count, at = read_uvarint(buf, at)
    check_tag_count(count)
    for _ in range(count):
        _, at = read_uvarint(buf, at)
        size, at = read_uvarint(buf, at)
        at += size
        if at > len(buf):
            raise ProtocolError(f"a tagged field of {size} bytes ends {at - len(buf)} bytes after the message")
    return at


def check_tag_count(count: int) -> None:
    if count > TAGGED_FIELDS_MAX:
        raise ProtocolError(f"{count} tagged fields; at most {TAGGED_FIELDS_MAX} are allowed")
