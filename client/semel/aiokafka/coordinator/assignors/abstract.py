"""aiokafka's `coordinator.assignors.abstract`."""

from semel._assignment.assignors import Assignor as AbstractPartitionAssignor

__all__ = ["AbstractPartitionAssignor"]
