"""Groups that change their protocol while they have members (KIP-848, migration), over the wire in both directions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker.conftest import StartBroker
from broker.consumers import HeartbeatingMember, settle
from broker.harness import Harness, Wire
from broker.members import WireMember
from semel_broker.groups.embedded import assignment_of, encoded_assignment
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k11_join_group import JoinGroupRequestProtocol
from semel_protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupRequestMember
from semel_protocol.messages.k16_list_groups import ListGroupsRequest
from semel_protocol.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest
from support.embedded import encoded_subscription

SETTINGS = {
    "group_consumer_min_session_timeout_ms": "1000",
    "group_consumer_session_timeout_ms": "3000",
    "group_consumer_min_heartbeat_interval_ms": "100",
    "group_consumer_heartbeat_interval_ms": "500",
    "group_initial_rebalance_delay_ms": "0",
}
ALL = [0, 1, 2, 3, 4, 5]


@pytest.fixture
async def broker(start_broker: StartBroker) -> Harness:
    broker = await start_broker(durability="fsync", **SETTINGS)
    await (await broker.wire()).create_topic("t", 6)
    return broker


class ClassicConsumer(WireMember):
    """A consumer of the classic protocol. `owned`: the partitions of t that it reads now.

    Eager members own nothing while they join. Cooperative ones revoke after SyncGroup and join again.
    """

    def __init__(self, wire: Wire, *, cooperative: bool = False, **settings: Any) -> None:
        super().__init__(wire, **settings)
        self.cooperative = cooperative
        self.owned: list[int] = []
        self.leads = False

    def join_request(self, **fields: Any) -> Any:
        owned = [("t", partition) for partition in self.owned]
        metadata = encoded_subscription(1, self.topics, owned)
        name = "cooperative-sticky" if self.cooperative else "range"
        protocols = [JoinGroupRequestProtocol(name=name, metadata=metadata)]
        return super().join_request(**{"protocols": protocols, **fields})

    async def enter_with(self, *members: ClassicConsumer, shares: dict[str, list[int]] | None = None) -> int:
        """Send JoinGroup and SyncGroup; return the error code.

        A leader gives each member its `shares`, by default all to itself.
        """
        if not self.cooperative:
            self.owned = []
        joined = await self.join()
        if joined.error_code:
            return int(joined.error_code)
        self.leads = joined.leader == self.member_id
        return await self.synced(shares)

    async def synced(self, shares: dict[str, list[int]] | None = None) -> int:
        given = shares if shares is not None else {self.member_id: ALL}
        rows = {member: encoded_assignment(1, [("t", at) for at in share]) for member, share in given.items()}
        answer = await self.sync(rows if self.leads else None)
        if answer.error_code:
            return int(answer.error_code)
        places = assignment_of(answer.assignment)
        assert places is not None
        partitions = sorted(partition for _, partition in places)
        must_revoke = self.cooperative and not set(self.owned) <= set(partitions)
        self.owned = partitions
        return await self.enter_with() if must_revoke else 0

    async def beat(self) -> int:
        """Send a heartbeat, and join again if the answer asks for it."""
        code = await self.heartbeat()
        return await self.enter_with() if code == ErrorCode.REBALANCE_IN_PROGRESS else code


async def old_member(broker: Harness, **settings: Any) -> ClassicConsumer:
    return ClassicConsumer(await broker.wire(), **settings)


async def new_member(broker: Harness, member_id: str, **settings: Any) -> HeartbeatingMember:
    return HeartbeatingMember(await broker.wire(), member_id, **settings)


async def rounds(*members: ClassicConsumer | HeartbeatingMember, count: int = 6) -> None:
    """Send heartbeats of all members in turn, and check that no partition ever has two owners."""
    for _ in range(count):
        for member in members:
            assert await member.beat() in (0, ErrorCode.REBALANCE_IN_PROGRESS)
            read = [
                at for each in members for at in (each.owned if isinstance(each, ClassicConsumer) else each.partitions)
            ]
            assert len(read) == len(set(read)), read


async def type_of(wire: Wire) -> tuple[str, str]:
    (row,) = (await wire.call(ListGroupsRequest(), 5)).groups
    return row.group_type, row.group_state


async def describe(wire: Wire) -> Any:
    request = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
    return (await wire.call(request, 1)).groups[0]


# --- upgrade ---


@pytest.mark.parametrize("cooperative", [False, True])
async def test_a_classic_group_takes_members_of_the_consumer_protocol(broker: Harness, cooperative: bool) -> None:
    one = await old_member(broker, cooperative=cooperative)
    assert await one.enter_with() == 0
    assert one.owned == ALL
    assert await one.commit({0: 5}) == [0]
    two = await new_member(broker, "new")
    assert await two.beat() == 0
    assert (two.partitions, await type_of(two.wire)) == ([], ("consumer", "Reconciling"))
    assert await one.commit({0: 6}) == [0], "the member is at its generation, and commits what it has read"
    assert await one.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    await rounds(one, two)
    assert len(one.owned) == len(two.partitions) == 3
    assert await type_of(two.wire) == ("consumer", "Stable")
    found = await describe(two.wire)
    assert {row.member_id: row.member_type for row in found.members} == {one.member_id: 0, "new": 1}
    assert await one.commit({one.owned[0]: 7}) == [0]
    one.generation -= 1
    assert await one.commit({one.owned[0]: 8}) == [ErrorCode.ILLEGAL_GENERATION]


async def test_a_rolling_upgrade_ends_in_a_group_of_the_consumer_protocol(broker: Harness) -> None:
    one = await old_member(broker)
    assert await one.enter_with() == 0
    two = await new_member(broker, "b")
    await rounds(one, two)
    assert (await one.leave()).members[0].error_code == 0
    await settle(two)
    assert two.partitions == ALL
    three = await new_member(broker, "c")
    await settle(two, three)
    assert len(two.partitions) == len(three.partitions) == 3
    assert {row.member_type for row in (await describe(two.wire)).members} == {1}


async def test_a_classic_member_that_waits_for_its_generation_is_served_in_the_new_protocol(broker: Harness) -> None:
    one, late = await old_member(broker), await old_member(broker)
    assert await one.enter_with() == 0
    waiting = asyncio.create_task(late.join())
    await asyncio.sleep(0.1)
    two = await new_member(broker, "b")
    assert await two.beat() == 0
    assert ((await waiting).error_code, (await waiting).leader) == (0, "")
    assert await late.synced() in (0, ErrorCode.REBALANCE_IN_PROGRESS)
    await rounds(one, two, late)
    assert [len(one.owned), len(two.partitions), len(late.owned)] == [2, 2, 2]


async def test_a_static_member_changes_its_protocol_both_ways(broker: Harness) -> None:
    one, two = await old_member(broker, instance="i"), await new_member(broker, "b")
    assert await one.enter_with() == 0
    again = await new_member(broker, "a", instance="i")
    assert await again.beat() == 0
    assert again.partitions == ALL, "the next incarnation takes over at once"
    assert await one.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    await settle(again, two)
    held = again.partitions
    assert await again.leave(-2) == 0
    back = await old_member(broker, instance="i")
    assert await back.enter_with() == 0
    assert back.owned == held
    await rounds(back, two)
    assert back.owned == held, "nothing moves"


async def test_members_of_both_protocols_continue_after_a_restart(broker: Harness) -> None:
    one, two = await old_member(broker), await new_member(broker, "b")
    assert await one.enter_with() == 0
    await rounds(one, two)
    owned = one.owned, two.partitions
    await broker.restart()
    one.wire, two.wire = await broker.wire(), await broker.wire()
    assert await one.heartbeat() == 0
    assert await two.beat() == 0
    await rounds(one, two)
    assert (one.owned, two.partitions) == owned
    assert await one.commit({owned[0][0]: 5}) == [0]


async def test_a_silent_classic_member_is_removed_after_its_own_session(broker: Harness) -> None:
    one, two = await old_member(broker), await new_member(broker, "b")
    assert await one.enter_with() == 0
    await rounds(one, two)
    for second in range(12):
        await asyncio.sleep(1)
        assert await two.beat() == 0
        assert len(two.partitions) == (3 if second < 9 else 6) or second in (9, 10), second
    assert await one.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("stops_at", ["join", "sync"])
async def test_a_classic_member_that_does_not_finish_its_rebalance_is_removed(broker: Harness, stops_at: str) -> None:
    one, two = await old_member(broker), await new_member(broker, "b")
    assert (await one.join(session_timeout_ms=30_000, rebalance_timeout_ms=5_000)).error_code == 0
    one.leads = True
    assert await one.synced() == 0
    assert await two.beat() == 0
    if stops_at == "sync":
        one.owned = []
        assert (await one.join(session_timeout_ms=30_000, rebalance_timeout_ms=5_000)).error_code == 0
    for _ in range(7):
        await one.heartbeat()
        assert await two.beat() == 0
        await asyncio.sleep(1)
    assert await one.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    await settle(two)
    assert two.partitions == ALL or await type_of(two.wire) == ("consumer", "Stable")


async def test_a_group_whose_members_are_no_consumers_is_not_upgraded(broker: Harness) -> None:
    connect = WireMember(await broker.wire())
    joined = await connect.join(protocol_type="connect")
    assert joined.error_code == 0
    two = await new_member(broker, "b")
    assert await two.beat() == ErrorCode.GROUP_ID_NOT_FOUND
    opaque = WireMember(await broker.wire(), "opaque")
    await opaque.enter()
    three = await new_member(broker, "c", group="opaque")
    assert await three.beat() == ErrorCode.GROUP_ID_NOT_FOUND
    assert await opaque.heartbeat() == 0


async def test_a_consumer_group_takes_only_consumers_with_a_common_assignor(broker: Harness) -> None:
    one, two = await new_member(broker, "a"), await old_member(broker)
    assert await one.beat() == 0
    stranger = await two.join(protocol_type="connect")
    assert stranger.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert await two.enter_with() == 0
    other = await old_member(broker, cooperative=True)
    assert (await other.join()).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# --- downgrade ---


@pytest.mark.parametrize("cooperative", [False, True])
@pytest.mark.parametrize("leaves", [True, False])
async def test_the_last_member_of_the_consumer_protocol_leaves_a_classic_group(
    broker: Harness, cooperative: bool, leaves: bool
) -> None:
    one, two = await new_member(broker, "a"), await old_member(broker, cooperative=cooperative)
    assert await one.beat() == 0
    assert await two.enter_with() == 0
    await rounds(one, two)
    held = two.owned
    assert len(held) == 3
    if leaves:
        assert await one.leave() == 0
    else:
        for _ in range(4):
            await asyncio.sleep(1)
            await two.heartbeat()
    assert await type_of(two.wire) == ("classic", "PreparingRebalance")
    assert await two.commit({held[0]: 7}) == [0], "commits of the generation that it knows"
    assert await two.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert await two.enter_with() == 0
    assert (two.leads, two.owned) == (True, ALL)
    assert await two.heartbeat() == 0
    await broker.restart()
    two.wire = await broker.wire()
    assert await two.heartbeat() == 0
    assert await type_of(two.wire) == ("classic", "Stable")


async def test_a_member_that_lags_behind_at_the_downgrade_keeps_its_generation(broker: Harness) -> None:
    one, two, three = await new_member(broker, "a"), await old_member(broker), await new_member(broker, "c")
    assert await one.beat() == 0
    assert await two.enter_with() == 0
    await rounds(one, two)
    held = two.owned
    await three.beat()
    assert await three.leave() == 0
    assert await one.leave() == 0
    assert await type_of(two.wire) == ("classic", "PreparingRebalance")
    assert await two.commit({held[0]: 7}) == [0]
    assert await two.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert await two.enter_with() == 0
    assert two.owned == ALL


async def test_a_coordinator_that_moves_after_the_downgrade_has_the_members_join(broker: Harness) -> None:
    one, two = await new_member(broker, "a"), await old_member(broker)
    assert await one.beat() == 0
    assert await two.enter_with() == 0
    await rounds(one, two)
    assert await one.leave() == 0
    await broker.restart()
    two.wire = await broker.wire()
    assert await type_of(two.wire) == ("classic", "PreparingRebalance")
    assert await two.commit({two.owned[0]: 7}) == [0]
    assert await two.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert await two.enter_with() == 0
    assert two.owned == ALL


async def test_a_static_member_that_returns_as_the_last_classic_one_makes_the_group_classic(broker: Harness) -> None:
    one = await new_member(broker, "a", instance="i")
    assert await one.beat() == 0
    assert await one.leave(-2) == 0
    two = await old_member(broker, instance="i")
    assert await two.enter_with() in (0, ErrorCode.REBALANCE_IN_PROGRESS)
    assert (await type_of(two.wire))[0] == "classic"
    assert await two.enter_with() == 0
    assert two.owned == ALL


# --- administrators ---


async def test_an_administrator_removes_members_of_both_protocols(broker: Harness) -> None:
    one, two = await new_member(broker, "a", instance="i"), await old_member(broker, instance="j")
    three = await new_member(broker, "c")
    assert await one.beat() == 0
    assert await two.enter_with() == 0
    await rounds(one, two, three)
    rows = [("", "i"), ("c", None), ("", "nothing"), ("wrong", "j"), ("stranger", None)]
    members = [LeaveGroupRequestMember(member_id=name, group_instance_id=instance) for name, instance in rows]
    answer = await two.wire.call(LeaveGroupRequest(group_id="g", members=members))
    assert [(row.member_id, row.group_instance_id, row.error_code) for row in answer.members] == [
        ("", "i", 0),
        ("c", None, 0),
        ("", "nothing", ErrorCode.UNKNOWN_MEMBER_ID),
        ("wrong", "j", ErrorCode.FENCED_INSTANCE_ID),
        ("stranger", None, ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    assert (await type_of(two.wire))[0] == "classic", "the last members of the consumer protocol are gone"
    await rounds(two)
    assert two.owned == ALL


async def test_a_removed_member_of_the_consumer_protocol_joins_again(broker: Harness) -> None:
    one, two = await new_member(broker, "a"), await new_member(broker, "b", instance="i")
    await settle(one, two)
    members = [LeaveGroupRequestMember(member_id="", group_instance_id="i")]
    answer = await one.wire.call(LeaveGroupRequest(group_id="g", members=members))
    assert answer.members[0].error_code == 0
    assert await two.beat() == ErrorCode.UNKNOWN_MEMBER_ID
    await settle(one)
    assert one.partitions == ALL


# --- the policy ---


@pytest.mark.parametrize(
    ("policy", "upgrades", "downgrades"),
    [("disabled", False, False), ("upgrade", True, False), ("downgrade", False, True), ("bidirectional", True, True)],
)
async def test_the_policy_allows_each_way(
    start_broker: StartBroker, policy: str, upgrades: bool, downgrades: bool
) -> None:
    broker = await start_broker(durability="os", group_consumer_migration_policy=policy, **SETTINGS)
    await (await broker.wire()).create_topic("t", 6)
    one, two = await old_member(broker), await new_member(broker, "b")
    assert await one.enter_with() == 0
    assert await two.beat() == (0 if upgrades else ErrorCode.GROUP_ID_NOT_FOUND)
    if not upgrades:
        await one.leave()
        one.member_id = ""
        assert await two.beat() == 0
        assert await one.enter_with() == 0
    await rounds(one, two)
    assert await two.leave() == 0
    assert (await type_of(one.wire))[0] == ("classic" if downgrades else "consumer")
    await rounds(one)
    assert one.owned == ALL
