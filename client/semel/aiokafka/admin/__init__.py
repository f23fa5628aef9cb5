"""aiokafka's `admin`."""

from semel.admin import Admin as AIOKafkaAdminClient
from semel.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic, RecordsToDelete

__all__ = [
    "AIOKafkaAdminClient",
    "ConfigResource",
    "ConfigResourceType",
    "NewPartitions",
    "NewTopic",
    "RecordsToDelete",
]
