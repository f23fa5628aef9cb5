"""Subscriptions and assignments of consumers (`semel_protocol.consumer_protocol`) with the structs of this client.

Two of Kafka's assignors put their own bytes into `user_data`: sticky the previous assignment and generation,
cooperative-sticky the generation.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Annotated

from semel_protocol.consumer_protocol import (
    NO_GENERATION,
    Assignment,
    TopicPartitions,
    by_topic,
    decode_embedded,
    encode_embedded,
)
from semel_protocol.errors import ProtocolError
from semel_protocol.schema import Int32, Message, codec, since

from semel.structs import TopicPartition

_GENERATION = struct.Struct(">i")


class StickyUserData(Message, kw_only=True):
    """The user data of Kafka's sticky assignor: the previous assignment; version 1 adds its generation."""

    previous_assignment: list[TopicPartitions]
    generation: Annotated[Int32, since(1)] = NO_GENERATION


def encode_assignment(partitions: Iterable[TopicPartition], user_data: bytes | None = None) -> bytes:
    return encode_embedded(Assignment(assigned_partitions=by_topic(partitions), user_data=user_data))


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The assigned partitions; none for empty bytes. Raises ProtocolError."""
    return partitions_of(read_assignment(data).assigned_partitions)


def read_assignment(data: bytes) -> Assignment:
    """The assignment with its user data; one without partitions for empty bytes. Raises ProtocolError."""
    return decode_embedded(Assignment, data) if data else Assignment(assigned_partitions=[])


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


def partitions_of(grouped: Iterable[TopicPartitions]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(row.topic, index) for row in grouped for index in row.partitions)
