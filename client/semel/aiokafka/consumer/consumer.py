"""aiokafka's `consumer.consumer`: the Consumer, with the attributes of aiokafka's that libraries use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from semel._type_variables import K_co, V_co
from semel.consumer import Consumer

__all__ = ["AIOKafkaConsumer"]


class Coordinator(msgspec.Struct, frozen=True):
    """The attributes of aiokafka's coordinator that libraries read. `member_id`: "" before the first join."""

    member_id: str
    generation: int


if TYPE_CHECKING:
    AIOKafkaConsumer = Consumer
else:

    class AIOKafkaConsumer(Consumer[K_co, V_co]):
        """`semel.Consumer`."""

        @property
        def _coordinator(self) -> Coordinator:
            if self.group_id is None:
                return Coordinator("", -1)
            metadata = self.group_metadata()
            return Coordinator(metadata.member_id, metadata.generation_id)
