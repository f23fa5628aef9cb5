"""Assignors with aiokafka's interface: those of an application, and semel's own behind that interface."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import pytest
from client.consuming import tp
from semel.admin import Admin, NewTopic
from semel.aiokafka import (
    AIOKafkaConsumer,
    RangePartitionAssignor,
    RoundRobinPartitionAssignor,
    StickyPartitionAssignor,
)
from semel.aiokafka.cluster import ClusterMetadata
from semel.aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from semel.aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment as MemberAssignment
from semel.aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata as MemberMetadata
from semel.consumer import Consumer
from semel.structs import Metadata, PartitionMetadata, TopicMetadata


class AllToOne(AbstractPartitionAssignor):
    """Assigns all partitions to the member with the largest weight, and sends each member the number of members."""

    name = "all-to-one"

    def __init__(self, weight: int) -> None:
        self.weight = weight
        self.told: list[MemberAssignment] = []

    def metadata(self, topics: Iterable[str]) -> MemberMetadata:  # type: ignore[override]
        return MemberMetadata(0, sorted(topics), bytes([self.weight]))

    def assign(  # type: ignore[override]
        self, cluster: ClusterMetadata, members: Mapping[str, MemberMetadata]
    ) -> dict[str, MemberAssignment]:
        taker = max(members, key=lambda member: members[member].user_data or b"")
        everything = [("t", sorted(cluster.partitions_for_topic("t") or ()))]
        size = bytes([len(members)])
        return {member: MemberAssignment(0, everything if member == taker else [], size) for member in members}

    def on_assignment(self, assignment: MemberAssignment) -> None:  # type: ignore[override]
        self.told.append(assignment)


async def test_an_assignor_of_the_application_assigns_with_the_data_of_all_members(bootstrap: str) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic("t", 3, 1)])
    assignors = [AllToOne(1), AllToOne(2)]
    consumers = [
        AIOKafkaConsumer(
            "t", bootstrap_servers=bootstrap, group_id="g", partition_assignment_strategy=[assignor],
            heartbeat_interval_ms=100,
        )
        for assignor in assignors
    ]  # fmt: skip
    await asyncio.gather(*(consumer.start() for consumer in consumers))
    await asyncio.sleep(5)
    assert [sorted(consumer.assignment()) for consumer in consumers] == [[], [tp(0), tp(1), tp(2)]]
    for assignor, partitions in zip(assignors, ([], [tp(0), tp(1), tp(2)]), strict=True):
        assert assignor.told[-1].user_data == bytes([2])
        assert assignor.told[-1].partitions() == partitions
    for consumer in consumers:
        await consumer.stop()


async def test_members_under_either_name_share_a_group(bootstrap: str) -> None:
    """aiokafka's default is roundrobin, semel's range: the class under aiokafka's name offers both."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic("t", 2, 1)])
    settings: dict[str, Any] = {"bootstrap_servers": bootstrap, "group_id": "g", "heartbeat_interval_ms": 100}
    settings["rebalance_timeout_ms"] = 1000
    for other in (Consumer("t", **settings), AIOKafkaConsumer(
        "t", partition_assignment_strategy=(RoundRobinPartitionAssignor,), **settings
    )):  # fmt: skip
        async with AIOKafkaConsumer("t", **settings) as mine, other:
            await asyncio.sleep(5)
            assert len(mine.assignment()) == len(other.assignment()) == 1


class ThreePartitionClusters:
    """Clusters with three partitions of each topic."""

    topics: ClassVar = {n: TopicMetadata(n, tuple(PartitionMetadata(n, i, 0) for i in range(3))) for n in ("a", "b")}
    cluster: ClassVar = ClusterMetadata(lambda: Metadata(brokers={}, topics=ThreePartitionClusters.topics))


@pytest.mark.parametrize("kind", [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor])
def test_semels_assignors_have_aiokafkas_interface(kind: type[AbstractPartitionAssignor]) -> None:
    members = {name: kind.metadata({"a", "b", "missing"}) for name in ("x", "y")}
    given = kind.assign(ThreePartitionClusters.cluster, members)
    assert sorted(partition for each in given.values() for partition in each.partitions()) == [
        tp(index, topic) for topic in "ab" for index in range(3)
    ]
    assert [MemberAssignment.decode(each.encode()) for each in given.values()] == [
        MemberAssignment(0, [MemberAssignment.Assignment(*row) for row in each.assignment], b"")
        for each in given.values()
    ]


def test_a_subscription_is_the_same_after_encoding() -> None:
    given = MemberMetadata(0, ["a", "b"], b"data")
    assert given.encode() == bytes.fromhex("0000 00000002 0001 61 0001 62 00000004 64617461")
    assert MemberMetadata.decode(given.encode()) == given
