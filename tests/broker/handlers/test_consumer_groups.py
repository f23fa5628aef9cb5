"""Groups of the consumer protocol over the wire (KIP-848): members, assignments, sessions, offsets, restarts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker.conftest import StartBroker
from broker.consumers import HeartbeatingMember, settle
from broker.harness import Harness, Wire
from broker.members import WireMember
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k15_describe_groups import DescribeGroupsRequest
from semel_protocol.messages.k16_list_groups import ListGroupsRequest
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest
from semel_protocol.messages.k20_delete_topics import DeleteTopicsRequest
from semel_protocol.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsRequestTopic
from semel_protocol.messages.k42_delete_groups import DeleteGroupsRequest
from semel_protocol.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from semel_protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from semel_protocol.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest
from semel_storage.internal_topics import CONSUMER_OFFSETS

SETTINGS = {
    "group_consumer_min_session_timeout_ms": "1000",
    "group_consumer_session_timeout_ms": "3000",
    "group_consumer_min_heartbeat_interval_ms": "100",
    "group_consumer_heartbeat_interval_ms": "500",
    "group_initial_rebalance_delay_ms": "0",
}


@pytest.fixture
async def broker(start_broker: StartBroker) -> Harness:
    broker = await start_broker(durability="fsync", **SETTINGS)
    await (await broker.wire()).create_topic("t", 6)
    return broker


async def member(broker: Harness, member_id: str, **settings: Any) -> HeartbeatingMember:
    return HeartbeatingMember(await broker.wire(), member_id, **settings)


async def describe(wire: Wire, group: str = "g") -> Any:
    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    return (await wire.call(request, 1)).groups[0]


# --- assignments ---


async def test_one_member_gets_every_partition_with_its_first_heartbeat(broker: Harness) -> None:
    one = await member(broker, "a")
    answer = await one.wire.call(one.request(), 1)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "a", 1)
    assert answer.heartbeat_interval_ms == 500
    one.take(answer)
    assert one.partitions == [0, 1, 2, 3, 4, 5]
    again = await one.wire.call(one.request(topic_partitions=None), 1)
    assert (again.member_epoch, again.assignment) == (1, None)


@pytest.mark.parametrize("leaver", [0, 1, 2, 3])
@pytest.mark.parametrize("names", ["abcd", "dcba", "bdac"])
async def test_a_member_that_restarts_takes_no_partition_from_the_others(
    broker: Harness, names: str, leaver: int
) -> None:
    """Its partitions are in the target assignments of others, which do not own them yet. The member gets them back."""
    members = [await member(broker, each) for each in names]  # six partitions: two members have two
    await settle(*members)
    before = [each.owned for each in members]
    assert await members[leaver].leave() == 0
    assert await members[leaver - 1].beat() == 0  # makes the target assignment without the member that left
    members[leaver] = await member(broker, "e")
    assert await members[leaver].beat() == 0
    await settle(*members)
    assert sorted(len(each.owned) for each in members) == [1, 1, 2, 2]
    stayed = [(each.owned, had) for at, (each, had) in enumerate(zip(members, before, strict=True)) if at != leaver]
    assert all(owned >= had for owned, had in stayed)


async def test_a_second_member_gets_partitions_once_the_first_has_revoked_them(broker: Harness) -> None:
    one, two = await member(broker, "a"), await member(broker, "b")
    await one.beat()
    await two.beat()
    assert (two.epoch, two.partitions) == (2, [])
    answer = await one.wire.call(one.request(), 1)
    assert answer.member_epoch == 1, "the epoch grows once the partitions are revoked"
    held = one.owned
    one.take(answer)
    await two.beat()
    assert two.partitions == [], "the first one has not said yet that it has revoked"
    assert await one.beat() == 0
    assert one.epoch == 2
    await two.beat()
    assert len(one.owned) == len(two.owned) == 3
    assert one.owned | two.owned == held


async def test_three_members_share_and_a_leaver_hands_over(broker: Harness) -> None:
    members = [await member(broker, name) for name in "abc"]
    await settle(*members)
    assert [len(each.owned) for each in members] == [2, 2, 2]
    assert await members[0].leave() == 0
    await settle(*members[1:])
    assert sorted(members[1].partitions + members[2].partitions) == [0, 1, 2, 3, 4, 5]
    assert (await describe(members[1].wire)).group_state == "Stable"


async def test_the_range_assignor_gives_runs(broker: Harness) -> None:
    one, two = await member(broker, "a", assignor="range"), await member(broker, "b", assignor="range")
    await settle(one, two)
    assert (one.partitions, two.partitions) == ([0, 1, 2], [3, 4, 5])
    assert (await describe(one.wire)).assignor_name == "range"


async def test_new_partitions_and_topics_reach_members(broker: Harness) -> None:
    one = await member(broker, "a", topics=("t", "later"))
    await one.beat()
    grow = CreatePartitionsRequest(
        topics=[CreatePartitionsRequestTopic(name="t", count=8, assignments=None)], timeout_ms=1000, validate_only=False
    )
    assert (await one.wire.call(grow)).results[0].error_code == 0
    await settle(one)
    assert len(one.owned) == 8
    await one.wire.create_topic("later", 2)
    await settle(one)
    assert len(one.owned) == 10
    assert (await one.wire.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000))).responses[0].error_code == 0
    await settle(one)
    assert len(one.owned) == 2


async def test_a_regular_expression_follows_the_topics(broker: Harness) -> None:
    one = await member(broker, "a", topics=None, regex="orders-.*")
    await one.beat()
    assert one.owned == frozenset()
    await one.wire.create_topic("orders-eu", 2)
    await one.wire.create_topic("other", 2)
    await settle(one)
    assert len(one.owned) == 2
    found = (await describe(one.wire)).members[0]
    assert found.subscribed_topic_regex == "orders-.*"
    assert [row.topic_name for row in found.assignment.topic_partitions] == ["orders-eu"]
    assert await one.beat(subscribed_topic_regex="(") == ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_a_regular_expression_matches_internal_topics(broker: Harness) -> None:
    """As Apache Kafka 4.1 does it: a client that does not want them must say so in its expression."""
    one = await member(broker, "a", topics=None, regex=f"{CONSUMER_OFFSETS}|t")
    await settle(one)
    found = (await describe(one.wire)).members[0]
    assert {row.topic_name for row in found.assignment.topic_partitions} == {CONSUMER_OFFSETS, "t"}


# --- members ---


async def test_a_repeated_heartbeat_whose_answer_was_lost_gets_the_answer_again(broker: Harness) -> None:
    one = await member(broker, "a")
    lost = await one.wire.call(one.request(), 1)
    assert lost.member_epoch == 1
    assert await one.beat() == 0
    assert (one.epoch, len(one.owned)) == (1, 6)
    two = await member(broker, "b")
    await two.beat()
    one.take(await one.wire.call(one.request(), 1))
    await one.wire.call(one.request(), 1)  # moves to epoch 2; the answer is lost
    assert one.epoch == 1
    assert await one.beat() == 0
    assert one.epoch == 2


async def never_heard(broker: Harness) -> tuple[HeartbeatingMember, HeartbeatingMember]:
    """A member that owns three partitions. The answer that assigned three more was lost.

    These three are to go to the other member, and it has sent a full heartbeat again.
    """
    one, two, three = await member(broker, "a"), await member(broker, "b"), await member(broker, "c")
    await settle(one, two)
    half = one.owned
    await two.leave()
    await one.wire.call(one.request(), 1)  # gets all partitions; the answer is lost
    await three.beat()
    assert await one.beat(rebalance_timeout_ms=10_000, subscribed_topic_names=["t"]) == 0
    assert one.owned == half
    await three.beat()
    assert three.partitions == [], "the first one may be about to adopt them"
    return one, three


@pytest.mark.proves("assignment-never-heard-of")
async def test_a_member_need_not_revoke_partitions_of_an_assignment_that_was_lost(broker: Harness) -> None:
    """Its partitions do not change, so it acknowledges nothing.

    Otherwise it would be removed after its rebalance timeout.
    """
    one, three = await never_heard(broker)
    assert await one.beat(topic_partitions=None) == 0
    assert one.epoch == three.epoch
    await three.beat()
    assert len(one.owned) == len(three.owned) == 3


@pytest.mark.proves("assignment-never-heard-of")
async def test_a_member_that_has_adopted_meanwhile_what_it_did_not_name_revokes_it(broker: Harness) -> None:
    """Java's consumer names the partitions that it has adopted, and may adopt more while the heartbeat is under way."""
    one, three = await never_heard(broker)
    half, topic_id = one.owned, min(one.owned)[0]
    one.owned = frozenset((topic_id, index) for index in range(6))
    for _ in range(2):
        answer = await one.wire.call(one.request(), 1)
        assert answer.error_code == 0
        await three.beat()
        assert three.partitions == []
    assert (await one.wire.call(one.request(topic_partitions=None), 1)).member_epoch == one.epoch
    one.owned = half
    assert await one.beat() == 0
    await three.beat()
    assert len(one.owned) == len(three.owned) == 3


async def test_a_member_at_another_epoch_is_fenced_and_may_join_again(broker: Harness) -> None:
    one = await member(broker, "a")
    await one.beat()
    assert await one.beat(member_epoch=7) == ErrorCode.FENCED_MEMBER_EPOCH
    assert await one.beat(member_id="stranger", member_epoch=1) == ErrorCode.UNKNOWN_MEMBER_ID
    one.epoch, one.owned = 0, frozenset()
    assert await one.beat() == 0
    assert len(one.owned) == 6


async def test_a_silent_member_is_removed_after_its_session(broker: Harness) -> None:
    one, two = await member(broker, "a"), await member(broker, "b")
    await settle(one, two)
    for _ in range(5):
        await asyncio.sleep(1)
        assert await two.beat() == 0
    await settle(two)
    assert len(two.owned) == 6
    assert await one.beat() == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_member_that_revokes_too_slowly_is_removed(broker: Harness) -> None:
    one, two = await member(broker, "a"), await member(broker, "b")
    await one.beat(rebalance_timeout_ms=5_000)
    await two.beat()
    held = one.owned
    for second in range(7):
        code = await one.beat()
        one.owned = held  # heartbeats continue, and it does not revoke
        assert await two.beat() == 0
        assert code == (0 if second < 5 else ErrorCode.UNKNOWN_MEMBER_ID), second
        await asyncio.sleep(1)
    await settle(two)
    assert len(two.owned) == 6


async def test_a_static_member_that_returns_gets_its_partitions_back(broker: Harness) -> None:
    one, two = await member(broker, "a", instance="i"), await member(broker, "b", instance="j")
    await settle(one, two)
    held = one.owned
    thief = await member(broker, "c", instance="i")
    assert await thief.beat() == ErrorCode.UNRELEASED_INSTANCE_ID
    assert await one.leave(-2) == 0
    assert await two.beat() == 0
    assert len(two.owned) == 3, "nothing moves"
    back = await member(broker, "d", instance="i")
    assert await back.beat() == 0
    assert back.owned == held
    one.epoch = 1
    assert await one.beat() == ErrorCode.FENCED_INSTANCE_ID
    assert await one.beat(instance_id="nobody") == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_static_member_that_stays_away_is_removed_after_its_session(broker: Harness) -> None:
    one, two = await member(broker, "a", instance="i"), await member(broker, "b")
    await settle(one, two)
    await one.leave(-2)
    for _ in range(5):
        await asyncio.sleep(1)
        assert await two.beat() == 0
    await settle(two)
    assert len(two.owned) == 6


async def test_a_group_is_full(start_broker: StartBroker) -> None:
    broker = await start_broker(durability="os", group_consumer_max_size="1", **SETTINGS)
    one, two = await member(broker, "a"), await member(broker, "b")
    assert await one.beat() == 0
    assert await two.beat() == ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"member_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "none"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"member_epoch": 5}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
async def test_what_no_member_may_ask(broker: Harness, fields: dict[str, Any], code: ErrorCode) -> None:
    one = await member(broker, "a")
    answer = await one.wire.call(one.request(**fields), 1)
    assert (answer.error_code, bool(answer.error_message)) == (code, True)
    assert (await one.wire.call(ListGroupsRequest(), 5)).groups == []


async def test_version_0_gives_a_member_its_id(broker: Harness) -> None:
    one = await member(broker, "")
    assert await one.beat(version=0) == 0
    assert one.member_id.startswith("wire-")
    assert len(one.owned) == 6


# --- offsets ---


async def test_only_a_member_at_its_epoch_commits_and_fetches(broker: Harness) -> None:
    one, two = await member(broker, "a"), await member(broker, "b")
    await one.beat()
    assert await one.commit({0: 5}) == [0]
    assert await one.commit({0: 6}, epoch=9) == [ErrorCode.STALE_MEMBER_EPOCH]
    assert await two.commit({0: 7}, epoch=1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    two.member_id = ""
    assert await two.commit({0: 8}, epoch=-1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    found = await one.fetch(0, 1)
    assert [row.committed_offset for row in found.topics[0].partitions] == [5, -1]
    assert (await one.fetch(0, epoch=9)).error_code == ErrorCode.STALE_MEMBER_EPOCH
    two.member_id = "stranger"
    assert (await two.fetch(0, epoch=1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    await one.leave()
    one.member_id = ""
    assert await one.commit({0: 9}, epoch=-1) == [0], "an administrator, once there are no members"


async def test_a_member_commits_with_a_version_that_has_epochs(broker: Harness) -> None:
    """Below OffsetCommit v9 the number is a generation of the classic protocol, also if it equals the epoch."""
    one = await member(broker, "a")
    await one.beat()
    assert await one.commit({0: 5}, version=8) == [ErrorCode.UNSUPPORTED_VERSION]
    assert [row.committed_offset for row in (await one.fetch(0)).topics[0].partitions] == [-1]
    one.member_id = "stranger"
    assert await one.commit({0: 5}, version=8) == [ErrorCode.UNKNOWN_MEMBER_ID]


async def test_offsets_are_fetched_by_a_member_at_its_epoch_or_without_a_member(broker: Harness) -> None:
    one = await member(broker, "a")
    await one.beat()
    await one.commit({0: 5})
    assert (await one.fetch(0, epoch=-1)).error_code == ErrorCode.STALE_MEMBER_EPOCH
    one.member_id = "stranger"
    assert (await one.fetch(0, epoch=-1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    one.member_id = ""
    assert (await one.fetch(0, epoch=-1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    found = await one.fetch(0, epoch=-1, is_named=False)
    assert [row.committed_offset for row in found.topics[0].partitions] == [5]
    assert (await one.fetch(0, epoch=1, is_named=False)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.proves("revocation-in-parts")
async def test_a_member_with_more_to_revoke_no_longer_commits_what_it_has_revoked(broker: Harness) -> None:
    """Its epoch grows with each acknowledged revocation, although it is still below the group's epoch."""
    one, two, three = await member(broker, "a"), await member(broker, "b"), await member(broker, "c")
    await one.beat()
    await two.beat()
    one.take(await one.wire.call(one.request(), 1))
    revoked = {*range(6)}.difference(one.partitions)
    await three.beat()
    before = one.epoch
    one.take(await one.wire.call(one.request(), 1))  # acknowledges the first revocation, and asks for the second
    assert {*range(6)}.difference(one.partitions) > revoked
    between = one.epoch
    for _ in range(2):
        await two.beat()
        await three.beat()
    given = min(revoked.intersection(two.partitions + three.partitions))
    assert await one.commit({given: 5}, epoch=before) == [ErrorCode.STALE_MEMBER_EPOCH]
    assert before < between < three.epoch
    await settle(one, two, three)
    assert (one.epoch, len(one.owned), len(two.owned), len(three.owned)) == (three.epoch, 2, 2, 2)


@pytest.mark.proves("lost-answer-to-a-revocation")
async def test_a_lost_answer_that_asked_for_one_more_revocation_fences_no_member(broker: Harness) -> None:
    """The epoch has grown. The member still owns a partition and does not know that it must revoke it."""
    one, two, three = await member(broker, "a"), await member(broker, "b"), await member(broker, "c")
    await one.beat()
    await two.beat()
    one.take(await one.wire.call(one.request(), 1))
    await three.beat()
    lost = await one.wire.call(one.request(), 1)  # acknowledges the first revocation, and asks for the second
    assert lost.member_epoch == one.epoch + 1
    assert await one.beat() == 0
    assert one.epoch == lost.member_epoch
    await settle(one, two, three)
    assert [len(each.owned) for each in (one, two, three)] == [2, 2, 2]


async def test_a_former_member_commits_nothing(broker: Harness) -> None:
    one, two = await member(broker, "a"), await member(broker, "b")
    await settle(one, two)
    await asyncio.sleep(2)
    await two.beat()
    await asyncio.sleep(2)
    assert await one.commit({one.partitions[0]: 5}, epoch=one.epoch) == [ErrorCode.UNKNOWN_MEMBER_ID]


async def test_offsets_of_read_topics_are_not_deleted(broker: Harness) -> None:
    one = await member(broker, "a")
    await one.beat()
    await one.commit({0: 5})
    request = OffsetDeleteRequest(
        group_id="g",
        topics=[OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])],
    )
    (row,) = (await one.wire.call(request)).topics[0].partitions
    assert row.error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


# --- administrators ---


async def test_group_without_a_name_is_not_described(broker: Harness) -> None:
    assert (await describe(await broker.wire(), "")).error_code == ErrorCode.INVALID_GROUP_ID


async def test_groups_are_described_and_listed_by_their_type(broker: Harness) -> None:
    one = await member(broker, "a")
    await one.beat()
    classic = WireMember(await broker.wire(), "classic")
    await classic.enter()
    wire = classic.wire
    listed = (await wire.call(ListGroupsRequest(types_filter=["Consumer"]), 5)).groups
    assert [(row.group_id, row.protocol_type, row.group_state, row.group_type) for row in listed] == [
        ("g", "consumer", "Stable", "consumer")
    ]
    assert [row.group_id for row in (await wire.call(ListGroupsRequest(types_filter=["classic"]), 5)).groups] == [
        "classic"
    ]
    found = await describe(wire)
    assert (found.error_code, found.group_state, found.group_epoch, found.assignment_epoch) == (0, "Stable", 1, 1)
    assert [(each.member_id, each.member_epoch, each.member_type) for each in found.members] == [("a", 1, 1)]
    assert found.members[0].assignment.topic_partitions[0].partitions == [0, 1, 2, 3, 4, 5]
    assert (await describe(wire, "classic")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    old = (await wire.call(DescribeGroupsRequest(groups=["g"]), 5)).groups[0]
    assert (old.error_code, old.group_state) == (0, "Dead")
    new = (await wire.call(DescribeGroupsRequest(groups=["g"]), 6)).groups[0]
    assert (new.error_code, new.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")


async def test_a_group_without_members_is_deleted_for_good(broker: Harness) -> None:
    one = await member(broker, "a")
    await one.beat()
    await one.commit({0: 5})
    delete = DeleteGroupsRequest(groups_names=["g"])
    assert (await one.wire.call(delete)).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    await one.leave()
    assert (await describe(one.wire)).group_state == "Empty"
    assert (await one.wire.call(delete)).results[0].error_code == 0
    await broker.restart()
    wire = await broker.wire()
    assert (await wire.call(ListGroupsRequest(), 5)).groups == []


async def test_groups_without_members_and_offsets_expire(start_broker: StartBroker) -> None:
    broker = await start_broker(durability="os", offsets_retention_check_interval_ms="1000", **SETTINGS)
    one = await member(broker, "a")
    await one.beat()
    await one.leave()
    await asyncio.sleep(2)
    assert (await one.wire.call(ListGroupsRequest(), 5)).groups == []
    one.epoch = 0
    assert await one.beat() == 0


# --- the two protocols ---


async def test_a_group_that_may_not_be_upgraded_refuses_the_consumer_protocol(start_broker: StartBroker) -> None:
    broker = await start_broker(durability="os", group_consumer_migration_policy="disabled", **SETTINGS)
    classic = WireMember(await broker.wire(), "classic")
    await classic.enter()
    two = await member(broker, "b", group="classic")
    assert await two.beat() == ErrorCode.GROUP_ID_NOT_FOUND
    assert await classic.heartbeat() == 0


async def test_a_group_without_members_changes_its_protocol_and_keeps_its_offsets(broker: Harness) -> None:
    old = WireMember(await broker.wire())
    await old.enter()
    await old.commit({0: 5})
    await old.leave()
    one = await member(broker, "a")
    assert await one.beat() == 0
    assert (await one.fetch(0)).topics[0].partitions[0].committed_offset == 5
    await one.leave()
    again = WireMember(await broker.wire())
    await again.enter()
    assert await again.heartbeat() == 0
    await broker.restart()
    again.wire = await broker.wire()
    assert await again.heartbeat() == 0
    (row,) = (await again.wire.call(ListGroupsRequest(), 5)).groups
    assert row.group_type == "classic"


async def test_without_the_protocol_its_apis_are_not_offered(start_broker: StartBroker) -> None:
    broker = await start_broker(durability="os", group_coordinator_rebalance_protocols="classic")
    wire = await broker.wire()
    answer = await wire.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
    served = {row.api_key: row.max_version for row in answer.api_keys}
    assert (served.get(68), served.get(69), served[8]) == (None, None, 7)
    assert [each.name for each in answer.finalized_features] == ["transaction.version"]
    one = HeartbeatingMember(wire, "a")
    wire.send(one.request(), 1)
    assert await wire.closed_by_peer()


async def test_with_the_protocol_its_feature_is_finalized(broker: Harness) -> None:
    wire = await broker.wire()
    answer = await wire.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
    assert {each.name: each.max_version_level for each in answer.finalized_features}["group.version"] == 1
    served = {row.api_key: row.max_version for row in answer.api_keys}
    assert [served[key] for key in (3, 8, 9, 15, 16, 68, 69)] == [13, 10, 10, 6, 5, 1, 1]


# --- restarts ---


async def test_members_continue_after_a_restart(broker: Harness) -> None:
    one, two = await member(broker, "a"), await member(broker, "b", regex="t", topics=None)
    await settle(one, two)
    owned = one.owned, two.owned
    await broker.restart()
    for each in (one, two):
        each.wire = await broker.wire()
    await settle(one, two)
    assert (one.owned, two.owned) == owned
    assert (one.epoch, two.epoch) == (2, 2)
    assert await one.commit({one.partitions[0]: 5}) == [0]


async def test_a_member_that_dies_with_the_broker_is_removed_after_the_restart(broker: Harness) -> None:
    one, two = await member(broker, "a"), await member(broker, "b")
    await settle(one, two)
    await broker.restart()
    two.wire = await broker.wire()
    for _ in range(5):
        await asyncio.sleep(1)
        assert await two.beat() == 0
    await settle(two)
    assert len(two.owned) == 6


# --- settings of a group ---


async def test_settings_of_a_group_are_in_force_from_its_next_heartbeat_on(broker: Harness) -> None:
    one = await member(broker, "a")
    assert (await one.wire.call(one.request(), 1)).heartbeat_interval_ms == 500
    one.epoch = 1
    for name, text in (("consumer.session.timeout.ms", "9000"), ("consumer.heartbeat.interval.ms", "700")):
        row = IncrementalAlterConfigsRequestConfig(name=name, config_operation=0, value=text)
        resource = IncrementalAlterConfigsRequestResource(resource_type=32, resource_name="g", configs=[row])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        assert (await one.wire.call(request)).responses[0].error_code == 0
    assert (await one.wire.call(one.request(topic_partitions=None), 1)).heartbeat_interval_ms == 700
    await asyncio.sleep(8)
    assert await one.beat(topic_partitions=None) == 0, "the session is longer now"
    await asyncio.sleep(10)
    assert await one.beat(topic_partitions=None) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.proves("late-heartbeat")
async def test_a_heartbeat_that_arrives_late_over_an_abandoned_connection_changes_nothing(broker: Harness) -> None:
    one = await member(broker, "a")
    assert await one.beat() == 0
    abandoned, one.wire = one.wire, await broker.wire()
    assert await one.beat() == 0
    other = await member(broker, "b")
    assert await other.beat() == 0  # from now on "a" has to revoke partitions
    abandoned.send(one.request(topic_partitions=None), 1)
    assert await abandoned.closed_by_peer()
    assert [line["reason"] for line in broker.log.of("connection_closed")] == ["stale_connection"]
    answer = await one.wire.call(one.request(topic_partitions=None), 1)
    assert answer.assignment is not None, "the answer has the partitions to revoke"


@pytest.mark.proves("late-heartbeat")
async def test_a_join_that_arrives_late_over_an_abandoned_connection_releases_nothing(broker: Harness) -> None:
    one = await member(broker, "a")
    late_join = one.request()
    abandoned, one.wire = one.wire, await broker.wire()
    assert await one.beat() == 0
    other = await member(broker, "b")
    assert await other.beat() == 0
    assert await one.beat(topic_partitions=None) == 0  # it has to revoke partitions, and does not yet
    abandoned.send(late_join, 1)
    assert await abandoned.closed_by_peer()
    assert await other.beat() == 0
    assert other.partitions == []
