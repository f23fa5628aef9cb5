"""PURE: The subscriptions and assignments that consumers of the classic protocol send as opaque bytes (KIP-429).

Both begin with an int16 version. A later version only adds fields at the end, so a reader stops at what it knows.

    subscription  v0 topics, user data   v1 owned partitions   v2 generation   v3 rack
    assignment    v0 partitions by topic, user data
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import msgspec

NamedPlaces = tuple[tuple[str, int], ...]
"""(topic name, partition)."""

OWNED_VERSION = 1
RACK_VERSION = 3
ABSENT = -1
NO_USER_DATA = struct.pack(">i", ABSENT)


class EmbeddedSubscription(msgspec.Struct, frozen=True):
    """The topics of a consumer of the classic protocol, and the partitions that it reports as owned."""

    version: int
    topics: tuple[str, ...]
    owned: NamedPlaces = ()
    rack_id: str | None = None


def subscription_of(metadata: bytes) -> EmbeddedSubscription | None:
    """The subscription in the metadata of a JoinGroup; None: it cannot be read."""
    try:
        return _subscription(_Reader(metadata))
    except ValueError:
        return None


def assignment_of(data: bytes) -> NamedPlaces | None:
    """The partitions of an assignment, none for b""; None: it cannot be read."""
    if not data:
        return ()
    try:
        reader = _Reader(data)
        reader.short()
        return reader.places()
    except ValueError:
        return None


def encoded_assignment(version: int, places: Iterable[tuple[str, int]]) -> bytes:
    """The assignment for a member whose subscription has this version."""
    return struct.pack(">h", version) + _encoded(places) + NO_USER_DATA


def encoded_subscription(version: int, topics: Iterable[str], owned: Iterable[tuple[str, int]] = ()) -> bytes:
    """A subscription of version 0 or 1."""
    names = [name.encode() for name in topics]
    listed = b"".join(struct.pack(">h", len(name)) + name for name in names)
    head = struct.pack(">hi", version, len(names)) + listed + NO_USER_DATA
    return head + _encoded(owned) if version >= OWNED_VERSION else head


def _encoded(places: Iterable[tuple[str, int]]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        by_topic.setdefault(topic, []).append(partition)
    parts = [struct.pack(">i", len(by_topic))]
    for topic, partitions in by_topic.items():
        name = topic.encode()
        parts += [
            struct.pack(">h", len(name)),
            name,
            struct.pack(f">i{len(partitions)}i", len(partitions), *partitions),
        ]
    return b"".join(parts)


class _Reader:
    """Reads fields one after the other. Raises ValueError for malformed ones."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> bytes:
        start, self._at = self._at, self._at + size
        if size < 0 or self._at > len(self._data):
            raise ValueError("a field is cut off")
        return self._data[start : self._at]

    def short(self) -> int:
        return int.from_bytes(self.take(2), "big", signed=True)

    def integer(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def count(self) -> int:
        count = self.integer()
        if not 0 <= count <= len(self._data) - self._at:
            raise ValueError("there cannot be so many elements")
        return count

    def string(self) -> str:
        return self.take(self.short()).decode()

    def nullable_string(self) -> str | None:
        size = self.short()
        return None if size == ABSENT else self.take(size).decode()

    def skip_bytes(self) -> None:
        if (size := self.integer()) != ABSENT:
            self.take(size)

    def places(self) -> NamedPlaces:
        found = []
        for _ in range(self.count()):
            topic = self.string()
            found += [(topic, self.integer()) for _ in range(self.count())]
        return tuple(found)


def _subscription(reader: _Reader) -> EmbeddedSubscription:
    version = reader.short()
    if version < 0:
        raise ValueError("there is no such version")
    topics = tuple(reader.string() for _ in range(reader.count()))
    reader.skip_bytes()
    owned = reader.places() if version >= OWNED_VERSION else ()
    if version >= RACK_VERSION:
        reader.integer()  # the generation of what it owns
    return EmbeddedSubscription(version, topics, owned, reader.nullable_string() if version >= RACK_VERSION else None)
