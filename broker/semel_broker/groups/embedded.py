"""PURE: What the broker reads in the subscriptions and assignments of consumers, which it otherwise passes on."""

from __future__ import annotations

from collections.abc import Iterable

from semel_protocol.consumer_protocol import (
    AssignedPartitions,
    Assignment,
    SubscribedTopics,
    Subscription,
    TopicPartitions,
    by_topic,
    decode_embedded,
    decode_head,
    encode_embedded,
)
from semel_protocol.errors import ProtocolError

NamedPlaces = tuple[tuple[str, int], ...]
"""(topic name, partition)."""


def subscription_of(metadata: bytes) -> Subscription | None:
    """The subscription in the metadata of a JoinGroup; None: it cannot be read."""
    try:
        return decode_embedded(Subscription, metadata)
    except ProtocolError:
        return None


def owned_by(subscription: Subscription) -> NamedPlaces:
    """The partitions that a member reports as owned."""
    return _places(subscription.owned_partitions)


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all these subscriptions; None: one cannot be read and may contain any topic."""
    found: dict[str, None] = {}
    for subscription in dict.fromkeys(subscriptions):  # most members of a group have the same
        try:
            found.update(dict.fromkeys(decode_head(SubscribedTopics, subscription).topics))
        except ProtocolError:
            return None
    return frozenset(found)


def assignment_of(data: bytes) -> NamedPlaces | None:
    """The partitions of an assignment, none for b""; None: it cannot be read."""
    if not data:
        return ()
    try:
        return _places(decode_head(AssignedPartitions, data).assigned_partitions)
    except ProtocolError:
        return None


def encoded_assignment(version: int, places: Iterable[tuple[str, int]]) -> bytes:
    """The assignment for a member whose subscription has this version."""
    return encode_embedded(Assignment(assigned_partitions=by_topic(places)), version)


def _places(rows: Iterable[TopicPartitions]) -> NamedPlaces:
    return tuple((row.topic, partition) for row in rows for partition in row.partitions)
