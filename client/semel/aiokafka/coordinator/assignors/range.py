"""aiokafka's `coordinator.assignors.range`."""

from semel._assignment.assignors import RangeAssignor as RangePartitionAssignor

__all__ = ["RangePartitionAssignor"]
