"""Consumer groups over the wire: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and groups after a restart."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker.conftest import StartBroker
from broker.harness import Harness, Wire
from broker.members import WireMember, subscription
from semel_broker.context import RequestContext
from semel_broker.handlers import k11_join_group, k15_describe_groups, k16_list_groups
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from semel_protocol.messages.k12_heartbeat import HeartbeatRequest
from semel_protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupRequestMember
from semel_protocol.messages.k15_describe_groups import DescribeGroupsRequest
from semel_protocol.messages.k16_list_groups import ListGroupsRequest
from semel_protocol.messages.k42_delete_groups import DeleteGroupsRequest

NOW = {"group_initial_rebalance_delay_ms": "0", "group_min_session_timeout_ms": "100"}


@pytest.fixture
async def broker(start_broker: StartBroker) -> Harness:
    return await start_broker(durability="os", **NOW)


@pytest.fixture
async def synced_broker(start_broker: StartBroker) -> Harness:
    return await start_broker(durability="fsync", **NOW)


async def member(broker: Harness, **settings: Any) -> WireMember:
    return WireMember(await broker.wire(), **settings)


async def enter_two(broker: Harness, **settings: Any) -> tuple[WireMember, WireMember]:
    """A stable group of two with the first as leader; each member is assigned its own id."""
    first = await member(broker, **{**settings, "instance": settings.get("instance") and "a"})
    second = await member(broker, **{**settings, "instance": settings.get("instance") and "b"})
    await first.enter()
    joining = asyncio.create_task(second.join())
    while await first.heartbeat() != ErrorCode.REBALANCE_IN_PROGRESS:
        await asyncio.sleep(0.005)
    assert (await first.join()).leader == first.member_id
    await joining
    waiting = asyncio.create_task(second.sync())
    await first.sync({each.member_id: each.member_id.encode() for each in (first, second)})
    assert (await waiting).assignment == second.member_id.encode()
    return first, second


async def describe(wire: Wire, group: str = "g") -> Any:
    return (await wire.call(DescribeGroupsRequest(groups=[group]))).groups[0]


async def until_state(wire: Wire, state: str) -> Any:
    async with asyncio.timeout(10):
        while (group := await describe(wire)).group_state != state:
            await asyncio.sleep(0.005)
    return group


# --- rebalances ---


async def test_new_member_gets_an_id_and_leads(broker: Harness) -> None:
    one = await member(broker)
    response = await one.wire.call(one.join_request())
    assert (response.error_code, response.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
    assert response.member_id.startswith("wire-")
    one.member_id = response.member_id
    joined = await one.join()
    assert (joined.member_id, joined.leader, joined.generation_id) == (response.member_id, response.member_id, 1)
    assert joined.members[0].metadata == subscription("t")


async def test_old_client_joins_without_member_id_required(broker: Harness) -> None:
    one = await member(broker)
    joined = await one.join(version=3)
    assert (joined.error_code, joined.generation_id, len(joined.members)) == (0, 1, 1)


async def test_two_members_share_a_generation(broker: Harness) -> None:
    first, second = await enter_two(broker)
    assert first.generation == second.generation == 2
    assert await first.heartbeat() == await second.heartbeat() == 0


async def test_leaving_member_makes_the_others_rebalance(broker: Harness) -> None:
    first, second = await enter_two(broker)
    row = (await second.leave()).members[0]
    assert (row.member_id, row.group_instance_id, row.error_code) == (second.member_id, None, 0)
    assert await first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert [m.member_id for m in (await first.join()).members] == [first.member_id]


async def test_silent_member_expires(broker: Harness) -> None:
    one = await member(broker)
    await one.join(session_timeout_ms=150)
    await one.sync({one.member_id: b"x"})
    watcher = await broker.wire()
    assert (await until_state(watcher, "Empty")).members == []
    assert await one.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


async def test_members_that_are_killed_while_they_join_do_not_delay_the_group(broker: Harness) -> None:
    """One waits in JoinGroup, one was only given its id."""
    one = await member(broker)
    await one.enter()
    waits, given = await member(broker), await member(broker)
    joining = asyncio.create_task(waits.join())
    request = given.join_request()
    assert (await given.wire.call(request)).error_code == ErrorCode.MEMBER_ID_REQUIRED
    await until_state(one.wire, "PreparingRebalance")
    await waits.wire.close()
    await given.wire.close()
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while len((await describe(one.wire)).members) > 1:
        await asyncio.sleep(0.005)
    assert [row.member_id for row in (await one.join()).members] == [one.member_id]
    assert loop.time() - began_s < 1
    await asyncio.gather(joining, return_exceptions=True)


async def test_heartbeats_keep_a_member(broker: Harness) -> None:
    one = await member(broker)
    await one.join(session_timeout_ms=300)
    await one.sync({one.member_id: b"x"})
    for _ in range(10):
        await asyncio.sleep(0.06)
        assert await one.heartbeat() == 0


async def test_initial_delay_gathers_members_that_come_together(start_broker: StartBroker) -> None:
    broker = await start_broker(durability="os", group_initial_rebalance_delay_ms="150")
    members = [await member(broker) for _ in range(3)]
    joined = await asyncio.gather(*(each.join() for each in members))
    assert {response.generation_id for response in joined} == {1}
    assert len({response.leader for response in joined}) == 1


async def test_hundred_members_reach_a_stable_group(broker: Harness) -> None:
    wires = [await broker.wire() for _ in range(100)]
    members = [WireMember(wire) for wire in wires]

    generations: dict[str, int] = {}
    at_rest = asyncio.Event()

    async def live(one: WireMember) -> None:
        """Act like a client: send heartbeats, and join again on a rebalance, until the group is stable."""
        while not at_rest.is_set():
            joined = await one.join()
            assert joined.error_code == 0
            rows = {row.member_id: row.member_id.encode() for row in joined.members}
            synced = await one.sync(rows)
            if synced.error_code == 0:
                assert synced.assignment == one.member_id.encode()
                generations[one.member_id] = joined.generation_id
                if len(generations) == len(members) and len(set(generations.values())) == 1:
                    at_rest.set()
            while not at_rest.is_set() and await one.heartbeat() == 0:
                await asyncio.sleep(0.02)

    async with asyncio.timeout(30):
        await asyncio.gather(*(live(one) for one in members))
    group = await describe(wires[0])
    assert (group.group_state, len(group.members)) == ("Stable", 100)


# --- refusals ---


@pytest.mark.parametrize("session_timeout_ms", [0, -1, 99, 1_800_001])
async def test_session_timeout_out_of_range_is_refused(broker: Harness, session_timeout_ms: int) -> None:
    one = await member(broker)
    response = await one.join(session_timeout_ms=session_timeout_ms)
    assert response.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert (response.generation_id, response.leader, response.protocol_name, response.members) == (-1, "", None, [])


async def test_empty_group_id_is_refused(broker: Harness) -> None:
    one = await member(broker, group="")
    assert (await one.join()).error_code == ErrorCode.INVALID_GROUP_ID
    assert (await one.sync()).error_code == ErrorCode.INVALID_GROUP_ID
    assert await one.heartbeat() == ErrorCode.INVALID_GROUP_ID
    assert (await one.leave("x")).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize(("version", "protocol"), [(4, ""), (7, None), (9, None)])
async def test_refused_join_names_the_member_of_the_request(
    broker: Harness, version: int, protocol: str | None
) -> None:
    one = await member(broker)
    one.member_id = "mine"
    for fields, code in (
        ({}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
    ):
        response = await one.wire.call(one.join_request(**fields), version)
        assert (response.error_code, response.member_id, response.protocol_name) == (code, "mine", protocol)


async def test_sync_without_a_protocol_is_refused_from_v5_on(broker: Harness) -> None:
    one = await member(broker)
    await one.join()
    one.protocol = None
    assert (await one.sync({}, version=5)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await one.sync({}, version=4)).error_code == 0


async def test_group_that_is_named_twice_is_deleted_once(broker: Harness) -> None:
    one = await member(broker)
    await one.wire.create_topic("t")
    await one.commit({0: 1})
    results = (await one.wire.call(DeleteGroupsRequest(groups_names=["g", "g"]))).results
    assert [(row.group_id, row.error_code) for row in results] == [("g", 0)]


LONG = "é" * 2049
"""4,098 bytes."""


async def test_long_ids_are_refused_before_they_are_kept(broker: Harness) -> None:
    one = await member(broker)
    await one.wire.create_topic("t")
    for fields, code in (
        ({"group_id": LONG}, ErrorCode.INVALID_GROUP_ID),
        ({"group_instance_id": LONG}, ErrorCode.INVALID_REQUEST),
        ({"member_id": LONG}, ErrorCode.INVALID_REQUEST),
    ):
        assert (await one.wire.call(one.join_request(**fields))).error_code == code
    long = await member(broker, group=LONG)
    assert await long.commit({0: 1}) == [ErrorCode.INVALID_GROUP_ID]
    assert (await one.wire.call(ListGroupsRequest())).groups == []
    longest = await member(broker, group=LONG[:2048])
    assert await longest.commit({0: 1}) == [0]
    await longest.enter()


async def test_long_client_id_gives_a_member_id_that_is_accepted(broker: Harness) -> None:
    one = await member(broker)
    one.wire.send(one.join_request(), client_id="c" * 20_000)
    given = await one.wire.receive()
    assert given.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert len(given.member_id) < 300
    one.member_id = given.member_id
    await one.enter()


async def test_unknown_group_has_no_members(broker: Harness) -> None:
    one = await member(broker, group="nobody")
    one.member_id, one.generation = "x", 1
    assert (await one.join()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await one.sync()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert await one.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await one.leave()).members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await one.wire.call(ListGroupsRequest())).groups == []


async def test_refused_join_creates_no_group(broker: Harness) -> None:
    one = await member(broker)
    assert (await one.join(protocols=[])).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await one.wire.call(ListGroupsRequest())).groups == []


async def test_full_group_refuses_another_member(start_broker: StartBroker) -> None:
    broker = await start_broker(durability="os", **NOW, group_max_size="1")
    await (await member(broker)).enter()
    assert (await (await member(broker)).join()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


# --- static members ---


async def test_kip345_restarted_member_keeps_its_assignment(synced_broker: Harness) -> None:
    first, second = await enter_two(synced_broker, instance="yes")
    again = await member(synced_broker, instance="b")
    joined = await again.join()
    assert (joined.generation_id, joined.leader, joined.members) == (second.generation, first.member_id, [])
    assert (await again.sync()).assignment == second.member_id.encode()
    assert await first.heartbeat() == 0
    assert await second.heartbeat() == ErrorCode.FENCED_INSTANCE_ID


async def test_kip345_leave_rows_echo_the_requested_identity(broker: Harness) -> None:
    first, _ = await enter_two(broker, instance="yes")
    rows = [
        LeaveGroupRequestMember(member_id="", group_instance_id="b"),
        LeaveGroupRequestMember(member_id="", group_instance_id="zz"),
        LeaveGroupRequestMember(member_id="x", group_instance_id="a"),
        LeaveGroupRequestMember(member_id="y", group_instance_id=None),
    ]
    answer = await first.wire.call(LeaveGroupRequest(group_id="g", members=rows))
    assert [(row.member_id, row.group_instance_id, row.error_code) for row in answer.members] == [
        ("", "b", 0),
        ("", "zz", ErrorCode.UNKNOWN_MEMBER_ID),
        ("x", "a", ErrorCode.FENCED_INSTANCE_ID),
        ("y", None, ErrorCode.UNKNOWN_MEMBER_ID),
    ]


async def test_leave_of_old_clients_has_one_error(broker: Harness) -> None:
    one = await member(broker)
    await one.enter()
    request = LeaveGroupRequest(group_id="g", member_id=one.member_id)
    assert (await one.wire.call(request, 1)).error_code == 0
    assert (await one.wire.call(request, 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


# --- restarts ---


async def test_members_continue_after_a_broker_restart(synced_broker: Harness) -> None:
    first, second = await enter_two(synced_broker)
    await synced_broker.restart()
    for one in (first, second):
        one.wire = await synced_broker.wire()
        assert await one.heartbeat() == 0
        assert (await one.sync()).assignment == one.member_id.encode()
    group = await describe(first.wire)
    assert (group.group_state, group.protocol_data, len(group.members)) == ("Stable", "range", 2)
    assert (await second.join()).generation_id == 2
    await second.leave()
    assert await first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


async def test_restarted_broker_knows_static_members(synced_broker: Harness) -> None:
    first, second = await enter_two(synced_broker, instance="yes")
    again = await member(synced_broker, instance="b")
    await again.join()
    await synced_broker.restart()
    for one in (first, again, second):
        one.wire = await synced_broker.wire()
    assert await first.heartbeat() == await again.heartbeat() == 0
    assert await second.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    once_more = await member(synced_broker, instance="b")
    assert (await once_more.join()).generation_id == first.generation


async def test_members_lost_with_the_broker_expire(start_broker: StartBroker) -> None:
    broker = await start_broker(durability="os", **NOW)
    one = await member(broker)
    await one.join(session_timeout_ms=150)
    await one.sync({one.member_id: b"x"})
    await broker.restart()
    wire = await broker.wire()
    await until_state(wire, "Empty")


async def test_generation_continues_after_a_restart(broker: Harness) -> None:
    one = await member(broker)
    await one.enter()
    await one.leave()
    await broker.restart()
    two = await member(broker)
    await two.enter()
    assert two.generation == 3


async def test_stopping_broker_answers_members_that_wait_in_a_rebalance(broker: Harness) -> None:
    first, second = await member(broker), await member(broker)
    await first.enter()
    joining = asyncio.create_task(second.join())
    await until_state(first.wire, "PreparingRebalance")
    assert broker.node is not None
    stopping = asyncio.create_task(broker.node.stop())
    assert (await joining).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await stopping
    broker.node = None


# --- describing groups ---


async def test_describe_shows_members_as_they_described_themselves(broker: Harness) -> None:
    one = await member(broker)
    await one.enter()
    group = await describe(one.wire)
    assert (group.error_code, group.group_state, group.protocol_type) == (0, "Stable", "consumer")
    (row,) = group.members
    assert (row.client_id, row.client_host) == ("wire", "/127.0.0.1")
    assert (row.member_metadata, row.member_assignment) == (subscription("t"), b"all")


async def test_unknown_group_is_dead_without_an_error(broker: Harness) -> None:
    group = await describe(await broker.wire(), "nobody")
    assert (group.error_code, group.group_id, group.group_state, group.members) == (0, "nobody", "Dead", [])


async def test_list_filters_by_state_and_type(broker: Harness) -> None:
    one = await member(broker, group="b")
    await one.enter()
    simple = await member(broker, group="a")
    await simple.wire.create_topic("t")
    assert await simple.commit({0: 1}) == [0]
    groups = (await one.wire.call(ListGroupsRequest())).groups
    assert [(row.group_id, row.protocol_type) for row in groups] == [("a", ""), ("b", "consumer")]
    ctx = context(broker, 5)
    for states, types, expected in (
        (["stable"], [], ["b"]),
        (["Empty", "Stable"], ["Classic"], ["a", "b"]),
        (["Dead"], [], []),
        ([], ["consumer"], []),
    ):
        answer = await k16_list_groups.handle(ListGroupsRequest(states_filter=states, types_filter=types), ctx)
        assert [row.group_id for row in answer.groups] == expected
    answer = await k15_describe_groups.handle(DescribeGroupsRequest(groups=["b", "z"]), context(broker, 5))
    assert [row.group_state for row in answer.groups] == ["Stable", "Dead"]


async def test_delete_takes_only_groups_without_members(broker: Harness) -> None:
    one = await member(broker)
    await one.enter()
    request = DeleteGroupsRequest(groups_names=["g", "nobody"])
    results = (await one.wire.call(request)).results
    assert [row.error_code for row in results] == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
    assert all(row.error_message for row in results), "version 3 says why"
    await one.leave()
    results = (await one.wire.call(request)).results
    assert [row.error_code for row in results] == [0, ErrorCode.GROUP_ID_NOT_FOUND]
    assert results[0].error_message is None
    assert (await describe(one.wire)).group_state == "Dead"
    await broker.restart()
    assert (await (await broker.wire()).call(ListGroupsRequest())).groups == []


# --- finding the coordinator ---


async def test_coordinator_is_this_broker_under_its_advertised_address(start_broker: StartBroker) -> None:
    broker = await start_broker(durability="os", advertised_host_name="broker.example", advertised_port="1234")
    wire = await broker.wire()
    found = await wire.call(FindCoordinatorRequest(key="g"))
    assert (found.error_code, found.host, found.port) == (0, "broker.example", 1234)


async def test_a_transactional_id_has_a_coordinator_and_other_keys_have_none(broker: Harness) -> None:
    wire = await broker.wire()
    found = await wire.call(FindCoordinatorRequest(key="tx", key_type=1))
    assert (found.error_code, found.node_id, found.port) == (0, 0, broker.port)
    found = await wire.call(FindCoordinatorRequest(key="tx", key_type=7))
    assert (found.error_code, found.node_id, found.port) == (ErrorCode.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize("version", [4, 5, 6])
async def test_several_coordinators_at_once(broker: Harness, version: int) -> None:
    wire = await broker.wire()
    found = await wire.call(FindCoordinatorRequest(coordinator_keys=["a", "b"]), version)
    assert [(row.key, row.error_code, row.port) for row in found.coordinators] == [
        ("a", 0, broker.port),
        ("b", 0, broker.port),
    ]
    assert (await wire.call(FindCoordinatorRequest(coordinator_keys=[]), version)).coordinators == []


async def test_there_is_no_coordinator_of_share_groups(broker: Harness) -> None:
    wire = await broker.wire()
    found = await wire.call(FindCoordinatorRequest(coordinator_keys=["g:id:0"], key_type=2), 6)
    (row,) = found.coordinators
    assert (row.key, row.error_code, row.node_id) == ("g:id:0", ErrorCode.INVALID_REQUEST, -1)


async def test_kip814_returning_leader_skips_the_assignment(broker: Harness) -> None:
    first, _ = await enter_two(broker, instance="yes")
    first.member_id = ""
    joined = await k11_join_group.handle(first.join_request(), context(broker, 9))
    assert joined.skip_assignment
    assert joined.leader == joined.member_id
    assert (joined.protocol_type, len(joined.members)) == ("consumer", 2)


async def test_heartbeat_of_an_old_version(broker: Harness) -> None:
    one = await member(broker)
    await one.enter()
    request = HeartbeatRequest(group_id="g", generation_id=one.generation, member_id=one.member_id)
    assert (await one.wire.call(request, 0)).error_code == 0


def context(broker: Harness, api_version: int) -> RequestContext:
    """For versions that are served but not advertised."""
    assert broker.node is not None
    return RequestContext(broker.node.broker, api_version, "wire", "127.0.0.1", "PLAINTEXT")
