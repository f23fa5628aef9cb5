"""aiokafka's class names and modules for semel's classes: `from semel.aiokafka import AIOKafkaProducer`.

Settings and methods have aiokafka's names already. Submodules stand where aiokafka has them: `semel.aiokafka.errors`,
`.structs`, `.abc`, `.admin`, `.helpers`, `.coordinator.assignors`. `install()` puts them in place of aiokafka, for
libraries that import it. docs/moving-from-aiokafka.md lists the differences.
"""

from semel.aiokafka.abc import ConsumerRebalanceListener
from semel.aiokafka.admin import (
    AIOKafkaAdminClient,
    ConfigResource,
    ConfigResourceType,
    NewPartitions,
    NewTopic,
    RecordsToDelete,
)
from semel.aiokafka.client import AIOKafkaClient
from semel.aiokafka.consumer import AIOKafkaConsumer
from semel.aiokafka.coordinator.assignors.range import RangePartitionAssignor
from semel.aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from semel.aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from semel.aiokafka.errors import *  # noqa: F403
from semel.aiokafka.errors import ConsumerStoppedError, IllegalOperation
from semel.aiokafka.installation import install
from semel.aiokafka.producer import AIOKafkaProducer
from semel.aiokafka.structs import (
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RecordMetadata,
    TopicPartition,
)

__version__ = "0.14.0"
"""The version of aiokafka whose names these are."""

__all__ = [
    "AIOKafkaAdminClient",
    "AIOKafkaClient",
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "ConfigResource",
    "ConfigResourceType",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerStoppedError",
    "IllegalOperation",
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
    "install",
]
