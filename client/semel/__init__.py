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
    "BrokerMetadata",
    "Consumer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "CooperativeStickyAssignor",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionMetadata",
    "Producer",
    "RangeAssignor",
    "RecordBatch",
    "RecordMetadata",
    "RoundRobinAssignor",
    "StickyAssignor",
    "TopicMetadata",
    "TopicPartition",
    "__version__",
    "errors",
]
