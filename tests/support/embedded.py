"""Subscriptions of consumers of the classic protocol, as bytes."""

from __future__ import annotations

from collections.abc import Iterable

from semel_protocol.consumer_protocol import Subscription, by_topic, encode_embedded


def encoded_subscription(version: int, topics: Iterable[str], owned: Iterable[tuple[str, int]] = ()) -> bytes:
    """The subscription to these topics of a member that owns these partitions."""
    return encode_embedded(Subscription(topics=list(topics), owned_partitions=by_topic(owned)), version)
