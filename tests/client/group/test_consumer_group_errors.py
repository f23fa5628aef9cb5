"""A member of the consumer protocol and the errors of its scripted coordinator. The group has only this member."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from client.consuming import tp, until
from client.group.test_group_errors import COMMIT, HANG_UP, ListenerEvents, ScriptedCoordinator
from semel import TopicPartition
from semel.consumer import Consumer
from semel.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    GroupMaxSizeReachedError,
    KafkaError,
    UnsupportedAssignorError,
    UnsupportedVersionError,
)
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k03_metadata import MetadataRequest, MetadataResponse
from semel_protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from semel_protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from semel_protocol.schema import ZERO_UUID

BEAT, COMMITTED, METADATA = 68, 9, 3
TOPIC_ID = b"t" * 16
ANSWER_LOST = -101
"""In `refusals`: the heartbeat is applied, and the connection is closed instead of an answer."""


class ScriptedGroup(ScriptedCoordinator):
    """`assigned`: the partitions of the member at `epoch`.

    `nameless`: the number of Metadata answers without the topic's id.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.versions |= {COMMIT: (0, 9), COMMITTED: (0, 9)}
        self.epoch = 1
        self.assigned = [0, 1]
        self.nameless = 0
        self.answers |= {BEAT: self.beat, METADATA: self.metadata}

    async def beat(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse | None:
        code = self.refusal(BEAT)
        if code > 0:
            return ConsumerGroupHeartbeatResponse(error_code=code, error_message="scripted")
        if code == ANSWER_LOST:
            self.epoch += 1
            return None
        row = ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=TOPIC_ID, partitions=self.assigned)
        says = request.member_epoch != self.epoch or request.rebalance_timeout_ms >= 0
        return ConsumerGroupHeartbeatResponse(
            member_id=request.member_id or "given",
            member_epoch=self.epoch if request.member_epoch >= 0 else request.member_epoch,
            heartbeat_interval_ms=20,
            assignment=ConsumerGroupHeartbeatResponseAssignment(topic_partitions=[row]) if says else None,
        )

    async def metadata(self, request: MetadataRequest) -> MetadataResponse:
        rows = request.topics or []
        by_id = [row for row in rows if row.topic_id == TOPIC_ID]
        if by_id and self.nameless:
            self.nameless -= 1
            return MetadataResponse()
        for row in by_id:
            row.name = "t"
        answer = await super().metadata(request)
        for topic in answer.topics:
            topic.topic_id = TOPIC_ID
        return answer

    async def fetch_committed(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        if not request.groups:
            return await super().fetch_committed(request)
        (group,) = request.groups
        whole = await super().fetch_committed(OffsetFetchRequest(topics=group.topics))
        rows = OffsetFetchResponseGroup(group_id=group.group_id, topics=whole.topics)
        return OffsetFetchResponse(groups=[rows])


@pytest.fixture
async def coordinator() -> AsyncIterator[ScriptedGroup]:
    async with ScriptedGroup() as broker:
        yield broker


def member_of(broker: ScriptedGroup, listener: ListenerEvents | None = None, **settings: Any) -> Consumer:
    merged = {
        "group_id": "g",
        "group_protocol": "consumer",
        "retry_backoff_ms": 5,
        "reconnect_backoff_ms": 5,
        "fetch_max_wait_ms": 50,
        **settings,
    }
    consumer = Consumer(bootstrap_servers=broker.address, **merged)
    consumer.subscribe(["t"], listener=listener)
    return consumer


def epochs(coordinator: ScriptedGroup) -> list[int]:
    return [request.member_epoch for request in coordinator.seen(BEAT)]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        HANG_UP,
    ],
)
async def test_a_join_with_an_error_that_passes_is_repeated_as_the_same_member(
    coordinator: ScriptedGroup, code: int
) -> None:
    coordinator.refusals[BEAT] += [code, code]
    async with member_of(coordinator) as consumer:
        assert len(consumer.assignment()) == 2
        assert epochs(coordinator)[:3] == [0, 0, 0]
        assert len({request.member_id for request in coordinator.seen(BEAT)}) == 1
        assert consumer.assignment() == {tp(0), tp(1)}


@pytest.mark.proves("slow-first-join")
async def test_a_start_that_takes_longer_than_max_poll_interval_is_no_want_of_polls(coordinator: ScriptedGroup) -> None:
    """The application waits for its first assignment, so it cannot ask for records."""
    coordinator.refusals[BEAT] += [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 6
    consumer = member_of(coordinator, retry_backoff_ms=50, max_poll_interval_ms=100, rebalance_timeout_ms=100)
    async with asyncio.timeout(10), consumer:
        assert consumer.assignment() == {tp(0), tp(1)}


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationFailedError),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, GroupMaxSizeReachedError),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, UnsupportedAssignorError),
        (ErrorCode.FENCED_INSTANCE_ID, FencedInstanceIdError),
    ],
)
async def test_a_final_error_is_raised_by_start_with_the_words_of_the_broker(
    coordinator: ScriptedGroup, code: ErrorCode, error: type[KafkaError]
) -> None:
    coordinator.refusals[BEAT].append(code)
    with pytest.raises(error, match="group 'g': scripted"):
        await member_of(coordinator).start()


async def test_a_broker_that_refuses_the_protocol_is_named_with_what_to_do(coordinator: ScriptedGroup) -> None:
    coordinator.refusals[BEAT].append(ErrorCode.UNSUPPORTED_VERSION)
    with pytest.raises(UnsupportedVersionError, match="group_protocol='classic'"):
        await member_of(coordinator).start()


async def test_a_broker_without_the_protocol_is_named_with_what_to_do(coordinator: ScriptedGroup) -> None:
    del coordinator.versions[BEAT]
    with pytest.raises(UnsupportedVersionError, match="group_protocol='classic'"):
        await member_of(coordinator).start()


async def test_a_final_error_is_raised_by_every_later_call(coordinator: ScriptedGroup) -> None:
    async with member_of(coordinator) as consumer:
        coordinator.refusals[BEAT].append(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        for _ in range(2):
            with pytest.raises(GroupAuthorizationFailedError):
                await asyncio.wait_for(consumer.getone(), 5)
        await until(lambda: consumer.assignment() == frozenset())


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND]
)
async def test_a_removed_member_loses_its_partitions_without_a_commit_and_joins_with_epoch_0(
    coordinator: ScriptedGroup, code: ErrorCode
) -> None:
    listener = ListenerEvents()
    async with member_of(coordinator, listener) as consumer:
        member = coordinator.seen(BEAT)[0].member_id
        await until(lambda: epochs(coordinator)[-1] == 1)
        coordinator.refusals[BEAT].append(code)
        await until(lambda: listener.calls == ["assigned", "lost", "assigned"])
        assert consumer.assignment() == {tp(0), tp(1)}
        assert epochs(coordinator).count(0) == 2
        again = [request for request in coordinator.seen(BEAT) if request.member_epoch == 0][-1]
        assert (again.member_id, again.topic_partitions) == (member, [])
        assert not coordinator.seen(COMMIT)


async def test_a_lost_answer_is_repeated_with_everything_and_costs_no_partition(coordinator: ScriptedGroup) -> None:
    listener = ListenerEvents()
    async with member_of(coordinator, listener):
        await until(lambda: epochs(coordinator)[-1] == 1)
        coordinator.refusals[BEAT].append(ANSWER_LOST)
        await until(lambda: epochs(coordinator)[-1] == 2)
        full = [request for request in coordinator.seen(BEAT) if request.rebalance_timeout_ms >= 0][-1]
        assert full.member_epoch == 1
        assert [row.partitions for row in full.topic_partitions] == [[0, 1]]
        assert "lost" not in listener.calls
        assert "revoked" not in listener.calls


async def test_a_revocation_is_acknowledged_before_the_interval_ends(coordinator: ScriptedGroup) -> None:
    listener = ListenerEvents()
    async with member_of(coordinator, listener) as consumer:
        coordinator.assigned, coordinator.epoch = [0], 2
        await until(lambda: consumer.assignment() == {tp(0)})
        await until(lambda: any(_owned(request) == [0] for request in coordinator.seen(BEAT)))
        assert "revoked" in listener.calls


def _owned(request: ConsumerGroupHeartbeatRequest) -> list[int] | None:
    return [index for row in request.topic_partitions for index in row.partitions] if request.topic_partitions else None


async def test_an_assigned_topic_that_metadata_does_not_know_yet_waits(coordinator: ScriptedGroup) -> None:
    coordinator.nameless = 3
    async with member_of(coordinator) as consumer:
        await until(lambda: consumer.assignment() == {tp(0), tp(1)})
        assert coordinator.nameless == 0
        assert epochs(coordinator).count(0) == 1, "it stays a member meanwhile"


@pytest.mark.proves("assignment-not-adopted")
async def test_partitions_are_named_as_owned_before_the_listener_gets_them(coordinator: ScriptedGroup) -> None:
    """Otherwise the coordinator may take them away again while the listener runs, because the member never reported
    them.
    """

    class WaitingListener(ListenerEvents):
        async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:  # type: ignore[override]
            await until(lambda: any(_owned(request) == [0, 1] for request in coordinator.seen(BEAT)))
            self.calls.append("assigned")

    listener = WaitingListener()
    async with member_of(coordinator, listener) as consumer:
        assert listener.calls == ["assigned"]
        assert not consumer._group.listener_errors


@pytest.mark.proves("assignment-not-adopted")
async def test_an_assignment_that_leaves_what_the_member_owns_is_acknowledged(coordinator: ScriptedGroup) -> None:
    """The new partitions have no topic name and are removed again.

    The coordinator waits for an acknowledgement; without one it would remove the member after the rebalance timeout.
    """
    coordinator.nameless = 1_000_000
    consumer = member_of(coordinator)
    starting = asyncio.create_task(consumer.start())
    await until(lambda: epochs(coordinator)[-1:] == [1])
    coordinator.assigned, coordinator.epoch = [], 2
    await until(lambda: any(_acknowledges(request, epoch=2) for request in coordinator.seen(BEAT)))
    await starting
    await consumer.stop()


def _acknowledges(request: ConsumerGroupHeartbeatRequest, *, epoch: int) -> bool:
    return request.member_epoch == epoch and request.topic_partitions is not None


async def test_an_assigned_topic_is_asked_for_by_id(coordinator: ScriptedGroup) -> None:
    async with member_of(coordinator):
        rows = [row for request in coordinator.seen(METADATA) for row in request.topics]
        assert [row for row in rows if row.topic_id != ZERO_UUID]


async def test_commits_and_committed_offsets_carry_the_member_epoch(coordinator: ScriptedGroup) -> None:
    coordinator.epoch = 5
    async with member_of(coordinator, group_instance_id="s") as consumer:
        member = coordinator.seen(BEAT)[0].member_id
        await consumer.position(tp(0))
        await consumer.commit({tp(0): 1})
    commit = coordinator.seen(COMMIT)[0]
    assert (commit.generation_id_or_member_epoch, commit.member_id, commit.group_instance_id) == (5, member, "s")
    (group,) = coordinator.seen(COMMITTED)[0].groups
    assert (group.member_epoch, group.member_id) == (5, member)
    assert {version for key, version, _ in coordinator.requests if key in (COMMIT, COMMITTED)} == {9}


async def test_a_commit_with_a_stale_epoch_is_repeated_after_a_heartbeat(coordinator: ScriptedGroup) -> None:
    async with member_of(coordinator) as consumer:
        coordinator.refusals[COMMIT].append(ErrorCode.STALE_MEMBER_EPOCH)
        before = len(coordinator.seen(BEAT))
        await consumer.commit({tp(0): 1})
        assert len(coordinator.seen(COMMIT)) == 2
        assert len(coordinator.seen(BEAT)) > before


async def test_a_commit_with_a_stale_epoch_fails_when_the_partition_has_moved(coordinator: ScriptedGroup) -> None:
    async with member_of(coordinator) as consumer:
        coordinator.refusals[COMMIT].append(ErrorCode.STALE_MEMBER_EPOCH)
        coordinator.assigned, coordinator.epoch = [0], 2
        with pytest.raises(CommitFailedError, match="moved"):
            await consumer.commit({tp(1): 1})


async def test_a_commit_of_a_member_that_is_unknown_fails_and_it_joins_again(coordinator: ScriptedGroup) -> None:
    listener = ListenerEvents()
    async with member_of(coordinator, listener) as consumer:
        coordinator.refusals[COMMIT].append(ErrorCode.UNKNOWN_MEMBER_ID)
        with pytest.raises(CommitFailedError):
            await consumer.commit({tp(0): 1})
        await until(lambda: listener.calls == ["assigned", "lost", "assigned"])


async def test_stale_committed_offsets_are_asked_for_again(coordinator: ScriptedGroup) -> None:
    coordinator.refusals[COMMITTED] += [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID]
    coordinator.committed = 2
    async with member_of(coordinator) as consumer:
        assert await consumer.position(tp(0)) == 2


async def test_version_0_of_the_heartbeat_gives_the_member_id_and_has_no_pattern(coordinator: ScriptedGroup) -> None:
    coordinator.versions[BEAT] = (0, 0)
    consumer = member_of(coordinator)
    consumer.subscribe(pattern="t")
    async with consumer:
        await until(lambda: epochs(coordinator)[-1] == 1)
    first, second = coordinator.seen(BEAT)[:2]
    assert (first.member_id, first.subscribed_topic_names) == ("", ["t"])
    assert second.member_id == "given"


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("s", -2)])
async def test_stop_leaves_the_group(coordinator: ScriptedGroup, instance: str | None, epoch: int) -> None:
    async with member_of(coordinator, group_instance_id=instance):
        pass
    assert epochs(coordinator)[-1] == epoch
    assert epochs(coordinator).count(epoch) == 1


async def test_a_member_that_is_removed_while_its_listener_revokes_joins_without_partitions(
    coordinator: ScriptedGroup,
) -> None:
    class RevokedWhileRemoved(ListenerEvents):
        async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:  # type: ignore[override]
            self.calls.append("revoked")
            coordinator.refusals[BEAT].append(ErrorCode.UNKNOWN_MEMBER_ID)
            await asyncio.sleep(1)

    listener = RevokedWhileRemoved()
    async with member_of(coordinator, listener) as consumer:
        coordinator.assigned, coordinator.epoch = [0], 2
        await until(lambda: "lost" in listener.calls)
        await until(lambda: epochs(coordinator)[-1] == 2)
        joins = [request for request in coordinator.seen(BEAT) if request.member_epoch == 0]
        assert [request.topic_partitions for request in joins] == [[], []]
        assert consumer.assignment() == {tp(0)}
