"""The commands about groups of the consumer protocol (KIP-848) against a real broker, step by step."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from broker.consumers import HeartbeatingMember, settle
from broker.harness import Harness
from broker.wire import Wire
from client.consuming import until
from semel._texts import spoken
from semel.admin import Admin, ConsumerGroupDescription, NewTopic
from semel.cli.group.commands import members_table
from semel.diagnose import diagnose_group, group_findings_facts, group_lines, is_stuck
from semel.diagnose.groups import _member_facts
from semel.diagnose.reconciliation import is_unassigned, steps_of, words
from semel.errors import GroupSubscribedToTopicError, NonEmptyGroup, UnknownMemberIdError
from semel.structs import OffsetAndMetadata, TopicPartition
from support.against import OutsideBroker

pytestmark = pytest.mark.semel_only("Kafka 4.4 makes an assignment some time after the heartbeat that asks for it")


@pytest.fixture
async def wire(broker: Harness | OutsideBroker) -> AsyncIterator[Wire]:
    made = await Wire.connect(broker.port)
    yield made
    await made.close()


@pytest.fixture
async def admin(bootstrap: str, wire: Wire) -> AsyncIterator[Admin]:
    """With the topic `flights` of four partitions."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic("flights", 4)])
        await admin.find_coordinator("g")

        async def is_known() -> bool:  # Kafka's broker follows its controller
            return "flights" in await admin.list_topics()

        await until(is_known)
        yield admin


def member(wire: Wire, name: str, instance: str | None = None, **fields: str) -> HeartbeatingMember:
    return HeartbeatingMember(wire, name, topics=("flights",), instance=instance, **fields)  # type: ignore[arg-type]


async def described(admin: Admin) -> ConsumerGroupDescription:
    (group,) = await admin.describe_consumer_groups(["g"])
    return group


async def to_do(admin: Admin) -> dict[str, str]:
    group = await described(admin)
    names = {each.member_id: each.name for each in group.members}
    return {names[member_id]: words(steps) for member_id, steps in steps_of(group).items()}


async def reach(admin: Admin, expected: dict[str, str], *beating: HeartbeatingMember) -> None:
    """Send heartbeats of these members until the commands print this. Kafka computes assignments a moment later."""

    async def is_said() -> bool:
        if await to_do(admin) == expected:
            return True
        await settle(*beating, rounds=1)
        return False

    await until(is_said)


async def stable(admin: Admin, *members: HeartbeatingMember) -> None:
    await reach(admin, {each.instance or each.member_id: "up to date" for each in members}, *members)


async def moving(admin: Admin, a: HeartbeatingMember, b: HeartbeatingMember) -> str:
    """The partitions that move from `a`, which has all, to `b`, which joins."""
    await stable(admin, a)
    await b.beat()

    async def is_assigned() -> bool:
        await b.beat()
        return not is_unassigned(await described(admin))

    await until(is_assigned)
    (found,) = [each for each in (await described(admin)).members if each.member_id == b.member_id]
    assert len(found.target_assignment or ()) == 2
    return spoken(found.target_assignment or ())


async def stuck_lines(admin: Admin) -> tuple[bool, str]:
    found = await diagnose_group(admin, "g", 0.1)
    return is_stuck(found), "\n".join(line.plain for line in group_lines(found, 0))


async def test_each_step_of_a_rebalance_is_described(admin: Admin, wire: Wire) -> None:
    a, b = member(wire, "a"), member(wire, "b")
    await a.beat()
    moved = await moving(admin, a, b)
    waits = f"waits for {moved}, which a has not given up yet"
    assert await to_do(admin) == {"a": f"has to give up {moved}", "b": waits}
    await a.beat()  # a knows now, and its description has the other two partitions alone
    group = await described(admin)
    assert {each.member_id: len(each.assignment) for each in group.members} == {"a": 2, "b": 0}
    assert await to_do(admin) == {"a": f"has to give up {moved}", "b": waits}
    await a.beat()
    assert await to_do(admin) == {"a": "up to date", "b": f"gets {moved} with its next heartbeat"}
    await b.beat()
    assert await to_do(admin) == {"a": "up to date", "b": "up to date"}


async def test_a_member_that_does_not_give_up_is_why_a_group_is_stuck(admin: Admin, wire: Wire) -> None:
    a, b = member(wire, "a"), member(wire, "b")
    await a.beat()
    await stable(admin, a)
    assert await stuck_lines(admin) == (False, "g  Stable, 1 member\n  4 partitions: empty, nothing committed yet.")
    moved = await moving(admin, a, b)
    await a.beat()
    is_trouble, said = await stuck_lines(admin)
    assert is_trouble
    assert "Reconciling" in said
    assert f"{moved}: a has not given up what b waits for." in said
    assert "Brokers do not say since when" in said
    facts = group_findings_facts(await diagnose_group(admin, "g", 0.1))
    (block,) = facts["not_given_up"]
    assert (block["held_by"], block["waits"], len(block["partitions"])) == (["a"], "b", 2)
    assert (facts["protocol"], facts["group_epoch"]) == ("consumer", facts["assignment_epoch"])
    await stable(admin, a, b)
    assert (await stuck_lines(admin))[0] is False


async def test_a_static_member_that_is_away_keeps_its_partitions_and_is_named(admin: Admin, wire: Wire) -> None:
    a, b = member(wire, "a", "one"), member(wire, "b", "two")
    await a.beat()
    await b.beat()
    await stable(admin, a, b)
    held = [TopicPartition("flights", index) for index in a.partitions]
    assert len(held) == 2
    await a.leave(-2)
    away = f"away; {spoken(held)} wait for it until its session ends"
    assert (await to_do(admin))["one"] == away
    is_trouble, said = await stuck_lines(admin)
    assert not is_trouble  # nothing is left to read
    assert f"one is a static member and {away}." in said
    names = [f"flights-{at.partition}" for at in held]
    assert group_findings_facts(await diagnose_group(admin, "g", 0.1))["away"] == [
        {"member": "one", "partitions": names}
    ]


async def test_a_group_whose_epoch_is_ahead_waits_for_its_assignment(admin: Admin, wire: Wire) -> None:
    a, b = member(wire, "a"), member(wire, "b")
    await a.beat()
    await b.beat()
    await stable(admin, a, b)
    before = await described(admin)
    await b.leave()
    group = await described(admin)
    assert group.state == "Assigning"
    assert (group.group_epoch or 0) - 1 == group.assignment_epoch == before.group_epoch
    assert await to_do(admin) == {"a": f"waits for the assignment of epoch {group.group_epoch}"}
    is_trouble, said = await stuck_lines(admin)
    assert is_trouble
    epochs = f"group epoch {group.group_epoch}, assignment epoch {group.assignment_epoch}"
    assert f"{epochs}: the coordinator makes an assignment at a heartbeat" in said


async def test_members_are_described_with_all_that_the_broker_says(admin: Admin, wire: Wire) -> None:
    a = member(wire, "a", "one", regex="fl.*")
    await a.beat(rack_id="r1")
    await stable(admin, a)
    group = await described(admin)
    assert (group.group_type, group.protocol_type, group.protocol) == ("consumer", "consumer", "uniform")
    assert (group.state, group.group_epoch) == ("Stable", group.assignment_epoch)
    silent_ms = group.members[0].silent_ms
    assert silent_ms is not None
    assert 0 <= silent_ms < 45_000, "its session would have ended"
    (facts,) = _member_facts(group)
    places = [f"flights-{index}" for index in range(4)]
    assert facts | {"client_id": "", "host": ""} == {
        "member": "a",
        "instance_id": "one",
        "client_id": "",
        "host": "",
        "rack": "r1",
        "protocol": "consumer",
        "topics": ["flights"],
        "pattern": "fl.*",
        "epoch": group.group_epoch,
        "assigned": places,
        "target": places,
        "to_do": "up to date",
        "has_to_give_up": [],
        "may_have_to_give_up": [],
        "waits_for": [],
    }
    lines = [line.plain for line in members_table(group).lines(80)]
    assert all(len(line) <= 80 for line in lines)
    assert any("flights, pattern fl.*" in line for line in lines)


async def test_offsets_and_groups_are_refused_by_name_while_there_are_members(admin: Admin, wire: Wire) -> None:
    a = member(wire, "a")
    await a.beat()
    await a.commit({0: 0}, topic="flights")
    at = TopicPartition("flights", 0)
    with pytest.raises(NonEmptyGroup, match="Stop the group's members first"):
        await admin.delete_consumer_groups(["g"])
    with pytest.raises(GroupSubscribedToTopicError):
        await admin.delete_consumer_group_offsets("g", [at])
    with pytest.raises(UnknownMemberIdError):
        await admin.alter_consumer_group_offsets("g", {at: OffsetAndMetadata(0, "")})
    await a.leave()
    await admin.alter_consumer_group_offsets("g", {at: OffsetAndMetadata(0, "")})
    await admin.delete_consumer_group_offsets("g", [at])
    await admin.delete_consumer_groups(["g"])
    assert (await described(admin)).state == "Dead"
