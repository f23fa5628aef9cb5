"""PURE: Reads the subscribed topics from the metadata of consumers, which is otherwise opaque to the broker."""

from __future__ import annotations

import struct
from collections.abc import Iterable

_COUNT = struct.Struct(">i")
_COUNT_AT = 2
_SIZE = struct.Struct(">h")


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all these subscriptions; None: one cannot be read and may contain any topic."""
    found: dict[str, None] = {}
    for subscription in dict.fromkeys(subscriptions):  # most members of a group have the same
        topics = _topics(subscription)
        if topics is None:
            return None
        found.update(dict.fromkeys(topics))
    return frozenset(found)


def _topics(subscription: bytes) -> list[str] | None:
    """int16 version, int32 count, int16-prefixed names; the rest belongs to the assignors (v0-3)."""
    topics = []
    try:
        (count,) = _COUNT.unpack_from(subscription, _COUNT_AT)
        at = _COUNT_AT + _COUNT.size
        if not 0 <= count * _SIZE.size <= len(subscription):
            return None
        for _ in range(count):
            (size,) = _SIZE.unpack_from(subscription, at)
            at += _SIZE.size + size
            if size < 0 or at > len(subscription):
                return None
            topics.append(subscription[at - size : at].decode())
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
