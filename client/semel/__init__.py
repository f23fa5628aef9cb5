"""semel's asyncio client: `Producer`, `Consumer`, `Admin`. Names are aiokafka's; `semel.aiokafka` helps moving over."""

from semel_protocol import __version__

from semel import errors
from semel._assignors import (
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from semel._listener import ConsumerRebalanceListener
from semel.admin import Admin, ConfigResource, ConfigResourceType, NewPartitions, NewTopic, RecordsToDelete
from semel.consumer import Consumer
from semel.producer import Producer, RecordBatch
from semel.structs import (
    BrokerMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionMetadata,
    RecordMetadata,
    TopicMetadata,
    TopicPartition,
)

__all__ = [
    "Admin",
    "BrokerMetadata",
    "ConfigResource",
    "ConfigResourceType",
    "Consumer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "CooperativeStickyAssignor",
    "NewPartitions",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionMetadata",
    "Producer",
    "RangeAssignor",
    "RecordBatch",
    "RecordMetadata",
    "RecordsToDelete",
    "RoundRobinAssignor",
    "StickyAssignor",
    "TopicMetadata",
    "TopicPartition",
    "__version__",
    "errors",
]
