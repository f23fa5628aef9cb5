"""aiokafka's `coordinator.assignors.roundrobin`."""

from semel._assignment.assignors import ROUND_ROBIN
from semel.aiokafka.coordinator.assignors.built_in import BuiltInPartitionAssignor

__all__ = ["RoundRobinPartitionAssignor"]


class RoundRobinPartitionAssignor(BuiltInPartitionAssignor):
    """The partitions of all topics in turn."""

    assignor = ROUND_ROBIN
    name = "roundrobin"
