"""Consumer groups and the log: each answered change is durable, and requests of one group do not interleave."""

from __future__ import annotations

import asyncio

import pytest
from broker.groups.group_broker import GroupBroker
from semel_broker.coordination.errors import for_version
from semel_broker.groups.consumer.model import ConsumerGroup
from semel_broker.groups.consumer.requests import Heartbeat, HeartbeatAnswer
from semel_protocol.api_key import ApiKey
from semel_protocol.errors import ErrorCode, KafkaError


async def beat(
    group_broker: GroupBroker, member_id: str, epoch: int = 0, group: str = "g", **fields: object
) -> HeartbeatAnswer:
    full: dict[str, object] = (
        {"rebalance_timeout_ms": 1000, "topics": ("t",), "owned": frozenset()} if not epoch else {}
    )
    shard = await group_broker.groups.shard(group)
    ask = Heartbeat(member_id=member_id, epoch=epoch, **{**full, **fields})  # type: ignore[arg-type]
    return await shard.consumers.heartbeat(group, ask)


async def code_of(awaitable: object) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        await awaitable  # type: ignore[misc]
    return refused.value.code


@pytest.fixture
async def group_broker() -> object:
    group_broker = await GroupBroker().open()
    yield group_broker
    await group_broker.close()


async def test_an_answered_heartbeat_survives_a_power_failure(group_broker: GroupBroker) -> None:
    first = await beat(group_broker, "a")
    await group_broker.commit({0: 5}, member_id="a", generation=first.epoch)
    await group_broker.lose_power()
    assert await beat(group_broker, "a", first.epoch) == HeartbeatAnswer(member_id="a", epoch=first.epoch)
    assert await group_broker.offset() == 5
    await group_broker.commit({0: 6}, member_id="a", generation=first.epoch)


async def test_members_that_join_at_once_get_one_epoch_each(group_broker: GroupBroker) -> None:
    places = await asyncio.gather(*(beat(group_broker, name) for name in "abc"))
    assert sorted(place.epoch for place in places) == [1, 2, 3]
    group = (await group_broker.groups.shard("g")).groups["g"].of(ConsumerGroup)
    assert group is not None
    assert (group.epoch, group.assignment_epoch, sorted(group.members)) == (3, 3, ["a", "b", "c"])


async def test_a_refused_heartbeat_leaves_no_group_behind(group_broker: GroupBroker) -> None:
    assert await code_of(beat(group_broker, "a", assignor="none")) is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert await code_of(beat(group_broker, "a", epoch=3)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert (await group_broker.groups.shard("g")).groups == {}


async def test_a_stopping_coordinator_answers_the_heartbeats_that_wait() -> None:
    group_broker = await GroupBroker().open()
    joining = [asyncio.create_task(beat(group_broker, name)) for name in "abc"]
    await asyncio.sleep(0)
    await group_broker.groups.close()
    for task in joining:
        try:
            await task
        except KafkaError as error:
            assert error.code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR), error  # noqa: PT017
    assert all(task.done() for task in joining)
    await group_broker.close()


async def test_only_a_member_at_its_epoch_commits_in_a_transaction(group_broker: GroupBroker) -> None:
    place = await beat(group_broker, "a")
    await group_broker.hold({0: 5}, member_id="a", generation=place.epoch)
    await group_broker.hold({0: 6})  # without a member, as before KIP-447
    assert await code_of(group_broker.hold({0: 7}, member_id="b", generation=1)) is ErrorCode.UNKNOWN_MEMBER_ID
    stale = await code_of(group_broker.hold({0: 7}, member_id="a", generation=place.epoch + 1))
    assert stale is ErrorCode.STALE_MEMBER_EPOCH
    for code in (stale, ErrorCode.GROUP_ID_NOT_FOUND):
        assert for_version(KafkaError(code, ""), ApiKey.TXN_OFFSET_COMMIT, 5).code is ErrorCode.ILLEGAL_GENERATION
        assert for_version(KafkaError(code, ""), ApiKey.TXN_OFFSET_COMMIT, 6).code is code


@pytest.mark.parametrize("is_known", [False, True], ids=["no group", "empty classic group"])
async def test_a_client_that_names_itself_commits_before_it_joins(group_broker: GroupBroker, is_known: bool) -> None:
    """librdkafka makes member ids itself with `group.protocol=consumer` (KIP-1082), and sends them with all commits.
    As in Kafka, a commit without a generation is one of a simple consumer while the group has no members."""
    if is_known:
        left = await group_broker.enter()
        await group_broker.ask.leave("g", [(left.member_id, None)])
    await group_broker.commit({0: 5}, member_id="self-made")
    await group_broker.hold({1: 6}, member_id="self-made")
    await group_broker.end()
    assert (await group_broker.offset(0), await group_broker.offset(1)) == (5, 6)
    await group_broker.enter()
    assert await code_of(group_broker.commit({0: 7}, member_id="self-made")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await code_of(group_broker.hold({1: 7}, member_id="self-made")) is ErrorCode.UNKNOWN_MEMBER_ID
