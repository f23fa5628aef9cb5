"""aiokafka's class names for semel's classes: `from semel.aiokafka import AIOKafkaProducer`.

Settings and methods have aiokafka's names already. docs/moving-from-aiokafka.md lists the differences.
"""

from semel._assignment.assignors import RangeAssignor as RangePartitionAssignor
from semel._assignment.assignors import RoundRobinAssignor as RoundRobinPartitionAssignor
from semel._assignment.assignors import StickyAssignor as StickyPartitionAssignor
from semel._subscription.listener import ConsumerRebalanceListener
from semel.admin import Admin as AIOKafkaAdminClient
from semel.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic, RecordsToDelete
from semel.consumer import Consumer as AIOKafkaConsumer
from semel.errors import *  # noqa: F403
from semel.producer import Producer as AIOKafkaProducer
from semel.structs import ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp, RecordMetadata, TopicPartition

__all__ = [
    "AIOKafkaAdminClient",
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "ConfigResource",
    "ConfigResourceType",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "NewPartitions",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RangePartitionAssignor",
    "RecordMetadata",
    "RecordsToDelete",
    "RoundRobinPartitionAssignor",
    "StickyPartitionAssignor",
    "TopicPartition",
]
