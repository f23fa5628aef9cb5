"""Admin with several brokers: the broker for each request, elections, moves of partitions, and an unreachable
broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from client.fake_cluster import FakeCluster
from semel.admin import EARLIEST, LATEST, Admin, NewTopic, PartitionReassignment
from semel.errors import (
    InvalidReplicationAssignmentError,
    KafkaTimeoutError,
    NoReassignmentInProgressError,
    PreferredLeaderNotAvailableError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from semel.structs import TopicPartition
from semel_protocol.errors import ErrorCode
from semel_protocol.messages import k15_describe_groups as groups
from semel_protocol.messages import k65_describe_transactions as transactions
from semel_protocol.messages import k69_consumer_group_describe as consumer_groups

T0, T1, T2 = (TopicPartition("t", index) for index in range(3))


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Topic `t`: partition 0 is led by broker 1, 1 by 2, 2 by 3; each on all three."""
    async with FakeCluster({"t": [(1, 2, 3), (2, 3, 1), (3, 1, 2)]}, racks={1: "a", 2: "b"}) as made:
        yield made


def admin_of(cluster: FakeCluster, **settings: Any) -> Admin:
    defaults = {"retry_backoff_ms": 1, "reconnect_backoff_ms": 1, "max_block_ms": 5000}
    return Admin(bootstrap_servers=cluster.bootstrap, **(defaults | settings))


# --- what is there ---


async def test_the_cluster_and_its_partitions_are_described(cluster: FakeCluster) -> None:
    await cluster.down(3)
    async with admin_of(cluster) as admin:
        described = await admin.describe_cluster()
        (topic,) = await admin.describe_topics(["t"])
    assert (described.controller_id, list(described.brokers)) == (1, [1, 2])
    assert [broker.rack for broker in described.brokers.values()] == ["a", "b"]
    rows = [(p.leader, p.leader_epoch, p.replicas, p.isr, p.offline_replicas) for p in topic.partitions]
    assert rows == [
        (1, 0, (1, 2, 3), (1, 2), (3,)),
        (2, 0, (2, 3, 1), (2, 1), (3,)),
        (1, 1, (3, 1, 2), (1, 2), (3,)),
    ]


async def test_a_topic_is_created_where_it_is_wanted(cluster: FakeCluster) -> None:
    async with admin_of(cluster) as admin:
        await admin.create_topics([NewTopic("x", replica_assignments={0: [2, 3], 1: [3, 1]})])
        cluster.stale.clear()
        (topic,) = await admin.describe_topics(["x"])
    assert [partition.replicas for partition in topic.partitions] == [(2, 3), (3, 1)]
    (request,) = cluster.nodes[1].seen(19)
    assert (request.topics[0].num_partitions, request.topics[0].replication_factor) == (-1, -1)


# --- who is asked ---


async def test_each_leader_is_asked_once_and_for_its_own_partitions(cluster: FakeCluster) -> None:
    async with admin_of(cluster) as admin:
        found = await admin.list_offsets(dict.fromkeys((T0, T1, T2), LATEST))
    assert [found[at].offset for at in (T0, T1, T2)] == [0, 100, 200]
    assert cluster.asked(2) == {1: 1, 2: 1, 3: 1}


async def test_a_leader_that_cannot_be_reached_does_not_delay_the_others(cluster: FakeCluster) -> None:
    async def notice() -> None:
        while set(cluster.asked(2)) != {1, 3}:
            await asyncio.sleep(0.005)
        cluster.notice(2)

    async with admin_of(cluster) as admin:
        await cluster.nodes[2].close()
        found, _ = await asyncio.gather(admin.list_offsets(dict.fromkeys((T0, T1, T2), LATEST)), notice())
    assert [found[at].offset for at in (T0, T1, T2)] == [0, 100, 200]
    asked = [[row.partition_index for row in r.topics[0].partitions] for r in cluster.nodes[1].seen(2)]
    assert asked == [[0]], "what has its answer is not asked again"
    asked = [[row.partition_index for row in r.topics[0].partitions] for r in cluster.nodes[3].seen(2)]
    assert asked == [[2], [1]]


async def test_a_call_times_out_while_a_partition_has_no_leader(cluster: FakeCluster) -> None:
    cluster.places[T1].leader = 7  # of a broker that is not there
    async with admin_of(cluster) as admin:
        with pytest.raises(KafkaTimeoutError, match="LEADER_NOT_AVAILABLE"):
            await admin.list_offsets({T0: EARLIEST, T1: EARLIEST}, timeout_ms=100)


async def test_groups_and_transactions_are_asked_of_their_coordinators(cluster: FakeCluster) -> None:
    async def described(request: groups.DescribeGroupsRequest) -> groups.DescribeGroupsResponse:
        rows = [groups.DescribeGroupsResponseGroup(group_id=name, group_state="Empty") for name in request.groups]
        return groups.DescribeGroupsResponse(groups=rows)

    async def classic(
        request: consumer_groups.ConsumerGroupDescribeRequest,
    ) -> consumer_groups.ConsumerGroupDescribeResponse:
        row = consumer_groups.ConsumerGroupDescribeResponseGroup
        rows = [row(group_id=name, error_code=ErrorCode.GROUP_ID_NOT_FOUND) for name in request.group_ids]
        return consumer_groups.ConsumerGroupDescribeResponse(groups=rows)

    async def known(request: transactions.DescribeTransactionsRequest) -> transactions.DescribeTransactionsResponse:
        row = transactions.DescribeTransactionsResponseTransaction
        rows = [row(transactional_id=name, transaction_state="Empty") for name in request.transactional_ids]
        return transactions.DescribeTransactionsResponse(transaction_states=rows)

    cluster.coordinators = {"g2": 2, "g3": 3, "x3": 3, "y3": 3, "z1": 1}
    for node in cluster.nodes.values():
        node.answers |= {15: described, 65: known, 69: classic}
    async with admin_of(cluster) as admin:
        assert [each.coordinator for each in await admin.describe_consumer_groups(["g3", "g2"])] == [3, 2]
        assert [each.coordinator for each in await admin.describe_transactions(["x3", "z1", "y3"])] == [3, 1, 3]
    assert cluster.asked(15) == cluster.asked(69) == {2: 1, 3: 1}
    assert cluster.asked(65) == {1: 1, 3: 1}


# --- elections ---


def led_by(cluster: FakeCluster, *leaders: int) -> None:
    for at, leader in zip((T0, T1, T2), leaders, strict=True):
        cluster.places[at].leader = leader


async def test_preferred_replicas_become_leaders_and_current_ones_are_left_out(cluster: FakeCluster) -> None:
    led_by(cluster, 2, 2, 2)
    async with admin_of(cluster) as admin:
        assert await admin.elect_leaders([T2, T1]) == [T2]
        assert await admin.elect_leaders() == [T0]
        assert await admin.elect_leaders() == []
        assert await admin.elect_leaders([]) == []
    assert [place.leader for place in cluster.places.values()] == [1, 2, 3]
    assert [request.topic_partitions is None for request in cluster.nodes[1].seen(43)] == [False, True, True]


@pytest.mark.parametrize("named", [True, False])
async def test_a_failed_election_is_reported_and_the_others_take_place(cluster: FakeCluster, named: bool) -> None:
    led_by(cluster, 2, 1, 1)
    cluster.places[T1].isr = cluster.places[T2].isr = [1]
    async with admin_of(cluster) as admin:
        with pytest.raises(PreferredLeaderNotAvailableError, match="t-1") as caught:
            await admin.elect_leaders([T0, T1, T2] if named else None)
    assert "t-2" in caught.value.__notes__[0]
    assert [place.leader for place in cluster.places.values()] == [1, 1, 1]


async def test_another_election_than_that_of_preferred_leaders_needs_a_broker_that_knows_it(
    cluster: FakeCluster,
) -> None:
    async with admin_of(cluster) as admin:
        await admin.elect_leaders([T0], preferred=False)
    assert cluster.nodes[1].seen(43)[0].election_type == 1
    for node in cluster.nodes.values():
        node.versions[43] = (0, 0)
    async with admin_of(cluster) as admin:
        with pytest.raises(UnsupportedVersionError, match="preferred leaders only"):
            await admin.elect_leaders([T0], preferred=False)


async def test_the_controller_is_looked_up_again_when_it_has_moved(cluster: FakeCluster) -> None:
    led_by(cluster, 2, 2, 3)
    async with admin_of(cluster) as admin:
        cluster.controller = 2
        assert await admin.elect_leaders() == [T0]
        assert set(cluster.asked(43)) == {1, 2}
        cluster.controller = 3
        await cluster.nodes[2].close()
        cluster.notice(2)
        await admin.alter_partition_reassignments({T0: [1, 3]})
        assert await admin.list_partition_reassignments() == {T0: PartitionReassignment((1, 3, 2), (), (2,))}
    assert cluster.nodes[3].seen(45)


# --- moves ---


async def test_a_move_begins_is_listed_and_comes_to_its_end(cluster: FakeCluster) -> None:
    cluster.places[T1].replicas = [1, 2]
    async with admin_of(cluster) as admin:
        await admin.alter_partition_reassignments({T1: (3, 2)})
        assert await admin.list_partition_reassignments([T0]) == {}
        assert await admin.list_partition_reassignments([]) == {}
        assert await admin.list_partition_reassignments([T1, T0]) == {T1: PartitionReassignment((3, 2, 1), (3,), (1,))}
        assert await admin.list_partition_reassignments() == {}
    assert cluster.places[T1].replicas == [3, 2]


async def test_a_move_is_cancelled_once(cluster: FakeCluster) -> None:
    cluster.stalled = True
    async with admin_of(cluster) as admin:
        await admin.alter_partition_reassignments({T0: [2, 3], T1: [1, 2]})
        await admin.alter_partition_reassignments({T0: None})
        assert list(await admin.list_partition_reassignments()) == [T1]
        with pytest.raises(NoReassignmentInProgressError, match="cancelling the move of t-0"):
            await admin.alter_partition_reassignments({T0: None})


async def test_a_refused_reassignment_names_its_target_and_the_reason(cluster: FakeCluster) -> None:
    cluster.stalled = True
    async with admin_of(cluster) as admin:
        with pytest.raises(InvalidReplicationAssignmentError, match=r"t-0 to brokers 1, 9.*not there"):
            await admin.alter_partition_reassignments({T0: [1, 9], T1: [1]})
        assert list(await admin.list_partition_reassignments()) == [T1]
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.elect_leaders([TopicPartition("nothing", 0)])
