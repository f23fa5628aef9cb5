"""semel's assignors behind aiokafka's interface, for the classes that aiokafka has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from semel_protocol.consumer_protocol import Subscription, by_topic

from semel._assignment.assignors import Assignor
from semel.aiokafka.cluster import ClusterMetadata
from semel.aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from semel.aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

__all__ = ["BuiltInPartitionAssignor"]


class BuiltInPartitionAssignor(AbstractPartitionAssignor):
    """An assignor of semel. The consumer uses `assignor` itself; the methods are for callers with aiokafka's types."""

    assignor: ClassVar[Assignor]
    name: ClassVar[str]
    version: ClassVar[int] = 0

    @classmethod
    def assign(
        cls, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Topics that the cluster does not have are left out."""
        subscriptions = {
            member_id: Subscription(topics=sorted(member.subscription), user_data=member.user_data)
            for member_id, member in members.items()
        }
        counts = {}
        for topic in dict.fromkeys(topic for each in subscriptions.values() for topic in each.topics):
            if (partitions := cluster.partitions_for_topic(topic)) is not None:
                counts[topic] = len(partitions)
        given = cls.assignor.assign(
            [cls.assignor.member(member_id, None, each) for member_id, each in subscriptions.items()], counts
        )
        return {
            member_id: ConsumerProtocolMemberAssignment(
                cls.version, [(row.topic, row.partitions) for row in by_topic(given[member_id])], b""
            )
            for member_id in members
        }

    @classmethod
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        return ConsumerProtocolMemberMetadata(cls.version, list(topics), b"")

    @classmethod
    def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None:
        pass
