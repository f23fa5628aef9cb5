"""aiokafka's `coordinator.assignors.sticky.sticky_assignor`."""

from __future__ import annotations

from collections.abc import Iterable

from semel_protocol.consumer_protocol import NO_GENERATION

from semel._assignment.assignors import STICKY
from semel.aiokafka.coordinator.assignors.built_in import BuiltInPartitionAssignor
from semel.aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from semel.structs import TopicPartition

__all__ = ["StickyPartitionAssignor"]


class StickyPartitionAssignor(BuiltInPartitionAssignor):
    """As balanced as subscriptions allow, with as few moved partitions as possible.

    member_assignment, generation: what `metadata` tells the leader; aiokafka keeps both in the class. A consumer of
    semel keeps its own, so several consumers of one process do not share them.
    """

    DEFAULT_GENERATION_ID = NO_GENERATION

    assignor = STICKY
    name = "sticky"
    member_assignment: list[TopicPartition] | None = None
    generation: int = DEFAULT_GENERATION_ID

    @classmethod
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        return cls._metadata(topics, cls.member_assignment, cls.generation)

    @classmethod
    def _metadata(
        cls, topics: Iterable[str], owned: Iterable[TopicPartition] | None, generation: int = NO_GENERATION
    ) -> ConsumerProtocolMemberMetadata:
        data = b"" if owned is None else STICKY.user_data(list(owned), generation)
        return ConsumerProtocolMemberMetadata(cls.version, list(topics), data)

    @classmethod
    def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None:
        cls.member_assignment = assignment.partitions()

    @classmethod
    def on_generation_assignment(cls, generation: int) -> None:
        cls.generation = generation
