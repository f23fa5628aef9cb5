"""A member whose removal is being stored is no member any more: no answer may extend its session."""

from __future__ import annotations

import asyncio

import pytest
from broker.groups.consumer.test_stored_groups import beat, code_of
from broker.groups.desk import Desk, breathe
from broker.groups.test_migration import mixed, sync
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
