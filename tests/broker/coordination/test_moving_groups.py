"""Groups and their offsets move with the leadership of their partition."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from broker.cluster.brokers import until
from broker.consumers import HeartbeatingMember, settle
from broker.coordination.coordinator_cluster import CoordinatorBroker, CoordinatorCluster, code_of
from broker.members import WireMember
from semel_broker.config.listeners import PLAINTEXT
from semel_broker.context import Broker, RequestContext
from semel_broker.coordination.shards import Stage
from semel_broker.groups.classic.group import ClassicMembership
from semel_broker.groups.offsets.model import CommittedOffset, OffsetRecord
from semel_broker.groups.shard import GroupShard
from semel_broker.handlers import k10_find_coordinator
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from semel_protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from semel_protocol.messages.k15_describe_groups import DescribeGroupsRequest
from semel_protocol.messages.k16_list_groups import ListGroupsRequest
from semel_storage.internal_topics import CONSUMER_OFFSETS

NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR


async def commit(node: CoordinatorBroker, group: str, offset: int, topic: str = "t") -> None:
    topic_id = node.topics.required(topic).topic_id
    await node.ask.commit(
        group,
        [OffsetRecord(topic, 0, CommittedOffset(offset, topic_id=topic_id))],
        member_id="",
        instance_id=None,
        generation_id=-1,
    )


def joining_count(shard: GroupShard, group: str) -> int:
    """The members that wait in JoinGroup."""
    classic = shard.groups[group].of(ClassicMembership)
    return 0 if classic is None else classic.joining_count


async def offset(node: CoordinatorBroker, group: str, topic: str = "t") -> int:
    found = (await node.ask.offsets(group)).get(topic, 0)
    return -1 if found is None else found.offset


@pytest.mark.proves("moved-group")
async def test_offsets_are_found_at_the_next_coordinator_and_the_last_one_says_that_it_is_none(
    nodes: CoordinatorCluster,
) -> None:
    one, two = await nodes.open(1, 2)
    group = nodes.name_at(0, "g")
    await commit(one, group, 5)
    assert await code_of(commit(two, group, 6)) is NOT_COORDINATOR
    await nodes.move(CONSUMER_OFFSETS, 0, 2)
    assert await code_of(commit(one, group, 6)) is NOT_COORDINATOR
    assert await code_of(offset(one, group)) is NOT_COORDINATOR
    assert await offset(two, group) == 5
    await commit(two, group, 7)
    await nodes.move(CONSUMER_OFFSETS, 0, 1)
    assert await offset(one, group) == 7


async def test_offset_fetch_of_a_former_coordinator_has_its_error_in_each_partition_too(
    nodes: CoordinatorCluster,
) -> None:
    """aiokafka reads only the error of each partition.

    Without one it took the answer for "nothing committed". A request for all topics has no rows.
    """
    one, _ = await nodes.open(1, 2)
    group = nodes.name_at(0, "g")
    await commit(one, group, 5)
    await nodes.move(CONSUMER_OFFSETS, 0, 2)
    wire = await one.wire()
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    for version in range(1, 8):
        response = await wire.call(OffsetFetchRequest(group_id=group, topics=topics), version)
        assert response.error_code == (NOT_COORDINATOR if version >= 2 else 0)
        assert [
            (topic.name, row.partition_index, row.committed_offset, row.error_code)
            for topic in response.topics
            for row in topic.partitions
        ] == [("t", 0, -1, NOT_COORDINATOR), ("t", 1, -1, NOT_COORDINATOR)]
        if version >= 2:
            response = await wire.call(OffsetFetchRequest(group_id=group, topics=None), version)
            assert (response.error_code, response.topics) == (NOT_COORDINATOR, [])


async def test_offset_fetch_of_a_stopping_coordinator_says_in_the_rows_to_look_for_another_one(
    nodes: CoordinatorCluster,
) -> None:
    """Clients that read only the rows know two retriable errors. The other one is COORDINATOR_LOAD_IN_PROGRESS."""
    one, _ = await nodes.open(1, 2)
    group = nodes.name_at(0, "g")
    await commit(one, group, 5)
    await one.groups.close()
    request = OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])])
    response = await (await one.wire()).call(request, 5)
    (row,) = response.topics[0].partitions
    assert (response.error_code, row.error_code) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR)


@pytest.mark.real_time
async def test_aiokafka_finds_committed_offsets_at_the_next_coordinator(nodes: CoordinatorCluster) -> None:
    one, two = await nodes.open(1, 2)
    group = nodes.name_at(0, "g")
    consumer = AIOKafkaConsumer(
        bootstrap_servers=[f"127.0.0.1:{node.port}" for node in (one, two)],
        group_id=group,
        enable_auto_commit=False,
        retry_backoff_ms=20,
    )
    consumer.assign([TopicPartition("t", 0)])
    await consumer.start()
    try:
        await commit(one, group, 5)
        assert await consumer.committed(TopicPartition("t", 0)) == 5
        await nodes.move(CONSUMER_OFFSETS, 0, 2)
        assert await consumer.committed(TopicPartition("t", 0)) == 5
    finally:
        await consumer.stop()


@pytest.mark.proves("moved-group")
async def test_members_continue_with_their_generation_at_the_next_coordinator(nodes: CoordinatorCluster) -> None:
    one, two = await nodes.open(1, 2)
    member = WireMember(await one.wire(), nodes.name_at(0, "g"))
    await member.enter()
    await nodes.move(CONSUMER_OFFSETS, 0, 2)
    assert await member.heartbeat() == NOT_COORDINATOR
    member.wire = await two.wire()
    assert await member.heartbeat() == 0
    assert await member.commit({0: 7}) == [0]


@pytest.mark.proves("late-commit-after-a-move")
async def test_a_late_commit_is_refused_by_a_coordinator_that_has_moved_away_and_back(
    nodes: CoordinatorCluster,
) -> None:
    """The client had sent the commit again over a newer connection.

    The next commit was stored before the coordinator moved.
    """
    one, _ = await nodes.open(1, 2)
    group = nodes.name_at(0, "g")
    left, member = await one.wire(), WireMember(await one.wire(), group)
    await member.enter()
    assert await member.commit({0: 8}) == [0]
    assert await member.commit({0: 12}) == [0]
    late = member.commit_request({0: 8})
    await nodes.move(CONSUMER_OFFSETS, 0, 2)
    await nodes.move(CONSUMER_OFFSETS, 0, 1)
    await nodes.ready(CONSUMER_OFFSETS, 0, 1)
    with pytest.raises(asyncio.IncompleteReadError):
        await left.call(late)
    assert await offset(one, group) == 12
    assert await member.commit({0: 13}) == [0]


async def test_late_requests_of_a_consumer_are_refused_by_a_coordinator_that_has_moved_away_and_back(
    nodes: CoordinatorCluster,
) -> None:
    one, _ = await nodes.open(1, 2)
    group = nodes.name_at(0, "g")
    left, also_left, member = await one.wire(), await one.wire(), HeartbeatingMember(await one.wire(), "a", group)
    await settle(member)
    assert await member.commit({0: 12}) == [0]
    await nodes.move(CONSUMER_OFFSETS, 0, 2)
    await nodes.move(CONSUMER_OFFSETS, 0, 1)
    await nodes.ready(CONSUMER_OFFSETS, 0, 1)
    newest, member.wire = member.wire, left
    with pytest.raises(asyncio.IncompleteReadError):
        await member.commit({0: 8})
    member.wire = also_left
    with pytest.raises(asyncio.IncompleteReadError):
        await member.beat()
    assert await offset(one, group) == 12
    member.wire = newest
    assert await member.beat() == 0
    assert await member.commit({0: 13}) == [0]


@pytest.mark.proves("waiting-at-a-former-coordinator")
async def test_a_member_waiting_in_a_rebalance_gets_not_coordinator_at_once(nodes: CoordinatorCluster) -> None:
    one, _ = await nodes.open(1, 2)
    group = nodes.name_at(0, "g")
    first, second = WireMember(await one.wire(), group), WireMember(await one.wire(), group)
    await first.enter()
    joining = asyncio.create_task(second.join())  # waits for the first one to join again
    (shard,) = [each for each in one.groups.shards.here() if group in each.groups]
    await until(lambda: joining_count(shard, group) == 1)
    await nodes.move(CONSUMER_OFFSETS, 0, 2)
    assert (await joining).error_code == NOT_COORDINATOR
    assert shard.stage is Stage.GONE


@pytest.mark.proves("waiting-at-a-former-coordinator")
async def test_a_commit_under_way_when_leadership_is_lost_is_for_the_log_to_decide(nodes: CoordinatorCluster) -> None:
    """If the new leader has the commit, it counts, whatever answer the member got."""
    one, two = await nodes.open(1, 2)
    group = nodes.name_at(0, "g")
    await commit(one, group, 5)
    one.disk.hold_syncs()
    committing = asyncio.create_task(code_of(commit(one, group, 6)))
    end = one.partition(0, CONSUMER_OFFSETS).end_offset
    await until(lambda: two.partition(0, CONSUMER_OFFSETS).durable_end > end)
    await nodes.move(CONSUMER_OFFSETS, 0, 2)
    assert await committing is NOT_COORDINATOR
    one.disk.release_syncs()
    assert await offset(two, group) == 6


@pytest.mark.proves("load-before-all-in-sync")
async def test_a_commit_that_no_other_replica_has_is_nowhere(nodes: CoordinatorCluster) -> None:
    one, two = await nodes.open(1, 2)
    group = nodes.name_at(0, "g")
    await commit(one, group, 5)
    two.unplug()
    committing = asyncio.create_task(code_of(commit(one, group, 6)))
    await asyncio.sleep(0)
    await nodes.move(CONSUMER_OFFSETS, 0, 2)
    assert await committing is NOT_COORDINATOR
    two.plug_in()
    assert await offset(two, group) == 5
    await commit(two, group, 8)
    await nodes.same(1, 2, topic=CONSUMER_OFFSETS)


@pytest.mark.proves("load-before-all-in-sync")
async def test_a_load_waits_until_all_in_sync_replicas_have_the_records_of_a_former_leader(
    nodes: CoordinatorCluster,
) -> None:
    """Until then a failure of the new leader could lose the records, so no client gets them."""
    one, two, three = await nodes.open(1, 2, 3, **{"replica.lag.time.max.ms": "60000"})
    group = nodes.name_at(0, "g")
    await commit(one, group, 5)
    three.disk.hold_syncs()
    committing = asyncio.create_task(code_of(commit(one, group, 6)))
    end = one.partition(0, CONSUMER_OFFSETS).end_offset
    await until(lambda: two.partition(0, CONSUMER_OFFSETS).durable_end > end)
    await nodes.move(CONSUMER_OFFSETS, 0, 2)
    assert await committing is NOT_COORDINATOR
    shard = two.groups.shards.at(0)
    assert shard is not None
    asking = asyncio.create_task(offset(two, group))
    await asyncio.sleep(0.1)
    assert (shard.stage, asking.done()) == (Stage.LOADING, False)
    three.disk.release_syncs()
    assert await asking == 6


async def test_a_request_during_a_load_waits_and_then_gets_load_in_progress(
    nodes: CoordinatorCluster,
) -> None:
    CoordinatorBroker.patience_ms = 50
    try:
        _, two, three = await nodes.open(1, 2, 3, **{"replica.lag.time.max.ms": "60000"})
    finally:
        del CoordinatorBroker.patience_ms
        CoordinatorBroker.patience_ms = 20_000
    group = nodes.name_at(1, "g")
    three.disk.hold_syncs()
    committing = asyncio.create_task(code_of(commit(two, group, 6)))
    one = nodes.brokers[1]
    await until(lambda: one.partition(1, CONSUMER_OFFSETS).durable_end > 0)
    await nodes.move(CONSUMER_OFFSETS, 1, 1)
    await committing
    assert await code_of(offset(one, group)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await code_of(one.groups.groups()) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    three.disk.release_syncs()
    await nodes.ready(CONSUMER_OFFSETS, 1, 1)
    assert await offset(one, group) == 6


@pytest.mark.proves("coordinator-without-a-session")
async def test_a_coordinator_whose_session_is_over_answers_nothing_from_memory(nodes: CoordinatorCluster) -> None:
    """A paused process wakes before it learns that another coordinator has taken over."""
    one, two = await nodes.open(1, 2)
    group = nodes.name_at(0, "g")
    await commit(one, group, 5)
    one.cut_off()
    await nodes.move(CONSUMER_OFFSETS, 0, 2)
    await commit(two, group, 9)
    assert one.partition(0, CONSUMER_OFFSETS).is_leading, "as far as it knows"
    one.session.deadline = 0.0
    assert await code_of(offset(one, group)) is NOT_COORDINATOR
    assert await code_of(one.ask.heartbeat(group, 1, "m", None)) is NOT_COORDINATOR
    assert await one.groups.groups() == []


@pytest.mark.proves("offsets-of-a-deleted-topic")
async def test_each_coordinator_forgets_the_offsets_of_a_topic_that_any_broker_deleted(
    nodes: CoordinatorCluster,
) -> None:
    one, two = await nodes.open(1, 2)
    await nodes.topic([1, 2], name="doomed")
    groups = {node: nodes.name_at(index, "g") for index, node in enumerate((one, two))}
    for node, group in groups.items():
        await commit(node, group, 5, "doomed")
        await commit(node, group, 6)
    await one.topics.delete("doomed")
    for node, group in groups.items():
        await until(lambda node=node, group=group: not _known(node, group).of_topic("doomed"))  # type: ignore[misc]
        assert await offset(node, group) == 6


def _known(node: CoordinatorBroker, group: str):  # type: ignore[no-untyped-def]
    shard = node.groups.shards.of(group)
    assert shard is not None
    return shard.offsets(group)


@pytest.mark.parametrize("version", [2, 4])
async def test_find_coordinator_names_the_leader_of_the_partition_with_its_address(
    nodes: CoordinatorCluster, version: int
) -> None:
    one, two = await nodes.open(1, 2)

    async def find(key: str) -> tuple[int, str, int, int]:
        request = FindCoordinatorRequest(key=key, key_type=0, coordinator_keys=[key])
        ctx = RequestContext(cast("Broker", one), version, "", "", PLAINTEXT)
        found = await k10_find_coordinator.handle(request, ctx)
        row = found.coordinators[0] if version == 4 else found
        return row.error_code, row.host, row.node_id, row.port

    here, there = nodes.name_at(0, "g"), nodes.name_at(1, "g")
    assert await find(here) == (0, "127.0.0.1", 1, one.port)
    assert await find(there) == (0, "127.0.0.1", 2, two.port)
    await nodes.move(CONSUMER_OFFSETS, 0, 2)
    assert await find(here) == (0, "127.0.0.1", 2, two.port)


async def test_there_is_no_coordinator_without_a_leader(nodes: CoordinatorCluster) -> None:
    one, two = await nodes.start(1, 2)
    await nodes.topic([1], [2], name=CONSUMER_OFFSETS)
    assert await offset(two, nodes.name_at(1, "g")) == -1
    await two.die()
    await until(lambda: not one.feed.image.is_admitted(2))
    found = await (await one.wire()).call(FindCoordinatorRequest(key=nodes.name_at(1, "g")), 2)
    assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    assert await code_of(offset(one, nodes.name_at(1, "g"))) is NOT_COORDINATOR


async def test_find_coordinator_creates_the_internal_topic(nodes: CoordinatorCluster) -> None:
    (one,) = await nodes.start(1)
    wire = await one.wire()
    for key_type in (0, 1):
        found = await wire.call(FindCoordinatorRequest(key="x", key_type=key_type), 2)
        assert (found.error_code, found.node_id) == (0, 1)
    assert one.topics.names() == ["__consumer_offsets", "__transaction_state"]


async def test_each_broker_lists_and_describes_its_own_groups(nodes: CoordinatorCluster) -> None:
    one, two = await nodes.open(1, 2)
    mine, other = nodes.name_at(0, "g"), nodes.name_at(1, "g")
    await commit(one, mine, 1)
    await commit(two, other, 1)
    wire = await one.wire()
    assert [row.group_id for row in (await wire.call(ListGroupsRequest())).groups] == [mine]
    described = await wire.call(DescribeGroupsRequest(groups=[mine, other]))
    assert [row.error_code for row in described.groups] == [0, NOT_COORDINATOR]
    assert await code_of(one.ask.delete_group(other)) is NOT_COORDINATOR


async def test_members_of_the_consumer_protocol_continue_at_the_next_coordinator(nodes: CoordinatorCluster) -> None:
    one, two = await nodes.open(1, 2)
    group = nodes.name_at(0, "g")
    members = [HeartbeatingMember(await one.wire(), name, group) for name in "ab"]
    await settle(*members)
    owned = [member.owned for member in members]
    assert [len(each) for each in owned] == [1, 1]
    await nodes.move(CONSUMER_OFFSETS, 0, 2)
    assert await members[0].beat() == NOT_COORDINATOR
    for member in members:
        member.wire = await two.wire()
    await settle(*members)
    assert [member.owned for member in members] == owned
    assert [member.epoch for member in members] == [2, 2]
    assert await members[0].commit({members[0].partitions[0]: 7}) == [0]
    await members[1].leave()
    await settle(members[0])
    assert members[0].partitions == [0, 1]
    await nodes.move(CONSUMER_OFFSETS, 0, 1)
    members[0].wire = await one.wire()
    assert await members[0].beat() == 0
    assert members[0].partitions == [0, 1]
