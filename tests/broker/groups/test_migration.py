"""Groups that change their protocol, and the log: a change is durable as a whole, or it has not happened."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from broker.groups.consumer.test_stored_groups import beat, code_of
from broker.groups.group_broker import GroupBroker, breathe
from semel_broker.answers import CloseConnectionError
from semel_broker.groups.classic.group import GroupState
from semel_broker.groups.consumer.model import CONSUMER, Classic, ConsumerGroup, Member, SetMember
from semel_broker.groups.consumer.records import change_of, rows
from semel_broker.groups.embedded import assignment_of, encoded_assignment, owned_by, subscription_of
from semel_broker.groups.group import Group
from semel_broker.groups.offsets.model import CommittedOffset, OffsetRecord
from semel_broker.groups.requests import Join, Joined, Sync
from semel_broker.scheduling.parting import Parting
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.internal_topics import decode_offsets_key
from support.embedded import encoded_subscription

PLACE = ("t", 0)


async def join(
    group_broker: GroupBroker, member_id: str = "", *, owned: bool = False, parting: Parting | None = None
) -> Joined:
    ask = Join(
        member_id=member_id,
        new_member_id="old",
        instance_id=None,
        client_id="c",
        client_host="/h",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(("range", encoded_subscription(1, ["t"], [PLACE] if owned else [])),),
    )
    return await group_broker.ask.join("g", ask, parting)


async def sync(
    group_broker: GroupBroker, joined: Joined, protocol: str = "range"
) -> tuple[tuple[str, int], ...] | None:
    ask = Sync(
        member_id=joined.member_id,
        instance_id=None,
        generation_id=joined.generation_id,
        protocol_type="consumer",
        protocol=protocol,
        assignments={joined.member_id: encoded_assignment(1, [PLACE])},
    )
    return assignment_of((await group_broker.ask.sync("g", ask)).assignment)


async def group_of(group_broker: GroupBroker) -> Group:
    return (await group_broker.groups.shard("g")).groups["g"]


async def classic(group_broker: GroupBroker) -> Joined:
    """A stable classic group with one member."""
    joined = await join(group_broker)
    assert await sync(group_broker, joined) == (PLACE,)
    return joined


async def mixed(group_broker: GroupBroker) -> tuple[Joined, int]:
    """A stable consumer group of two members. The classic one has the only partition."""
    await classic(group_broker)
    await beat(group_broker, "new")
    joined = await join(group_broker, "old", owned=True)
    assert await sync(group_broker, joined) == (PLACE,)
    return joined, (await beat(group_broker, "new", joined.generation_id)).epoch


@pytest.fixture
async def group_broker() -> object:
    group_broker = await GroupBroker().open()
    yield group_broker
    await group_broker.close()


async def test_a_coordinator_that_dies_during_an_upgrade_has_the_old_group_or_the_new_one(
    group_broker: GroupBroker,
) -> None:
    for seed in range(6):
        joined = await classic(group_broker)
        group_broker.disk.hold_syncs()
        task = asyncio.create_task(beat(group_broker, "new"))
        await breathe()
        await group_broker.lose_power(Random(seed))
        assert task.done()
        group = await group_of(group_broker)
        if group.of(ConsumerGroup) is None:
            assert list(group.membership.members) == ["old"]
            assert group.membership.state_name == GroupState.STABLE.value
        else:
            assert sorted(group.membership.members) == ["new", "old"]
        await group_broker.commit({0: 5}, member_id="old", generation=joined.generation_id)
        await group_broker.ask.leave("g", [("old", None), ("new", None)])
        await group_broker.lose_power()


async def test_a_late_commit_is_refused_when_the_group_has_changed_its_protocol(group_broker: GroupBroker) -> None:
    joined = await classic(group_broker)

    async def commit(offset: int, connection: int) -> None:
        record = OffsetRecord("t", 0, CommittedOffset(offset, topic_id=group_broker.topics.required("t").topic_id))
        await group_broker.ask.commit(
            "g", [record], member_id="old", generation_id=joined.generation_id, connection=connection
        )

    await commit(12, connection=7)
    await beat(group_broker, "new")
    with pytest.raises(CloseConnectionError):
        await commit(8, connection=3)
    await commit(13, connection=7)
    assert await group_broker.offset() == 13


async def test_a_classic_member_is_served_while_the_upgrade_is_under_way(group_broker: GroupBroker) -> None:
    joined = await classic(group_broker)
    group_broker.disk.hold_syncs()
    upgrading = asyncio.create_task(beat(group_broker, "new"))
    await breathe()
    await group_broker.ask.heartbeat("g", joined.generation_id, "old", None)
    rejoining = asyncio.create_task(join(group_broker, "old", owned=True))
    assert await code_of(sync(group_broker, joined)) is ErrorCode.REBALANCE_IN_PROGRESS
    committing = asyncio.create_task(group_broker.commit({0: 5}, member_id="old", generation=joined.generation_id))
    await breathe()
    assert (upgrading.done(), rejoining.done()) == (False, False)
    group_broker.disk.release_syncs()
    place = await upgrading
    await committing
    again = await rejoining
    assert (again.generation_id, again.leader, place.assigned) == (place.epoch, "", frozenset())
    assert await sync(group_broker, again) == (PLACE,)
    assert await group_broker.offset() == 5


@pytest.mark.parametrize("ends", ["upgrade", "downgrade"])
async def test_a_change_of_protocol_that_is_not_stored_has_not_happened(
    group_broker: GroupBroker, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    joined, epoch = (await classic(group_broker), 0) if ends == "upgrade" else await mixed(group_broker)
    shard = await group_broker.groups.shard("g")
    partition = shard.host.journal._partition

    def refuse(*args: object, **kwargs: object) -> None:
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few replicas")

    with monkeypatch.context() as patch:
        patch.setattr(partition, "append", refuse)
        failing = beat(group_broker, "new") if ends == "upgrade" else beat(group_broker, "new", -1)
        assert await code_of(failing) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    group = await group_of(group_broker)
    await group_broker.ask.heartbeat("g", joined.generation_id, "old", None)
    await group_broker.commit({0: 5}, member_id="old", generation=joined.generation_id)
    if ends == "upgrade":
        assert (group.membership.state_name, group.changing_to) == (GroupState.STABLE.value, "")
        assert (await beat(group_broker, "new")).epoch == joined.generation_id + 1
    else:
        assert (await beat(group_broker, "new", epoch)).epoch == epoch
        await beat(group_broker, "new", -1)
        assert list(group.membership.members) == ["old"]


async def test_a_joining_member_that_disconnects_during_an_upgrade_leaves_no_record_behind_it() -> None:
    """Such a record (of an empty classic group) would bring the group back after its deletion, at the next load."""
    group_broker = await GroupBroker().open()
    await classic(group_broker)
    await group_broker.ask.leave("g", [("old", None)])
    group_broker.settings["group.initial.rebalance.delay.ms"] = "3000"
    await group_broker.restart()
    parting = Parting()
    joining = asyncio.create_task(join(group_broker, parting=parting))
    await breathe()
    journal = (await group_broker.groups.shard("g")).host.journal
    end_offset = journal.end_offset
    upgrade = asyncio.create_task(beat(group_broker, "new"))
    while journal.end_offset == end_offset:
        await breathe(1)
    assert not upgrade.done()
    parting.end()
    await upgrade
    assert await code_of(joining) is ErrorCode.UNKNOWN_MEMBER_ID
    assert list((await group_of(group_broker)).membership.members) == ["new"]
    await beat(group_broker, "new", -1)
    await group_broker.ask.delete_group("g")
    await group_broker.restart()
    assert await group_broker.ask.group("g") is None
    await group_broker.close()


async def test_a_joining_member_that_disconnects_during_an_upgrade_that_fails_is_not_waited_for() -> None:
    group_broker = await GroupBroker(group_initial_rebalance_delay_ms="3000").open()
    parting = Parting()
    joining = asyncio.create_task(join(group_broker, parting=parting))
    await breathe()
    group = await group_of(group_broker)
    group.changing_to = CONSUMER
    assert group.lock.take()
    parting.end()
    assert list(group.membership.members) == ["old"]
    (await group_broker.groups.shard("g")).host.unlock(group)
    assert not group.membership.members
    assert await code_of(joining) is ErrorCode.UNKNOWN_MEMBER_ID
    await group_broker.close()


async def test_a_client_that_disconnects_while_it_waits_for_its_group_does_not_join_it(
    group_broker: GroupBroker,
) -> None:
    await mixed(group_broker)
    group_broker.disk.hold_syncs()
    third = asyncio.create_task(beat(group_broker, "third"))
    await breathe()
    parting = Parting()
    joining = asyncio.create_task(join(group_broker, parting=parting))
    await breathe()
    parting.end()
    group_broker.disk.release_syncs()
    await third
    assert await code_of(joining) is ErrorCode.UNKNOWN_MEMBER_ID
    assert sorted((await group_of(group_broker)).membership.members) == ["new", "old", "third"]


async def test_a_session_ends_though_its_group_was_about_to_be_upgraded(group_broker: GroupBroker) -> None:
    await classic(group_broker)
    group = await group_of(group_broker)
    group.changing_to = "consumer"
    group_broker.monotonic_s += 11
    shard = await group_broker.groups.shard("g")
    assert shard.host.check_deadline(("g", "old"), int(group_broker.monotonic_s * 1000)) is not None, (
        "it is checked again"
    )
    group.changing_to = ""
    assert shard.host.check_deadline(("g", "old"), int(group_broker.monotonic_s * 1000)) is None
    assert group.membership.members == {}


async def test_a_group_is_not_deleted_while_its_first_member_joins(group_broker: GroupBroker) -> None:
    await group_broker.commit({0: 5})
    group_broker.disk.hold_syncs()
    joining = asyncio.create_task(beat(group_broker, "new"))
    await breathe()
    deleting = asyncio.create_task((await group_broker.groups.shard("g")).delete_group("g"))
    await breathe()
    group_broker.disk.release_syncs()
    assert (await joining).epoch == 1
    assert await code_of(deleting) is ErrorCode.NON_EMPTY_GROUP
    assert (await beat(group_broker, "new", 1)).epoch == 1


async def test_two_members_that_upgrade_at_once_are_in_one_group(group_broker: GroupBroker) -> None:
    await classic(group_broker)
    places = await asyncio.gather(beat(group_broker, "new"), beat(group_broker, "newer"))
    assert sorted(place.epoch for place in places) == [2, 3]
    group = (await group_of(group_broker)).of(ConsumerGroup)
    assert group is not None
    assert sorted(group.members) == ["new", "newer", "old"]


async def test_sync_with_another_assignor_than_the_member_has_is_refused(group_broker: GroupBroker) -> None:
    joined, _ = await mixed(group_broker)
    assert await code_of(sync(group_broker, joined, "sticky")) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_a_partition_that_a_cooperative_member_may_still_be_revoking_waits_for_it(
    group_broker: GroupBroker,
) -> None:
    """Its last JoinGroup claimed the partition, and its generation has taken it away."""
    joined = await join(group_broker, owned=True)
    ask = Sync(
        member_id="old",
        instance_id=None,
        generation_id=joined.generation_id,
        protocol_type=None,
        protocol=None,
        assignments={"old": encoded_assignment(1, [])},
    )
    await group_broker.ask.sync("g", ask)
    assert (await beat(group_broker, "new")).assigned == frozenset()
    again = await join(group_broker, "old", owned=True)
    assert await sync(group_broker, again) == ()
    assert (await beat(group_broker, "new", 2, owned=frozenset())).assigned in (None, frozenset())
    await join(group_broker, "old")
    group = (await group_of(group_broker)).of(ConsumerGroup)
    assert group is not None
    assert group.has_reached_target("old")


async def test_a_classic_member_commits_at_its_last_generation_what_only_it_can_have(group_broker: GroupBroker) -> None:
    await classic(group_broker)
    await beat(group_broker, "new")
    joined = await join(group_broker, "old", owned=True)
    await group_broker.commit({0: 5}, member_id="old", generation=joined.generation_id - 1)
    refused = group_broker.commit({1: 5}, member_id="old", generation=joined.generation_id - 1)
    assert await code_of(refused) is ErrorCode.ILLEGAL_GENERATION
    assert await code_of(group_broker.commit({0: 6}, member_id="old", generation=0)) is ErrorCode.ILLEGAL_GENERATION
    assert await group_broker.offset() == 5
    assert await sync(group_broker, joined) == (PLACE,)
    late = group_broker.commit({0: 6}, member_id="old", generation=joined.generation_id - 1)
    assert await code_of(late) is ErrorCode.ILLEGAL_GENERATION


async def test_a_member_that_joins_while_its_group_is_deleted_begins_it_anew(group_broker: GroupBroker) -> None:
    joined = await classic(group_broker)
    await group_broker.ask.leave("g", [(joined.member_id, None)])
    await group_broker.commit({0: 5})
    group_broker.disk.hold_syncs()
    deleting = asyncio.create_task(group_broker.ask.delete_group("g"))
    await breathe()
    joining = asyncio.create_task(beat(group_broker, "new"))
    await breathe()
    group_broker.disk.release_syncs()
    await deleting
    assert (await joining).epoch == 1
    assert list((await group_of(group_broker)).membership.members) == ["new"]
    assert await group_broker.offset() == -1


def test_records_of_classic_members_are_read_back() -> None:
    member = Member(member_id="m", topics=("t",), classic=Classic(6000, (("range", b"a"), ("sticky", b"b"))))
    change = SetMember("m", member)
    ((raw_key, raw_value),) = rows("g", [change])
    key = decode_offsets_key(raw_key)
    assert key is not None
    assert change_of(key, raw_value) == change  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [b"", b"all", b"\0\1\x7f\xff\xff\xff", b"\0\1\0\0\0\1\0\x05t", b"\xff\xff\0\0\0\0"])
def test_metadata_that_is_no_subscription_is_not_read(data: bytes) -> None:
    assert subscription_of(data) is None


def test_subscriptions_of_every_version_are_read() -> None:
    topics = b"\0\0\0\1\0\1t"
    owned = b"\0\0\0\1\0\1t\0\0\0\2\0\0\0\0\0\0\0\3"
    for version, rest in ((0, b""), (1, owned), (2, owned + b"\0\0\0\7"), (3, owned + b"\0\0\0\7\0\1r"), (9, b"")):
        tail = rest or (owned + b"\0\0\0\7\xff\xffmore" if version == 9 else b"")
        found = subscription_of(version.to_bytes(2, "big") + topics + b"\xff\xff\xff\xff" + tail)
        assert found is not None
        assert found.topics == ["t"]
        assert owned_by(found) == ((("t", 0), ("t", 3)) if version else ())
        assert found.rack_id == ("r" if version == 3 else None)
