"""aiokafka's `admin.new_topic`."""

from semel.admin import NewTopic

__all__ = ["NewTopic"]
