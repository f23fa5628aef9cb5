"""PURE. The bytes in front of a value: the magic byte 0, the id of its schema, the path of its message.

The format is Confluent's. The id has four bytes, the highest first. Only Protobuf has a path. It is a list of indexes:
of the message in its file, then of each message that is nested in the one before.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from semel_protocol.batch import CorruptBatch
from semel_protocol.varint import read_varint, varint

MAGIC = 0
PREFIX = struct.Struct(">BI")
INDEXES_MAX = 100
"""The deepest nesting of messages that is read."""


def prefix(schema_id: int) -> bytes:
    """The first five bytes of a value of this schema."""
    return PREFIX.pack(MAGIC, schema_id)


def read_schema_id(data: bytes) -> int:
    """The id of the value's schema. Raises ValueError for bytes of another format."""
    if len(data) < PREFIX.size or data[0] != MAGIC:
        raise ValueError(
            f"it begins with {data[: PREFIX.size].hex(' ') or 'nothing'}, not with the magic byte 00 and the four "
            "bytes of a schema id: it was not written with a schema registry, or in a format that is not supported"
        )
    return int(PREFIX.unpack_from(data)[1])


def message_indexes(indexes: Sequence[int]) -> bytes:
    """The path of a message as zigzag varints: its length and its indexes. The first message of a file is one zero."""
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(map(varint, [len(indexes), *indexes]))


def skip_message_indexes(data: bytes, at: int) -> int:
    """The position after the path of the message. Raises ValueError when the bytes are none."""
    return read_message_indexes(data, at)[1]


def read_message_indexes(data: bytes, at: int) -> tuple[list[int], int]:
    """The path of the message, and the position after it. Raises ValueError when the bytes are none."""
    count, at = _read(data, at)
    if not 0 <= count <= INDEXES_MAX:
        raise ValueError(f"the path of its message has {count} indexes: it was not written as Protobuf")
    indexes = []
    for _ in range(count):
        index, at = _read(data, at)
        indexes.append(index)
    return indexes or [0], at


def _read(data: bytes, at: int) -> tuple[int, int]:
    try:
        return read_varint(data, at)
    except CorruptBatch:
        raise ValueError("the path of its message is incomplete: it was not written as Protobuf") from None
