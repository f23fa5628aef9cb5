"""aiokafka's `admin`."""

from semel.admin import NewPartitions, NewTopic, RecordsToDelete
from semel.aiokafka.admin.client import AIOKafkaAdminClient
from semel.aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

__all__ = [
    "AIOKafkaAdminClient",
    "ConfigResource",
    "ConfigResourceType",
    "NewPartitions",
    "NewTopic",
    "RecordsToDelete",
]
