"""The setting `partition_assignment_strategy` of aiokafka's consumer, for semel's consumer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from semel_protocol.consumer_protocol import Assignment, Subscription

from semel._assignment.assignors import Assignments, Assignor, GroupMember
from semel.aiokafka.cluster import ClusterMetadata
from semel.aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from semel.aiokafka.coordinator.assignors.built_in import BuiltInPartitionAssignor
from semel.aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from semel.structs import Metadata, PartitionMetadata, TopicMetadata

__all__ = ["strategies_of"]

DEFAULT_STRATEGIES = ("roundrobin", "range", "cooperative-sticky")
"""The first is aiokafka's default, the others are semel's: one name in common with members of either client."""


def strategies_of(given: Any) -> Any:
    """The setting with assignors of semel in place of those of aiokafka's interface. Others stay as they are."""
    if not isinstance(given, list | tuple):
        return given
    return [_assignor_of(each) for each in given]


def _assignor_of(strategy: Any) -> Any:
    kind = strategy if isinstance(strategy, type) else type(strategy)
    if not issubclass(kind, AbstractPartitionAssignor):
        return strategy
    if kind.__module__.startswith("semel.") and issubclass(kind, BuiltInPartitionAssignor):
        return kind.assignor
    return ApplicationAssignor(strategy)


class MemberWithData(GroupMember, frozen=True, kw_only=True):
    """A member with the bytes that its assignor put into its subscription."""

    user_data: bytes


class ApplicationAssignor(Assignor):
    """An assignor that the application wrote for aiokafka. Rebalancing with it is eager."""

    def __init__(self, strategy: AbstractPartitionAssignor | type[AbstractPartitionAssignor]) -> None:
        self._strategy = strategy
        self._data: dict[str, bytes | None] = {}
        self.name = str(strategy.name)

    def user_data(self, owned: Sequence[Any], generation: int, topics: Sequence[str] = ()) -> bytes | None:
        return self._strategy.metadata(set(topics)).user_data

    def member(self, member_id: str, group_instance_id: str | None, subscription: Subscription) -> GroupMember:
        return MemberWithData(
            member_id=member_id,
            group_instance_id=group_instance_id,
            topics=tuple(subscription.topics),
            user_data=subscription.user_data or b"",
        )

    def assign(self, members: Sequence[GroupMember], partition_counts: Mapping[str, int]) -> Assignments:
        subscriptions = {
            each.member_id: ConsumerProtocolMemberMetadata(0, list(each.topics), each.user_data)
            for each in members
            if isinstance(each, MemberWithData)
        }
        given = self._strategy.assign(_cluster_of(partition_counts), subscriptions)
        self._data = {member_id: each.user_data for member_id, each in given.items()}
        return {
            each.member_id: given[each.member_id].partitions() if each.member_id in given else [] for each in members
        }

    def assignment_data(self, member_id: str) -> bytes | None:
        return self._data.get(member_id, b"")

    def adopted(self, assignment: Assignment) -> None:
        rows = [(row.topic, row.partitions) for row in assignment.assigned_partitions]
        self._strategy.on_assignment(ConsumerProtocolMemberAssignment(0, rows, assignment.user_data))


def _cluster_of(partition_counts: Mapping[str, int]) -> ClusterMetadata:
    """The topics of the group's members, as an assignor sees them."""
    topics = {topic: TopicMetadata(topic, _partitions(topic, range(n))) for topic, n in partition_counts.items()}
    metadata = Metadata(brokers={}, topics=topics)
    return ClusterMetadata(lambda: metadata)


def _partitions(topic: str, indexes: Iterable[int]) -> tuple[PartitionMetadata, ...]:
    return tuple(PartitionMetadata(topic, index, -1) for index in indexes)
