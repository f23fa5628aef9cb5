"""aiokafka's `coordinator.assignors.sticky.sticky_assignor`."""

from semel._assignment.assignors import StickyAssignor as StickyPartitionAssignor

__all__ = ["StickyPartitionAssignor"]
