"""aiokafka's `coordinator.protocol`: the subscription and the assignment of a group's member."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from semel_protocol.consumer_protocol import PROTOCOL_TYPE, Assignment, Subscription, TopicPartitions, decode_embedded
from semel_protocol.schema import codec

from semel._assignment.protocol import read_assignment
from semel.structs import TopicPartition

__all__ = ["ConsumerProtocol", "ConsumerProtocolMemberAssignment", "ConsumerProtocolMemberMetadata"]

VERSION_BYTES = 2


class ConsumerProtocolMemberMetadata(msgspec.Struct):
    """A member's subscription: topics, and bytes of the assignor."""

    version: int = 0
    subscription: list[str] = []
    user_data: bytes | None = b""

    def encode(self) -> bytes:
        """Version 0 of Kafka's subscription."""
        subscription = Subscription(topics=list(self.subscription), user_data=self.user_data)
        return self.version.to_bytes(VERSION_BYTES, "big") + codec(Subscription, 0).encode_bytes(subscription)

    @classmethod
    def decode(cls, data: bytes) -> ConsumerProtocolMemberMetadata:
        """Raise ProtocolError."""
        found = decode_embedded(Subscription, data)
        return cls(int.from_bytes(data[:VERSION_BYTES], "big"), list(found.topics), found.user_data)


class ConsumerProtocolMemberAssignment(msgspec.Struct):
    """A member's assignment: (topic, partitions) of each topic, and bytes of the assignor."""

    class Assignment(NamedTuple):
        topic: str
        partitions: list[int]

    version: int = 0
    assignment: Sequence[tuple[str, Iterable[int]]] = ()
    user_data: bytes | None = b""

    def partitions(self) -> list[TopicPartition]:
        """The assigned partitions."""
        return [TopicPartition(topic, index) for topic, indexes in self.assignment for index in indexes]

    def encode(self) -> bytes:
        """Version 0 of Kafka's assignment."""
        rows = [TopicPartitions(topic=topic, partitions=list(indexes)) for topic, indexes in self.assignment]
        assignment = Assignment(assigned_partitions=rows, user_data=self.user_data)
        return self.version.to_bytes(VERSION_BYTES, "big") + codec(Assignment, 0).encode_bytes(assignment)

    @classmethod
    def decode(cls, data: bytes) -> ConsumerProtocolMemberAssignment:
        """Raise ProtocolError."""
        found = read_assignment(data)
        rows = [cls.Assignment(row.topic, list(row.partitions)) for row in found.assigned_partitions]
        return cls(int.from_bytes(data[:VERSION_BYTES], "big"), rows, found.user_data)


class ConsumerProtocol:
    """The names of the "consumer" protocol of groups."""

    PROTOCOL_TYPE = PROTOCOL_TYPE
    ASSIGNMENT_STRATEGIES = ("range", "roundrobin")
    METADATA = ConsumerProtocolMemberMetadata
    ASSIGNMENT = ConsumerProtocolMemberAssignment
