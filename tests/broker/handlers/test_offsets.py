"""Committed offsets over the wire: OffsetCommit, OffsetFetch, OffsetDelete, and offsets after a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from broker.conftest import StartBroker
from broker.handlers.test_groups import NOW, context, describe, enter_two, member
from broker.harness import Harness, Wire
from broker.members import WireMember, committed
from semel_broker.groups import shard
from semel_broker.groups.offsets.model import OffsetRecord
from semel_broker.groups.shard import GroupShard
from semel_broker.handlers import k08_offset_commit, k09_offset_fetch, offset_rows
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k08_offset_commit import OffsetCommitRequest
from semel_protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from semel_protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupRequestMember
from semel_protocol.messages.k20_delete_topics import DeleteTopicsRequest
from semel_protocol.messages.k42_delete_groups import DeleteGroupsRequest
from semel_protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from support.processes import BrokerProcess


@pytest.fixture
async def broker(start_broker: StartBroker) -> Harness:
    broker = await start_broker(durability="os", **NOW)
    await (await broker.wire()).create_topic("t", 4)
    return broker


@pytest.fixture
async def synced_broker(start_broker: StartBroker) -> Harness:
    broker = await start_broker(durability="fsync", **NOW)
    await (await broker.wire()).create_topic("t", 4)
    return broker


async def delete_offsets(wire: Wire, group: str, topic: str, *partitions: int) -> Any:
    rows = [OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
    request = OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=rows)])
    return await wire.call(request)


# --- commit and fetch ---


async def test_committed_offset_is_read_back(synced_broker: Harness) -> None:
    one = await member(synced_broker)
    assert await one.commit({0: 5, 2: 7}, metadata="note") == [0, 0]
    assert await committed(one.wire, "g", 0, 1, 2) == [5, -1, 7]
    request = OffsetFetchRequest(group_id="g", topics=None, require_stable=True)
    (topic,) = (await one.wire.call(request, 7)).topics
    assert [(row.partition_index, row.committed_offset, row.metadata) for row in topic.partitions] == [
        (0, 5, "note"),
        (2, 7, "note"),
    ]


async def test_partition_without_an_offset_answers_minus_one(broker: Harness) -> None:
    wire = await broker.wire()
    request = OffsetFetchRequest(
        group_id="nobody", topics=[OffsetFetchRequestTopic(name="no such topic", partition_indexes=[0])]
    )
    for version in (1, 3, 7):
        response = await wire.call(request, version)
        (row,) = response.topics[0].partitions
        assert (row.committed_offset, row.committed_leader_epoch, row.metadata, row.error_code) == (-1, -1, "", 0)


async def test_kip709_offsets_of_several_groups_at_once(broker: Harness) -> None:
    await (await member(broker, group="a")).commit({0: 1})
    await (await member(broker, group="b")).commit({1: 2})
    asked = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    rows = [
        OffsetFetchRequestGroup(group_id="a", topics=asked),
        OffsetFetchRequestGroup(group_id="b", topics=None),
        OffsetFetchRequestGroup(group_id="c", topics=None),
    ]
    response = await k09_offset_fetch.handle(OffsetFetchRequest(groups=rows), context(broker, 8))
    assert [(row.group_id, row.error_code) for row in response.groups] == [("a", 0), ("b", 0), ("c", 0)]
    found = [
        [(p.partition_index, p.committed_offset) for t in row.topics for p in t.partitions] for row in response.groups
    ]
    assert found == [[(0, 1)], [(1, 2)], []]


async def test_member_commits_in_its_generation_only(broker: Harness) -> None:
    first, second = await enter_two(broker)
    assert await second.commit({0: 3}) == [0]
    second.generation -= 1
    assert await second.commit({0: 4}) == [ErrorCode.ILLEGAL_GENERATION]
    second.generation += 1
    second.member_id = "stranger"
    assert await second.commit({0: 4}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert await committed(first.wire, "g", 0) == [3]


async def test_rows_stored_before_the_member_leaves_carry_no_error(
    broker: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit of many partitions is stored in portions; here the member leaves between two of them."""
    monkeypatch.setattr(offset_rows, "PORTION_ROWS", 2)
    one = await member(broker)
    await one.enter()
    other = await broker.wire()
    stored = GroupShard.commit
    portions: list[int] = []

    async def commit(shard: GroupShard, group_id: str, records: list[OffsetRecord], *who: Any) -> None:
        portions.append(len(records))
        if len(portions) == 2:
            row = LeaveGroupRequestMember(member_id=one.member_id, group_instance_id=None)
            await other.call(LeaveGroupRequest(group_id="g", members=[row]))
        await stored(shard, group_id, records, *who)

    monkeypatch.setattr(GroupShard, "commit", commit)
    gone = ErrorCode.UNKNOWN_MEMBER_ID
    assert await one.commit({0: 1, 9: 1, 1: 2, 2: 3, 3: 4}) == [0, gone, 0, gone, gone]
    assert portions == [2, 2]
    assert await committed(other, "g", 0, 1, 2, 3) == [1, 2, -1, -1]


async def test_commit_waits_for_the_assignment_of_the_new_generation(broker: Harness) -> None:
    one = await member(broker)
    await one.join()
    assert await one.commit({0: 1}) == [ErrorCode.REBALANCE_IN_PROGRESS]
    await one.sync({one.member_id: b"x"})
    assert await one.commit({0: 1}) == [0]


async def test_simple_consumer_commits_only_to_a_group_without_members(broker: Harness) -> None:
    one, simple = await member(broker), await member(broker)
    assert await simple.commit({0: 1}) == [0]
    await one.enter()
    assert await simple.commit({0: 2}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert await committed(simple.wire, "g", 0) == [1]


async def test_unknown_group_refuses_a_generation(broker: Harness) -> None:
    one = await member(broker)
    one.generation, one.member_id = 1, "x"
    assert await one.commit({0: 1}) == [ErrorCode.ILLEGAL_GENERATION]
    response = await k08_offset_commit.handle(one.commit_request({0: 1}), context(broker, 9))
    assert response.topics[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_bad_partition_fails_alone(broker: Harness) -> None:
    one = await member(broker)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await one.commit({0: 1, 4: 1, -1: 1}) == [0, unknown, unknown]
    assert await one.commit({0: 2}, topic="none") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await committed(one.wire, "g", 0) == [1]


@pytest.mark.parametrize(("letter", "count_max"), [("x", 4096), ("é", 4096), ("漢", 4096), ("😀", 2048)])
async def test_metadata_may_have_4096_utf16_code_units(broker: Harness, letter: str, count_max: int) -> None:
    """As Java counts the letters of a text; not bytes."""
    one = await member(broker)
    assert await one.commit({0: 1}, metadata=letter * count_max) == [0]
    assert await one.commit({0: 2}, metadata=letter * (count_max + 1)) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert await committed(one.wire, "g", 0) == [1]


@pytest.mark.parametrize("offset", [-1, -2])
async def test_the_marks_of_kafkajs_for_the_ends_of_a_log_are_stored(broker: Harness, offset: int) -> None:
    """Otherwise its consumer never recovers from a position that is out of range."""
    one = await member(broker)
    assert await one.commit({0: offset, 1: 7}) == [0, 0]
    assert await committed(one.wire, "g", 0, 1) == [offset, 7]
    await broker.restart()
    assert await committed(await broker.wire(), "g", 0, 1) == [offset, 7]


@pytest.mark.proves("invalid-values")
@pytest.mark.parametrize("offset", [-3, -(2**63)])
async def test_negative_offsets_are_refused_alone(broker: Harness, offset: int) -> None:
    one = await member(broker)
    assert await one.commit({0: 5, 1: 6}) == [0, 0]
    assert await one.commit({0: offset, 1: 7}) == [ErrorCode.OFFSET_OUT_OF_RANGE, 0]
    assert await committed(one.wire, "g", 0, 1) == [5, 7]


async def test_null_metadata_is_no_metadata(broker: Harness) -> None:
    one = await member(broker)
    request = one.commit_request({0: 1})
    request.topics[0].partitions[0].committed_metadata = None
    assert (await one.wire.call(request, 5)).topics[0].partitions[0].error_code == 0
    request = OffsetFetchRequest(group_id="g", topics=None)
    assert (await one.wire.call(request, 5)).topics[0].partitions[0].metadata == ""


async def test_large_commit_of_many_partitions_is_stored_whole(start_broker: StartBroker) -> None:
    broker = await start_broker(durability="fsync", **NOW)
    one = await member(broker)
    await one.wire.create_topic("t", 1_000)
    note = "n" * 2_000  # 2 MB in all: more than one batch may hold
    assert set(await one.commit({index: index for index in range(1_000)}, metadata=note)) == {0}
    await broker.restart()
    assert await committed(await broker.wire(), "g", *range(1_000)) == list(range(1_000))


async def test_empty_commit_succeeds(broker: Harness) -> None:
    wire = await broker.wire()
    assert (await wire.call(OffsetCommitRequest(group_id="g", member_id="", topics=[]))).topics == []


# --- restarts ---


async def test_offsets_survive_a_restart(synced_broker: Harness) -> None:
    groups = [f"group-{index}" for index in range(60)]
    for index, group in enumerate(groups):
        one = await member(synced_broker, group=group)
        await one.commit({0: index, 3: 2 * index})
        await one.commit({0: index + 1})
    await synced_broker.restart()
    wire = await synced_broker.wire()
    for index, group in enumerate(groups):
        assert await committed(wire, group, 0, 1, 3) == [index + 1, -1, 2 * index]


async def test_commits_of_one_connection_apply_in_order(synced_broker: Harness) -> None:
    members = [await member(synced_broker) for _ in range(5)]
    for offset in range(100):
        one = members[offset % 5]
        one.wire.send(one.commit_request({0: offset}))
        await asyncio.sleep(0)
    for one in members:
        for _ in range(20):
            assert (await one.wire.receive()).topics[0].partitions[0].error_code == 0
    live = await committed(members[0].wire, "g", 0)
    await synced_broker.restart()
    assert await committed(await synced_broker.wire(), "g", 0) == live


@pytest.mark.proves("late-offset-commit")
async def test_a_late_commit_over_a_replaced_connection_closes_it(broker: Harness) -> None:
    one = await member(broker)
    await one.enter()
    late = one.commit_request({0: 5})
    replaced, one.wire = one.wire, await broker.wire()
    assert await one.commit({0: 5}) == [0]  # a retry, because the first request got no answer
    assert await one.commit({0: 8}) == [0]
    replaced.send(late)
    assert await replaced.closed_by_peer()
    assert await committed(one.wire, "g", 0) == [8]
    assert [line["reason"] for line in broker.log.of("connection_closed")] == ["stale_connection"]


@pytest.mark.real_time
async def test_acknowledged_commit_survives_sigkill(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path, **{"group.initial.rebalance.delay.ms": "0"})
    await asyncio.to_thread(process.start)
    try:
        wire = await Wire.connect(process.port)
        await wire.create_topic("t")
        one = WireMember(wire)
        await one.enter()
        acknowledged = -1

        async def commit_on() -> None:
            nonlocal acknowledged
            for offset in range(1_000_000):
                assert await one.commit({0: offset}) == [0]
                acknowledged = offset

        committing = asyncio.create_task(commit_on())
        while acknowledged < 50:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(process.kill)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await committing
        await wire.close()
        await asyncio.to_thread(process.start)
        one.wire = await Wire.connect(process.port)
        (offset,) = await committed(one.wire, "g", 0)
        assert acknowledged <= offset <= acknowledged + 1
        assert await one.heartbeat() == 0
        assert await one.commit({0: offset + 1}) == [0]
        await one.wire.close()
    finally:
        await asyncio.to_thread(process.kill)


# --- deletion and expiry ---


async def test_deleted_offsets_stay_deleted_after_a_restart(synced_broker: Harness) -> None:
    one = await member(synced_broker)
    await one.commit({0: 1, 1: 2})
    response = await delete_offsets(one.wire, "g", "t", 0, 3)
    assert (response.error_code, [row.error_code for row in response.topics[0].partitions]) == (0, [0, 0])
    assert await committed(one.wire, "g", 0, 1) == [-1, 2]
    await synced_broker.restart()
    assert await committed(await synced_broker.wire(), "g", 0, 1) == [-1, 2]


async def test_offsets_of_subscribed_topics_are_not_deleted(broker: Harness) -> None:
    one = await member(broker)
    await one.wire.create_topic("other")
    await one.commit({0: 9}, topic="other")
    await one.enter()
    await one.commit({0: 1})
    response = await delete_offsets(one.wire, "g", "t", 0)
    assert response.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    response = await delete_offsets(one.wire, "g", "other", 0)
    assert response.topics[0].partitions[0].error_code == 0
    assert await committed(one.wire, "g", 0) == [1]
    assert await committed(one.wire, "g", 0, topic="other") == [-1]


async def test_groups_without_members_have_a_common_bound_of_offsets(broker: Harness) -> None:
    """A group with members is not refused; nor is a partition that has an offset already, nor one after a deletion."""
    one = await member(broker, group="a")
    config = broker.node.broker.config
    config.limits = msgspec.structs.replace(config.limits, committed_offsets_max=3)
    full = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert await one.commit({0: 1, 1: 1}) == [0, 0]
    other = await member(broker, group="b")
    assert await other.commit({0: 1, 1: 1}) == [full, full]
    assert await other.commit({0: 1}) == [0]
    assert await other.commit({0: 2}) == [0]
    assert await other.commit({1: 2}) == [full]
    in_group = await member(broker, group="c")
    await in_group.enter()
    assert await in_group.commit({0: 1}) == [0]
    deleted = await one.wire.call(DeleteGroupsRequest(groups_names=["a"]))
    assert deleted.results[0].error_code == 0
    assert await other.commit({1: 2}) == [0]
    assert broker.node.broker.groups.context.offset_count() == 3
    await broker.restart()
    assert broker.node.broker.groups.context.offset_count() == 3


async def test_delete_of_offsets_of_partitions_that_do_not_exist(broker: Harness) -> None:
    one = await member(broker)
    await one.commit({0: 1})
    rows = {"t": (0, 99, -1), "nope": (0,)}
    topics = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
        )
        for name, indexes in rows.items()
    ]
    response = await one.wire.call(OffsetDeleteRequest(group_id="g", topics=topics))
    codes = [[row.error_code for row in topic.partitions] for topic in response.topics]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (response.error_code, codes) == (0, [[0, unknown, unknown], [unknown]])
    assert await committed(one.wire, "g", 0) == [-1]
    assert (await delete_offsets(one.wire, "", "t", 0)).error_code == ErrorCode.INVALID_GROUP_ID


async def test_delete_of_an_unknown_groups_offsets_is_refused(broker: Harness) -> None:
    response = await delete_offsets(await broker.wire(), "nobody", "t", 0)
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_group_without_offsets_can_still_be_deleted(broker: Harness) -> None:
    """As in Kafka: DeleteGroups or expiry removes a group, not the deletion of its last offset."""
    one = await member(broker)
    await one.commit({0: 1})
    assert (await delete_offsets(one.wire, "g", "t", 0)).error_code == 0
    assert (await describe(one.wire)).group_state == "Empty"
    assert (await one.wire.call(DeleteGroupsRequest(groups_names=["g"]))).results[0].error_code == 0
    assert (await describe(one.wire)).group_state == "Dead"


async def test_deleting_a_group_deletes_its_offsets(synced_broker: Harness) -> None:
    one = await member(synced_broker)
    await one.commit({0: 1})
    assert (await one.wire.call(DeleteGroupsRequest(groups_names=["g"]))).results[0].error_code == 0
    assert await committed(one.wire, "g", 0) == [-1]
    assert (await describe(one.wire)).group_state == "Dead"
    await one.commit({1: 1})
    await synced_broker.restart()
    assert await committed(await synced_broker.wire(), "g", 0, 1) == [-1, 1]


async def test_a_group_with_many_offsets_is_deleted_whole(
    synced_broker: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard, "DELETED_AT_ONCE", 1)
    one = await member(synced_broker)
    await one.commit({0: 1, 1: 1, 2: 1, 3: 1})
    assert (await one.wire.call(DeleteGroupsRequest(groups_names=["g"]))).results[0].error_code == 0
    assert (await describe(one.wire)).group_state == "Dead"
    await synced_broker.restart()
    wire = await synced_broker.wire()
    assert await committed(wire, "g", 0, 1, 2, 3) == [-1] * 4
    assert (await describe(wire)).group_state == "Dead"


async def test_offsets_of_a_deleted_topic_do_not_apply_to_a_new_one(broker: Harness) -> None:
    one = await member(broker)
    await one.commit({0: 100})
    await one.wire.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000))
    await one.wire.create_topic("t", 4)
    assert await committed(one.wire, "g", 0) == [-1]
    await broker.restart()
    assert await committed(await broker.wire(), "g", 0) == [-1]


async def test_unused_offsets_expire(start_broker: StartBroker) -> None:
    broker = await start_broker(durability="os", offsets_retention_check_interval_ms="20", **NOW)
    one, reader = await member(broker), await member(broker, group="reader")
    await one.wire.create_topic("t")
    await reader.enter()
    assert await reader.commit({0: 8}) == [0]
    request = one.commit_request({0: 1})
    request.retention_time_ms = 50  # a field of OffsetCommit v2-4
    assert (await one.wire.call(request, 4)).topics[0].partitions[0].error_code == 0
    async with asyncio.timeout(10):
        while await committed(one.wire, "g", 0) != [-1]:
            await asyncio.sleep(0.01)
    assert (await describe(one.wire)).group_state == "Dead"
    assert await committed(reader.wire, "reader", 0) == [8]
    await broker.restart()
    assert await committed(await broker.wire(), "g", 0) == [-1]
