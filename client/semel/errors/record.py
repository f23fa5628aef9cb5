"""The exception for a record that a deserializer refuses."""

from __future__ import annotations

from typing import Literal

from semel.errors.base import KafkaError
from semel.structs import ConsumerRecord, TopicPartition


class RecordDeserializationError(KafkaError):
    """A deserializer refused a record. The position stays before it, so the next call for records raises again.

    field: "key" or "value". record: the record with the bytes of its key and value, for example for a dead-letter
    topic. `__cause__` is the exception of the deserializer. To continue: `consumer.seek(error.topic_partition,
    error.record.offset + 1)`.
    """

    def __init__(
        self, field: Literal["key", "value"], record: ConsumerRecord[bytes | None, bytes | None], cause: Exception
    ) -> None:
        self.field, self.record = field, record
        self.__cause__ = cause
        super().__init__(
            f"{record.topic}-{record.partition} at offset {record.offset}: the {field} cannot be deserialized: "
            f"{type(cause).__name__}: {cause}. seek({record.offset + 1}) continues after it"
        )

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.record.topic, self.record.partition)
