"""aiokafka's class names, so that moving over is a change of import: `from semel.aiokafka import AIOKafkaProducer`.

Settings and methods carry aiokafka's names in semel already; what differs is in the README.
"""

from semel.errors import *  # noqa: F403
from semel.producer import Producer as AIOKafkaProducer
from semel.structs import ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp, RecordMetadata, TopicPartition

__all__ = [
    "AIOKafkaProducer",
    "ConsumerRecord",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RecordMetadata",
    "TopicPartition",
]
