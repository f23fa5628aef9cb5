"""What the commands say of groups of the consumer protocol (KIP-848) at a real broker, step by step."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from broker.consumers import Consumer, settle
from broker.harness import Harness
from broker.wire import Wire
from semel.admin import Admin, ConsumerGroupDescription, NewTopic
from semel.cli.group.members import members_of, members_table
from semel.cli.shared.reconciliation import steps_of, words
from semel.cli.stuck.group import _find_out, diagnosis, facts_of, is_stuck
from semel.errors import GroupSubscribedToTopicError, NonEmptyGroup, UnknownMemberIdError
from semel.structs import OffsetAndMetadata, TopicPartition
from support.against import OutsideBroker


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
        yield admin


def member(wire: Wire, name: str, instance: str | None = None, **fields: str) -> Consumer:
    return Consumer(wire, name, topics=("flights",), instance=instance, **fields)  # type: ignore[arg-type]


async def described(admin: Admin) -> ConsumerGroupDescription:
    (group,) = await admin.describe_consumer_groups(["g"])
    return group


async def to_do(admin: Admin) -> dict[str, str]:
    group = await described(admin)
    names = {each.member_id: each.name for each in group.members}
    return {names[member_id]: words(steps) for member_id, steps in steps_of(group).items()}


async def stuck_lines(admin: Admin) -> tuple[bool, str]:
    found = await _find_out(admin, "g", 0.1)
    return is_stuck(found), "\n".join(line.plain for line in diagnosis(found, 0))


async def test_each_step_of_a_rebalance_is_told_in_words(admin: Admin, wire: Wire) -> None:
    a, b = member(wire, "a"), member(wire, "b")
    await a.beat()
    assert await to_do(admin) == {"a": "up to date"}
    await b.beat()
    waits = "waits for flights 2-3, which a has not given up yet"
    assert await to_do(admin) == {"a": "has to give up flights 2-3", "b": waits}
    await a.beat()  # a knows now, and its description has the other two partitions alone
    group = await described(admin)
    assert [len(each.assignment) for each in group.members] == [2, 0]
    assert await to_do(admin) == {"a": "has to give up flights 2-3", "b": waits}
    await a.beat()
    assert await to_do(admin) == {"a": "up to date", "b": "gets flights 2-3 with its next heartbeat"}
    await b.beat()
    assert await to_do(admin) == {"a": "up to date", "b": "up to date"}


async def test_a_member_that_does_not_give_up_is_why_a_group_is_stuck(admin: Admin, wire: Wire) -> None:
    a, b = member(wire, "a"), member(wire, "b")
    await a.beat()
    assert await stuck_lines(admin) == (False, "g  Stable, 1 member\n  4 partitions: empty, nothing committed yet.")
    await b.beat()
    await a.beat()
    is_trouble, said = await stuck_lines(admin)
    assert is_trouble
    assert "Reconciling" in said
    assert "flights 2-3: a has not given up what b waits for." in said
    assert "Brokers do not say since when" in said
    facts = facts_of(await _find_out(admin, "g", 0.1))
    assert facts["not_given_up"] == [{"partitions": ["flights-2", "flights-3"], "held_by": ["a"], "waits": "b"}]
    assert (facts["protocol"], facts["group_epoch"], facts["assignment_epoch"]) == ("consumer", 2, 2)
    await settle(a, b)
    assert (await stuck_lines(admin))[0] is False


async def test_a_static_member_that_is_away_keeps_its_partitions_and_is_named(admin: Admin, wire: Wire) -> None:
    a, b = member(wire, "a", "one"), member(wire, "b", "two")
    await settle(a, b)
    held = [f"flights-{index}" for index in a.partitions]
    await a.leave(-2)
    assert (await to_do(admin))["one"] == "away; flights 0-1 wait for it until its session ends"
    is_trouble, said = await stuck_lines(admin)
    assert not is_trouble  # nothing is left to read
    assert "one is a static member and away; flights 0-1 wait for it until its session ends." in said
    assert facts_of(await _find_out(admin, "g", 0.1))["away"] == [{"member": "one", "partitions": held}]


async def test_a_group_whose_epoch_is_ahead_waits_for_its_assignment(admin: Admin, wire: Wire) -> None:
    a, b = member(wire, "a"), member(wire, "b")
    await settle(a, b)
    await b.leave()
    assert (await described(admin)).state == "Assigning"
    assert await to_do(admin) == {"a": "waits for the assignment of epoch 3"}
    is_trouble, said = await stuck_lines(admin)
    assert is_trouble
    assert "group epoch 3, assignment epoch 2: the coordinator makes an assignment at a heartbeat" in said


async def test_members_are_described_with_all_that_the_broker_says(admin: Admin, wire: Wire) -> None:
    a = member(wire, "a", "one", regex="fl.*")
    await a.beat(rack_id="r1")
    group = await described(admin)
    assert (group.group_type, group.protocol_type, group.protocol) == ("consumer", "consumer", "uniform")
    assert (group.state, group.group_epoch, group.assignment_epoch) == ("Stable", 1, 1)
    (facts,) = members_of(group)
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
        "epoch": 1,
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
