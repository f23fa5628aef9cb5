"""The embedded protocol of "consumer" groups: subscriptions and assignments, which the coordinator does not decode.

Subscription v0-v3 is in JoinGroup, assignment v0-v3 in SyncGroup: an int16 version, then fields, never flexible
(KIP-429 owned partitions, KIP-792 generation, KIP-881 rack). Two of Kafka's assignors put their own bytes into
`user_data`: sticky the previous assignment and generation, cooperative-sticky the generation.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from struct import Struct as Layout
from typing import Annotated

from msgspec import field
from semel_protocol.errors import ProtocolError
from semel_protocol.schema import Int32, Message, codec, since

from semel.structs import TopicPartition

PROTOCOL_TYPE = "consumer"
VERSION = 3
NO_GENERATION = -1

_VERSION = Layout(">h")
_GENERATION = Layout(">i")


class TopicPartitions(Message, kw_only=True):
    topic: str
    partitions: list[Int32]


class Subscription(Message, kw_only=True):
    """The topics of a member, the partitions it owns, and their generation."""

    topics: list[str]
    user_data: bytes | None = None
    owned_partitions: Annotated[list[TopicPartitions], since(1)] = field(default_factory=list)
    generation_id: Annotated[Int32, since(2)] = NO_GENERATION
    rack_id: Annotated[str | None, since(3)] = None


class Assignment(Message, kw_only=True):
    """The partitions that the leader assigns to a member."""

    assigned_partitions: list[TopicPartitions]
    user_data: bytes | None = None


class StickyUserData(Message, kw_only=True):
    """The user data of Kafka's sticky assignor: the previous assignment; version 1 adds its generation."""

    previous_assignment: list[TopicPartitions]
    generation: Annotated[Int32, since(1)] = NO_GENERATION


def encode_subscription(subscription: Subscription) -> bytes:
    return _VERSION.pack(VERSION) + codec(Subscription, VERSION).encode_bytes(subscription)


def decode_subscription(data: bytes) -> Subscription:
    """Raise ProtocolError when another member's bytes are not a subscription."""
    subscription: Subscription = codec(Subscription, _version_of(data)).decode(data, _VERSION.size)
    return subscription


def encode_assignment(partitions: Iterable[TopicPartition], user_data: bytes | None = None) -> bytes:
    assignment = Assignment(assigned_partitions=by_topic(partitions), user_data=user_data)
    return _VERSION.pack(VERSION) + codec(Assignment, VERSION).encode_bytes(assignment)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The assigned partitions; none for empty bytes. Raises ProtocolError."""
    return partitions_of(read_assignment(data).assigned_partitions)


def read_assignment(data: bytes) -> Assignment:
    """The assignment with its user data; one without partitions for empty bytes. Raises ProtocolError."""
    if not data:
        return Assignment(assigned_partitions=[])
    assignment: Assignment = codec(Assignment, _version_of(data)).decode(data, _VERSION.size)
    return assignment


def encode_sticky_user_data(owned: Iterable[TopicPartition], generation: int) -> bytes:
    previous = StickyUserData(previous_assignment=by_topic(owned), generation=generation)
    return codec(StickyUserData, 1).encode_bytes(previous)


def decode_sticky_user_data(data: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    """(previous assignment, generation). The bytes carry no version: version 1 is tried first, then version 0.

    Raises ProtocolError.
    """
    try:
        previous = codec(StickyUserData, 1).decode(data)
    except ProtocolError:
        previous = codec(StickyUserData, 0).decode(data)
    return partitions_of(previous.previous_assignment), previous.generation


def encode_cooperative_user_data(generation: int) -> bytes:
    return _GENERATION.pack(generation)


def decode_cooperative_user_data(data: bytes) -> int:
    """The generation. Raises ProtocolError."""
    try:
        return int(_GENERATION.unpack_from(data)[0])
    except struct.error as e:
        raise ProtocolError(f"cooperative-sticky user data of {len(data)} bytes: {e}") from None


def by_topic(partitions: Iterable[TopicPartition]) -> list[TopicPartitions]:
    """Grouped by topic, topics and partitions sorted, as Kafka's own members write them."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        grouped.setdefault(topic, []).append(partition)
    return [TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in grouped.items()]


def partitions_of(grouped: Iterable[TopicPartitions]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(row.topic, index) for row in grouped for index in row.partitions)


def _version_of(data: bytes) -> int:
    """The version to decode with. A newer writer's additional fields follow the known ones."""
    try:
        version = int(_VERSION.unpack_from(data)[0])
    except struct.error as e:
        raise ProtocolError(f"a group member's payload of {len(data)} bytes has no version: {e}") from None
    if version < 0:
        raise ProtocolError(f"a group member's payload has version {version}")
    return min(version, VERSION)
