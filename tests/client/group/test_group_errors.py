"""The reaction of a member to each error of its scripted coordinator. The group has only this member."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from typing import Any

import pytest
from client.consuming import tp, until
from client.fake_broker import FakeBroker
from semel import ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition
from semel.consumer import Consumer
from semel.errors import (
    CommitFailedError,
    GroupAuthorizationFailedError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    OffsetMetadataTooLargeError,
)
from semel_protocol.consumer_protocol import Subscription, encode_embedded
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k01_fetch import FetchRequest, FetchResponse
from semel_protocol.messages.k02_list_offsets import (
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from semel_protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from semel_protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from semel_protocol.messages.k10_find_coordinator import FindCoordinatorResponse
from semel_protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from semel_protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from semel_protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse
from semel_protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse

FETCH, LIST, COMMIT, COMMITTED, FIND, JOIN, HEARTBEAT, LEAVE, SYNC = 1, 2, 8, 9, 10, 11, 12, 13, 14
HANG_UP = -100
"""In `refusals`: the connection is closed instead of an answer."""


class ScriptedCoordinator(FakeBroker):
    """Answers as a group of one member would be; `refusals[api key]` are error codes for the next requests."""

    def __init__(self, **settings: Any) -> None:
        super().__init__({"t": 2}, **settings)
        self.refusals: dict[int, deque[int]] = defaultdict(deque)
        self.generation = 0
        self.skip_assignment = False
        self.committed = -1
        self.mute: defaultdict[int, int] = defaultdict(int)
        self.answers |= {
            FETCH: self.fetch, LIST: self.list_offsets, COMMIT: self.commit, COMMITTED: self.fetch_committed,
            FIND: self.find, JOIN: self.join, HEARTBEAT: self.heartbeat, LEAVE: self.leave, SYNC: self.sync,
        }  # fmt: skip

    def refusal(self, api_key: int) -> int:
        code = self.refusals[api_key].popleft() if self.refusals[api_key] else 0
        if code == HANG_UP:
            raise ConnectionError
        return code

    def left_out(self, api_key: int) -> int:
        """The number of partitions of a topic that are missing in this answer."""
        self.mute[api_key] -= 1
        return 1 if self.mute[api_key] >= 0 else 0

    async def find(self, _: Any) -> FindCoordinatorResponse:
        code = self.refusal(FIND)
        return FindCoordinatorResponse(error_code=code, node_id=-1 if code else 0, host="127.0.0.1", port=self.port)

    async def join(self, request: JoinGroupRequest) -> JoinGroupResponse:
        if code := self.refusal(JOIN):
            member_id = "given" if code == ErrorCode.MEMBER_ID_REQUIRED else request.member_id
            return JoinGroupResponse(error_code=code, member_id=member_id)
        self.generation += 1
        member_id = request.member_id or f"m{self.generation}"
        chosen = request.protocols[0]
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_name=chosen.name,
            leader=member_id,
            skip_assignment=self.skip_assignment,
            member_id=member_id,
            members=[JoinGroupResponseMember(member_id=member_id, metadata=chosen.metadata)],
        )

    async def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        if code := self.refusal(SYNC):
            return SyncGroupResponse(error_code=code)
        return SyncGroupResponse(assignment=request.assignments[0].assignment if request.assignments else b"")

    async def heartbeat(self, _: HeartbeatRequest) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=self.refusal(HEARTBEAT))

    async def leave(self, _: LeaveGroupRequest) -> LeaveGroupResponse:
        return LeaveGroupResponse(error_code=self.refusal(LEAVE))

    async def commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        code = self.refusal(COMMIT)
        topics = [
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=row.partition_index, error_code=code)
                    for row in topic.partitions[self.left_out(COMMIT) :]
                ],
            )
            for topic in request.topics
        ]
        return OffsetCommitResponse(topics=topics)

    async def fetch_committed(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        code = self.refusal(COMMITTED)
        topics = [
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=self.committed, error_code=code
                    )
                    for index in topic.partition_indexes[self.left_out(COMMITTED) :]
                ],
            )
            for topic in request.topics or []
        ]
        return OffsetFetchResponse(topics=topics)

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        await asyncio.sleep(request.max_wait_ms / 1000)
        return FetchResponse()

    async def list_offsets(self, _: Any) -> ListOffsetsResponse:
        rows = [ListOffsetsResponsePartition(partition_index=index, offset=3) for index in range(2)]
        return ListOffsetsResponse(topics=[ListOffsetsResponseTopic(name="t", partitions=rows)])


@pytest.fixture
async def coordinator() -> AsyncIterator[ScriptedCoordinator]:
    async with ScriptedCoordinator() as broker:
        yield broker


class ListenerEvents(ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self.calls.append("revoked")

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self.calls.append("assigned")

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        self.calls.append("lost")


def member_of(broker: FakeBroker, listener: ListenerEvents | None = None, **settings: Any) -> Consumer:
    merged = {
        "group_id": "g",
        "heartbeat_interval_ms": 20,
        "retry_backoff_ms": 5,
        "reconnect_backoff_ms": 5,
        "fetch_max_wait_ms": 50,
        **settings,
    }
    consumer = Consumer(bootstrap_servers=broker.address, **merged)
    consumer.subscribe(["t"], listener=listener)
    return consumer


async def test_kip394_joins_again_with_the_member_id_it_is_given(coordinator: ScriptedCoordinator) -> None:
    coordinator.refusals[JOIN].append(ErrorCode.MEMBER_ID_REQUIRED)
    async with member_of(coordinator) as consumer:
        assert consumer.assignment() == {tp(0), tp(1)}
    assert [request.member_id for request in coordinator.seen(JOIN)] == ["", "given"]
    (goodbye,) = coordinator.seen(LEAVE)
    assert [row.member_id for row in goodbye.members] == ["given"]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        HANG_UP,
    ],
)
@pytest.mark.parametrize("api_key", [JOIN, SYNC])
async def test_a_rebalance_with_a_retriable_error_is_retried(
    coordinator: ScriptedCoordinator, api_key: int, code: int
) -> None:
    coordinator.refusals[api_key] += [code, code]
    async with member_of(coordinator) as consumer:
        assert len(consumer.assignment()) == 2
    assert len(coordinator.seen(JOIN)) == 3
    looked_up = len(coordinator.seen(FIND))
    elsewhere = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, HANG_UP)
    assert looked_up >= 3 if code in elsewhere else looked_up == 1


async def test_a_rebalance_during_sync_means_joining_again_as_the_same_member(coordinator: ScriptedCoordinator) -> None:
    coordinator.refusals[SYNC].append(ErrorCode.REBALANCE_IN_PROGRESS)
    async with member_of(coordinator):
        pass
    assert [request.member_id for request in coordinator.seen(JOIN)] == ["", "m1"]


async def test_a_member_that_is_unknown_joins_as_a_new_one(coordinator: ScriptedCoordinator) -> None:
    coordinator.refusals[SYNC].append(ErrorCode.UNKNOWN_MEMBER_ID)
    async with member_of(coordinator):
        pass
    assert [request.member_id for request in coordinator.seen(JOIN)] == ["", ""]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationFailedError),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, GroupMaxSizeReachedError),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, InconsistentGroupProtocolError),
    ],
)
async def test_a_final_error_is_raised_by_start(
    coordinator: ScriptedCoordinator, code: ErrorCode, error: type[Exception]
) -> None:
    coordinator.refusals[JOIN].append(code)
    with pytest.raises(error, match="group 'g'"):
        await member_of(coordinator).start()


async def test_a_final_error_is_raised_by_every_later_call(coordinator: ScriptedCoordinator) -> None:
    async with member_of(coordinator) as consumer:
        coordinator.refusals[JOIN].append(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        coordinator.refusals[HEARTBEAT].append(ErrorCode.REBALANCE_IN_PROGRESS)
        for _ in range(2):
            with pytest.raises(GroupAuthorizationFailedError):
                await asyncio.wait_for(consumer.getone(), 5)
        assert consumer.assignment() == frozenset()


@pytest.mark.parametrize(
    ("code", "joins_as"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "m1")]
)
async def test_a_removed_member_loses_its_partitions_without_a_commit(
    coordinator: ScriptedCoordinator, code: ErrorCode, joins_as: str
) -> None:
    listener = ListenerEvents()
    async with member_of(coordinator, listener) as consumer:
        await consumer.position(tp(0))
        commits = len(coordinator.seen(COMMIT))
        coordinator.refusals[HEARTBEAT].append(code)
        await until(lambda: listener.calls == ["assigned", "lost", "assigned"])
        assert len(coordinator.seen(COMMIT)) == commits
    assert coordinator.seen(JOIN)[1].member_id == joins_as


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, HANG_UP])
async def test_a_heartbeat_with_a_retriable_error_causes_no_rebalance(
    coordinator: ScriptedCoordinator, code: int
) -> None:
    listener = ListenerEvents()
    async with member_of(coordinator, listener):
        coordinator.refusals[HEARTBEAT] += [code, code]
        beats = len(coordinator.seen(HEARTBEAT))
        await until(lambda: len(coordinator.seen(HEARTBEAT)) >= beats + 4)
        assert listener.calls == ["assigned"]
        assert len(coordinator.seen(JOIN)) == 1


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_a_commit_in_a_rebalance_waits_for_it_when_the_partition_stays(
    coordinator: ScriptedCoordinator, strategy: str
) -> None:
    async with member_of(coordinator, partition_assignment_strategy=[strategy]) as consumer:
        coordinator.refusals[COMMIT].append(ErrorCode.REBALANCE_IN_PROGRESS)
        if strategy == "range":
            # Eager: everything was taken and given anew, so this state of the partition is gone.
            with pytest.raises(CommitFailedError):
                await consumer.commit({tp(0): 7})
        else:
            await consumer.commit({tp(0): 7})
            sent = coordinator.seen(COMMIT)
            assert [request.generation_id_or_member_epoch for request in sent] == [1, 2]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
async def test_a_commit_of_a_removed_member_fails_and_it_joins_again(
    coordinator: ScriptedCoordinator, code: ErrorCode
) -> None:
    async with member_of(coordinator) as consumer:
        coordinator.refusals[COMMIT].append(code)
        with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
            await consumer.commit({tp(0): 7})
        await until(lambda: len(coordinator.seen(SYNC)) == 2)
        await until(lambda: len(consumer.assignment()) == 2)
        await consumer.commit({tp(0): 7})


async def test_commits_are_retried_after_retriable_errors_only(coordinator: ScriptedCoordinator) -> None:
    async with member_of(coordinator) as consumer:
        coordinator.refusals[COMMIT] += [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, HANG_UP]
        await consumer.commit({tp(0): OffsetAndMetadata(7, "note")})
        assert len(coordinator.seen(COMMIT)) == 4
        coordinator.refusals[COMMIT].append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
        with pytest.raises(OffsetMetadataTooLargeError):
            await consumer.commit({tp(0): OffsetAndMetadata(7, "note")})


@pytest.mark.proves("stable-offsets")
async def test_kip447_a_read_committed_member_waits_for_stable_offsets(coordinator: ScriptedCoordinator) -> None:
    coordinator.committed = 11
    coordinator.refusals[COMMITTED] += [ErrorCode.UNSTABLE_OFFSET_COMMIT] * 2
    async with member_of(coordinator, isolation_level="read_committed") as consumer:
        assert await consumer.position(tp(0)) == 11
    assert [request.require_stable for request in coordinator.seen(COMMITTED)] == [True] * 3


async def test_kip345_a_static_member_does_not_leave_the_group(coordinator: ScriptedCoordinator) -> None:
    async with member_of(coordinator, group_instance_id="i"):
        pass
    assert coordinator.seen(LEAVE) == []
    assert coordinator.seen(JOIN)[0].group_instance_id == "i"


async def test_kip814_a_leader_told_to_skip_hands_in_no_assignment(coordinator: ScriptedCoordinator) -> None:
    coordinator.versions[JOIN] = (0, 9)
    coordinator.skip_assignment = True
    async with member_of(coordinator, group_instance_id="i") as consumer:
        assert consumer.assignment() == frozenset()
    assert coordinator.seen(SYNC)[0].assignments == []


async def test_members_of_foreign_topics_are_given_what_they_want(coordinator: ScriptedCoordinator) -> None:
    """The leader fetches metadata of topics to which only other members subscribe."""
    coordinator.topics["foreign"] = 3
    join = coordinator.join

    async def with_a_stranger(request: JoinGroupRequest) -> JoinGroupResponse:
        answer = await join(request)
        stranger = encode_embedded(Subscription(topics=["foreign"]))
        answer.members.append(JoinGroupResponseMember(member_id="stranger", metadata=stranger))
        return answer

    coordinator.answers[JOIN] = with_a_stranger
    async with member_of(coordinator) as consumer:
        assert consumer.assignment() == {tp(0), tp(1)}
    given = {row.member_id: row.assignment for row in coordinator.seen(SYNC)[0].assignments}
    assert given["stranger"].count(b"foreign") == 1


async def test_stopping_in_the_middle_of_a_rebalance_does_not_wait_for_its_end(
    coordinator: ScriptedCoordinator,
) -> None:
    consumer = member_of(coordinator, partition_assignment_strategy=["cooperative-sticky"])
    await consumer.start()
    await consumer.position(tp(0))
    never = asyncio.Event()

    async def hang(_: SyncGroupRequest) -> SyncGroupResponse:
        await never.wait()
        return SyncGroupResponse()

    coordinator.answers[SYNC] = hang
    coordinator.refusals[COMMIT] += [ErrorCode.REBALANCE_IN_PROGRESS] * 10
    coordinator.refusals[HEARTBEAT].append(ErrorCode.REBALANCE_IN_PROGRESS)
    await until(lambda: len(coordinator.seen(SYNC)) == 2)
    await asyncio.wait_for(consumer.stop(), 1)
    assert len(coordinator.seen(LEAVE)) == 1


async def test_partition_left_out_of_the_committed_offsets_is_asked_for_again(coordinator: ScriptedCoordinator) -> None:
    coordinator.committed = 7
    async with member_of(coordinator) as consumer:
        await consumer.position(tp(1))
        before = len(coordinator.seen(COMMITTED))
        coordinator.mute[COMMITTED] = 2
        assert await consumer.committed(tp(0)) == 7
        assert len(coordinator.seen(COMMITTED)) == before + 3


async def test_partition_left_out_of_the_answer_to_a_commit_is_committed_again(
    coordinator: ScriptedCoordinator,
) -> None:
    async with member_of(coordinator) as consumer:
        before = len(coordinator.seen(COMMIT))
        coordinator.mute[COMMIT] = 2
        await consumer.commit({tp(0): 3})
        assert len(coordinator.seen(COMMIT)) == before + 3
