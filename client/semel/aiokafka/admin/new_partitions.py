"""aiokafka's `admin.new_partitions`."""

from semel.admin import NewPartitions

__all__ = ["NewPartitions"]
