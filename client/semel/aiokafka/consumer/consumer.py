"""aiokafka's `consumer.consumer`: the Consumer, with the attributes of aiokafka's that libraries use."""

from __future__ import annotations

import msgspec

from semel.consumer import Consumer

__all__ = ["AIOKafkaConsumer"]


class Coordinator(msgspec.Struct, frozen=True):
    """The attributes of aiokafka's coordinator that libraries read. `member_id`: "" before the first join."""

    member_id: str
    generation: int


class AIOKafkaConsumer(Consumer):
    """`semel.Consumer`."""

    @property
    def _coordinator(self) -> Coordinator:
        if self.group_id is None:
            return Coordinator("", -1)
        metadata = self.group_metadata()
        return Coordinator(metadata.member_id, metadata.generation_id)
