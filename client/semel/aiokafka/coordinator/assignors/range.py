"""aiokafka's `coordinator.assignors.range`."""

from semel._assignment.assignors import RANGE
from semel.aiokafka.coordinator.assignors.built_in import BuiltInPartitionAssignor

__all__ = ["RangePartitionAssignor"]


class RangePartitionAssignor(BuiltInPartitionAssignor):
    """Topic by topic, a range of consecutive partitions for each member."""

    assignor = RANGE
    name = "range"
