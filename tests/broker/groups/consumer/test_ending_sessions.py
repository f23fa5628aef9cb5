"""A member with a removal under way is no longer a member: no answer may extend its session."""

from __future__ import annotations

import asyncio

import pytest
from broker.groups.consumer.test_stored_groups import beat, code_of
from broker.groups.group_broker import GroupBroker, breathe
from broker.groups.test_migration import classic, mixed, sync
from semel_protocol.errors import ErrorCode, KafkaError

SESSION_S = 46  # longer than group.consumer.session.timeout.ms and the session timeouts of classic members


@pytest.fixture
async def group_broker() -> object:
    group_broker = await GroupBroker().open()
    yield group_broker
    await group_broker.close()


async def end_session(group_broker: GroupBroker, member_id: str, others: dict[str, int]) -> None:
    """End the session of a member and hold the record of its removal. The `others` continue at these epochs."""
    group_broker.monotonic_s += SESSION_S
    for other, epoch in others.items():
        await beat(group_broker, other, epoch)
    group_broker.disk.hold_syncs()
    shard = await group_broker.groups.shard("g")
    assert shard.host.check_deadline(("g", member_id), int(group_broker.monotonic_s * 1000)) is None
    await breathe()


@pytest.mark.proves("heartbeat-during-a-removal")
async def test_a_heartbeat_during_the_removal_is_answered_after_it(group_broker: GroupBroker) -> None:
    """An immediate success would let the member continue with partitions that another member gets."""
    await beat(group_broker, "a")
    other = (await beat(group_broker, "b")).epoch
    epoch = (await beat(group_broker, "a", 1, owned=frozenset())).epoch
    await end_session(group_broker, "a", {"b": other})
    late = asyncio.create_task(beat(group_broker, "a", epoch))
    await breathe()
    assert not late.done()
    group_broker.disk.release_syncs()
    assert await code_of(late) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_classic_member_gets_an_error_during_its_removal(group_broker: GroupBroker) -> None:
    joined, epoch = await mixed(group_broker)
    await end_session(group_broker, "old", {"new": epoch})
    late = group_broker.ask.heartbeat("g", joined.generation_id, "old", None)
    assert await code_of(late) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await code_of(sync(group_broker, joined)) is ErrorCode.UNKNOWN_MEMBER_ID
    group_broker.disk.release_syncs()


@pytest.mark.proves("heartbeat-during-a-removal")
async def test_a_heartbeat_of_a_member_that_an_administrator_removes_is_answered_after_that(
    group_broker: GroupBroker,
) -> None:
    epoch = (await beat(group_broker, "a")).epoch
    group_broker.disk.hold_syncs()
    leaving = asyncio.create_task(group_broker.ask.leave("g", [("a", None)]))
    await breathe()
    late = asyncio.create_task(beat(group_broker, "a", epoch))
    await breathe()
    assert not late.done()
    group_broker.disk.release_syncs()
    assert await leaving == [ErrorCode.NONE]
    assert await code_of(late) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_member_whose_removal_cannot_be_stored_continues(
    group_broker: GroupBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = (await beat(group_broker, "a")).epoch
    shard = await group_broker.groups.shard("g")

    def refuse(*args: object, **kwargs: object) -> None:
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few replicas")

    with monkeypatch.context() as patch:
        patch.setattr(shard.host.journal._partition, "append", refuse)
        group_broker.monotonic_s += SESSION_S
        assert shard.host.check_deadline(("g", "a"), int(group_broker.monotonic_s * 1000)) is None
        await breathe()
    assert (await beat(group_broker, "a", epoch)).epoch == epoch
    group_broker.monotonic_s += 1.1  # the next attempt finds that the session has been renewed
    assert shard.host.check_deadline(("g", "a"), int(group_broker.monotonic_s * 1000)) is not None


async def session_s(group_broker: GroupBroker, member_id: str, step_s: float = 0.5) -> float:
    """The seconds from now until the member is removed if it sends nothing more."""
    shard, begin_s = await group_broker.groups.shard("g"), group_broker.monotonic_s
    while (group := shard.groups.get("g")) is not None and member_id in group.membership.members:
        group_broker.monotonic_s += step_s
        shard.host.check_deadline(("g", member_id), int(group_broker.monotonic_s * 1000))
        await breathe()
    return group_broker.monotonic_s - begin_s


IN_CLUSTER = {
    "etcd_endpoints": "http://127.0.0.1:1",
    "broker_session_timeout_ms": "7000",
    "offsets_topic_replication_factor": "1",
}


@pytest.mark.proves("session-at-a-new-coordinator")
@pytest.mark.parametrize(("settings", "grace_s"), [({}, 0), (IN_CLUSTER, 7)])
@pytest.mark.parametrize("beats", [False, True])
async def test_after_a_load_a_session_lasts_while_a_former_coordinator_may_extend_it(
    settings: dict[str, str], grace_s: float, beats: bool
) -> None:
    """A former coordinator answers heartbeats until its own session with the store has ended.

    A member may have extended its session there, so the new coordinator must not give its partitions to another member
    earlier.
    """
    group_broker = await GroupBroker(**settings).open()
    epoch = (await beat(group_broker, "a")).epoch
    await group_broker.restart()
    if beats:
        await beat(group_broker, "a", epoch)
    assert await session_s(group_broker, "a") == pytest.approx(45 + grace_s, abs=1)
    await beat(group_broker, "b")
    assert await session_s(group_broker, "b") == pytest.approx(45, abs=1)
    await group_broker.close()


async def test_after_a_load_a_classic_session_lasts_as_long() -> None:
    group_broker = await GroupBroker(**IN_CLUSTER).open()
    joined = await classic(group_broker)
    await group_broker.restart()
    assert await session_s(group_broker, joined.member_id) == pytest.approx(10 + 7, abs=1)
    await group_broker.close()
