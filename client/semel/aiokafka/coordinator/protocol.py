"""aiokafka's `coordinator.protocol`: what members of a group tell each other."""

from semel._assignment.protocol import Assignment as ConsumerProtocolMemberAssignment
from semel._assignment.protocol import Subscription as ConsumerProtocolMemberMetadata

__all__ = ["ConsumerProtocolMemberAssignment", "ConsumerProtocolMemberMetadata"]
