"""aiokafka's `admin.client`."""

from semel.aiokafka.admin import AIOKafkaAdminClient

__all__ = ["AIOKafkaAdminClient"]
