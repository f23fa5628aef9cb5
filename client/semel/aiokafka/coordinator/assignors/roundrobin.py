"""aiokafka's `coordinator.assignors.roundrobin`."""

from semel._assignment.assignors import RoundRobinAssignor as RoundRobinPartitionAssignor

__all__ = ["RoundRobinPartitionAssignor"]
