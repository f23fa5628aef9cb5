"""The asyncio client for Kafka brokers: `Producer`, `Consumer`, `Admin`, `BatchReader` and `TransactionGroup`.

    async with Producer(bootstrap_servers="localhost:9092") as producer:
        await producer.send_and_wait("flights", b"...")

Names are those of aiokafka. `semel.aiokafka` has aiokafka's class names, for programs that move from it.
"""

from semel_protocol import __version__

from semel import errors
from semel._assignment.assignors import CooperativeStickyAssignor, RangeAssignor, RoundRobinAssignor, StickyAssignor
from semel._config.client import AdminConfig, TransactionGroupConfig
from semel._config.consumer import ConsumerConfig
from semel._config.producer import ProducerConfig
from semel._produce.record_batch import RecordBatch
from semel._subscription.listener import ConsumerRebalanceListener
from semel.admin import Admin, ConfigResource, ConfigResourceType, NewPartitions, NewTopic, RecordsToDelete
from semel.batch_reader import BatchReader, BatchReaderConfig, CommittedBatches
from semel.consumer import Consumer
from semel.errors import KafkaError
from semel.producer import Producer
from semel.structs import (
    BrokerMetadata,
    ConsumerGroupMetadata,
    ConsumerRecord,
    GroupStep,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionMetadata,
    PreparedTransaction,
    RecordMetadata,
    TopicMetadata,
    TopicPartition,
)
from semel.transaction import Transaction
from semel.transaction_group import TransactionGroup

__all__ = [
    "Admin",
    "AdminConfig",
    "BatchReader",
    "BatchReaderConfig",
    "BrokerMetadata",
    "CommittedBatches",
    "ConfigResource",
    "ConfigResourceType",
    "Consumer",
    "ConsumerConfig",
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "CooperativeStickyAssignor",
    "GroupStep",
    "KafkaError",
    "NewPartitions",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionMetadata",
    "PreparedTransaction",
    "Producer",
    "ProducerConfig",
    "RangeAssignor",
    "RecordBatch",
    "RecordMetadata",
    "RecordsToDelete",
    "RoundRobinAssignor",
    "StickyAssignor",
    "TopicMetadata",
    "TopicPartition",
    "Transaction",
    "TransactionGroup",
    "TransactionGroupConfig",
    "__version__",
    "errors",
]
