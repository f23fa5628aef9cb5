"""A member whose removal is being stored is no member any more: no answer may extend its session."""

from __future__ import annotations

import asyncio

import pytest
from broker.groups.consumer.test_stored_groups import beat, code_of
from broker.groups.desk import Desk, breathe
from broker.groups.test_migration import classic, mixed, sync
from semel_protocol.errors import ErrorCode, KafkaError

SESSION_S = 46  # longer than group.consumer.session.timeout.ms and the session timeouts of classic members


@pytest.fixture
async def desk() -> object:
    desk = await Desk().open()
    yield desk
    await desk.close()


async def end_session(desk: Desk, member_id: str, others: dict[str, int]) -> None:
    """Let the session of a member end, and hold the record of its removal. The `others` continue at these epochs."""
    desk.monotonic_s += SESSION_S
    for other, epoch in others.items():
        await beat(desk, other, epoch)
    desk.disk.hold_syncs()
    shard = await desk.groups.shard("g")
    assert shard._check_deadline(("g", member_id), int(desk.monotonic_s * 1000)) is None
    await breathe()


@pytest.mark.proves("heartbeat-during-a-removal")
async def test_a_heartbeat_during_the_removal_is_answered_after_it(desk: Desk) -> None:
    """It was answered without an error at once, and the member continued with partitions that another one got."""
    await beat(desk, "a")
    other = (await beat(desk, "b")).epoch
    epoch = (await beat(desk, "a", 1, owned=frozenset())).epoch
    await end_session(desk, "a", {"b": other})
    late = asyncio.create_task(beat(desk, "a", epoch))
    await breathe()
    assert not late.done()
    desk.disk.release_syncs()
    assert await code_of(late) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_classic_member_gets_an_error_during_its_removal(desk: Desk) -> None:
    joined, epoch = await mixed(desk)
    await end_session(desk, "old", {"new": epoch})
    late = desk.ask.heartbeat("g", joined.generation_id, "old", None)
    assert await code_of(late) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await code_of(sync(desk, joined)) is ErrorCode.UNKNOWN_MEMBER_ID
    desk.disk.release_syncs()


@pytest.mark.proves("heartbeat-during-a-removal")
async def test_a_heartbeat_of_a_member_that_an_administrator_removes_is_answered_after_that(desk: Desk) -> None:
    epoch = (await beat(desk, "a")).epoch
    desk.disk.hold_syncs()
    leaving = asyncio.create_task(desk.ask.leave("g", [("a", None)]))
    await breathe()
    late = asyncio.create_task(beat(desk, "a", epoch))
    await breathe()
    assert not late.done()
    desk.disk.release_syncs()
    assert await leaving == [ErrorCode.NONE]
    assert await code_of(late) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_member_whose_removal_cannot_be_stored_continues(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    epoch = (await beat(desk, "a")).epoch
    shard = await desk.groups.shard("g")

    def refuse(*args: object, **kwargs: object) -> None:
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few replicas")

    with monkeypatch.context() as patch:
        patch.setattr(shard._journal._partition, "append", refuse)
        desk.monotonic_s += SESSION_S
        assert shard._check_deadline(("g", "a"), int(desk.monotonic_s * 1000)) is None
        await breathe()
    assert (await beat(desk, "a", epoch)).epoch == epoch
    desk.monotonic_s += 1.1  # the next attempt finds that the session has been renewed
    assert shard._check_deadline(("g", "a"), int(desk.monotonic_s * 1000)) is not None


async def session_s(desk: Desk, member_id: str, step_s: float = 0.5) -> float:
    """How long after now the member is removed, if it does nothing any more."""
    shard, begin_s = await desk.groups.shard("g"), desk.monotonic_s
    while (group := shard.groups.get("g")) is not None and member_id in (
        group.members if group.consumer is None else group.consumer.members
    ):
        desk.monotonic_s += step_s
        shard._check_deadline(("g", member_id), int(desk.monotonic_s * 1000))
        await breathe()
    return desk.monotonic_s - begin_s


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
    """The former one answers heartbeats until it knows that it is deposed: at the latest when its own session with the
    cluster's store has ended. The member took its session from there, and another one got its partitions here."""
    desk = await Desk(**settings).open()
    epoch = (await beat(desk, "a")).epoch
    await desk.restart()
    if beats:
        await beat(desk, "a", epoch)
    assert await session_s(desk, "a") == pytest.approx(45 + grace_s, abs=1)
    await beat(desk, "b")
    assert await session_s(desk, "b") == pytest.approx(45, abs=1)
    await desk.close()


async def test_after_a_load_a_classic_session_lasts_as_long() -> None:
    desk = await Desk(**IN_CLUSTER).open()
    joined = await classic(desk)
    await desk.restart()
    assert await session_s(desk, joined.member_id) == pytest.approx(10 + 7, abs=1)
    await desk.close()
