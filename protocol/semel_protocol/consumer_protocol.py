"""The embedded protocol of consumers: the subscriptions and assignments in JoinGroup and SyncGroup.

Both are an int16 version, then the fields of that version, never flexible (KIP-429 owned partitions, KIP-792
generation, KIP-881 rack). A later version only adds fields at the end, so a reader stops at the fields that it knows,
and the first fields (`SubscribedTopics`, `AssignedPartitions`) can be read alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Annotated, TypeVar

from msgspec import field

from semel_protocol.errors import ProtocolError
from semel_protocol.schema import Int32, Message, codec, since

PROTOCOL_TYPE = "consumer"
VERSION = 3
NO_GENERATION = -1

_VERSION = struct.Struct(">h")


class TopicPartitions(Message, kw_only=True):
    topic: str
    partitions: list[Int32]


class SubscribedTopics(Message, kw_only=True):
    """The first field of a subscription, the same in every version."""

    topics: list[str]


class Subscription(SubscribedTopics, kw_only=True):
    """The topics of a member, the partitions it owns, and their generation. `user_data` belongs to the assignor."""

    user_data: bytes | None = None
    owned_partitions: Annotated[list[TopicPartitions], since(1)] = field(default_factory=list)
    generation_id: Annotated[Int32, since(2)] = NO_GENERATION
    rack_id: Annotated[str | None, since(3)] = None


class AssignedPartitions(Message, kw_only=True):
    """The first field of an assignment, the same in every version."""

    assigned_partitions: list[TopicPartitions]


class Assignment(AssignedPartitions, kw_only=True):
    """The partitions that the leader assigns to a member."""

    user_data: bytes | None = None


Embedded = TypeVar("Embedded", Subscription, Assignment)
Head = TypeVar("Head", SubscribedTopics, AssignedPartitions)


def encode_embedded(message: Subscription | Assignment, version: int = VERSION) -> bytes:
    """The bytes of `message`. Beyond `VERSION` they have the fields of that version."""
    return _VERSION.pack(version) + codec(type(message), min(version, VERSION)).encode_bytes(message)


def decode_embedded(cls: type[Embedded], data: bytes) -> Embedded:
    """The message in another member's bytes. Raises ProtocolError if they are none."""
    message: Embedded = codec(cls, min(version_of(data), VERSION)).decode(data, _VERSION.size)
    return message


def decode_head(cls: type[Head], data: bytes) -> Head:
    """The first field alone, whatever follows it. Raises ProtocolError."""
    head: Head = codec(cls, 0).decode(data, _VERSION.size)
    return head


def version_of(data: bytes) -> int:
    """The version in another member's bytes. Raises ProtocolError if there is none, or a negative one."""
    try:
        version = int(_VERSION.unpack_from(data)[0])
    except struct.error as e:
        raise ProtocolError(f"a group member's payload of {len(data)} bytes has no version: {e}") from None
    if version < 0:
        raise ProtocolError(f"a group member's payload has version {version}")
    return version


def by_topic(partitions: Iterable[tuple[str, int]]) -> list[TopicPartitions]:
    """Grouped by topic, topics and partitions sorted, as Kafka's own members write them."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        grouped.setdefault(topic, []).append(partition)
    return [TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in grouped.items()]
