"""aiokafka's `coordinator.assignors.abstract`: the base class of assignors that applications write."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from semel.aiokafka.cluster import ClusterMetadata
from semel.aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

__all__ = ["AbstractPartitionAssignor"]


class AbstractPartitionAssignor(ABC):
    """An assignor with aiokafka's interface. The class itself, or an object of it, is given to the consumer."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the strategy. All members of a group need one name in common."""

    @classmethod
    @abstractmethod
    def assign(
        cls, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """The assignment of every member. members: member id -> its subscription."""

    @classmethod
    @abstractmethod
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """This member's subscription. The consumer sends its user_data."""

    @classmethod
    @abstractmethod
    def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Called with this member's own assignment."""
