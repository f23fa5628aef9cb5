"""Fetches of followers, as direct calls: the answer, its time, and the recorded progress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest
from broker.replication.brokers import Replicant, ReplicationCluster
from semel_broker.context import Broker, RequestContext
from semel_broker.partitions.replicas import Replicas
from semel_broker.peer_handlers import k01_replica_fetch, k23_offset_for_leader_epoch
from semel_protocol.batch import iterate
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k01_fetch import (
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestReplicaState,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from semel_protocol.messages.k23_offset_for_leader_epoch import OffsetForLeaderEpochRequest
from support.at_once import at_once

FOLLOWER, OTHER = 2, 3


class FetchingFollower:
    """A follower that only sends fetches."""

    def __init__(self, leader: Replicant, node_id: int = FOLLOWER) -> None:
        self.leader = leader
        self.node_id = node_id
        self.session_id = self.session_epoch = 0

    @property
    def sessions(self) -> Any:
        return self.leader.replicator.sessions

    def request(
        self,
        *wanted: tuple[int, int],
        epoch: int = 0,
        last: int = -1,
        wait_ms: int = 0,
        bytes_max: int = 1 << 20,
        partition_bytes_max: int = 1 << 20,
        forget: list[int] | None = None,
    ) -> FetchRequest:
        """A fetch request. `wanted`: (partition, offset)."""
        topic = self.leader.topics.required("t")
        rows = [
            FetchRequestPartition(
                partition=index,
                current_leader_epoch=epoch,
                fetch_offset=offset,
                last_fetched_epoch=last,
                partition_max_bytes=partition_bytes_max,
            )
            for index, offset in wanted
        ]
        gone = [FetchRequestForgottenTopic(topic_id=topic.topic_id, partitions=forget)] if forget else []
        return FetchRequest(
            replica_state=FetchRequestReplicaState(replica_id=self.node_id, replica_epoch=50),
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=bytes_max,
            isolation_level=0,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=[FetchRequestTopic(topic_id=topic.topic_id, partitions=rows)] if rows else [],
            forgotten_topics_data=gone,
        )

    def ask(self, *wanted: tuple[int, int], **fields: Any) -> Coroutine[Any, Any, FetchResponse]:
        """The request, which has not begun."""
        context = cast("RequestContext", SimpleNamespace(broker=self.leader))
        return k01_replica_fetch.handle(self.sessions, self.request(*wanted, **fields), context)

    def fetch(self, *wanted: tuple[int, int], **fields: Any) -> dict[int, FetchResponsePartition]:
        """The rows of an immediate answer, by partition."""
        return self.took(at_once(self.ask(*wanted, **fields)))

    def took(self, answer: FetchResponse) -> dict[int, FetchResponsePartition]:
        assert answer.error_code == 0
        self.session_id, self.session_epoch = answer.session_id, self.session_epoch + 1
        return {row.partition_index: row for topic in answer.responses for row in topic.partitions}

    async def end_wait(self) -> None:
        request = OffsetForLeaderEpochRequest(replica_id=self.node_id, topics=[])
        context = RequestContext(cast("Broker", self.leader), 4, "", "", "")
        await k23_offset_for_leader_epoch.handle(self.sessions, request, context)


@pytest.fixture
async def leader() -> AsyncIterator[Replicant]:
    """A leader of six partitions whose other replicas do not run."""
    cluster = ReplicationCluster(**{"replica.lag.time.max.ms": "1000000"})
    (one,) = await cluster.start(1)
    await one.topics.create(_topic(6))
    await cluster.role(1, 1)
    for index in range(6):
        partition = one.partition(index)
        replicas = Replicas(1, [1, FOLLOWER, OTHER], [1, FOLLOWER], epoch_start_offset=0, now_ms=0)
        partition.become_leader(0, replicas)
    yield one
    await cluster.close()


def _topic(count: int) -> Any:
    from semel_broker.cluster.topic_plan import NewTopic

    return NewTopic(name="t", assignments={n: [1] for n in range(count)})


def bases(row: FetchResponsePartition) -> list[int]:
    return [header.base_offset for header, _ in iterate(row.records or b"")]


async def test_stored_bytes_up_to_the_end_of_the_log_synced_or_not(leader: Replicant) -> None:
    leader.disk.hold_syncs()
    for _ in range(3):
        leader.append(b"x")
    assert leader.partition().durable_end == 0
    row = FetchingFollower(leader).fetch((0, 0))[0]
    assert row.records == leader.partition().log.read(0, up_to=3, bytes_max=10_000)
    assert (row.high_watermark, row.log_start_offset, row.error_code) == (0, 0, 0)
    leader.disk.release_syncs()


async def test_offset_counts_before_the_fetch_waits(leader: Replicant) -> None:
    leader.append(b"x")
    await leader.partition().synced()
    follower = FetchingFollower(leader)
    follower.fetch((0, 0))
    assert leader.partition().high_watermark == 0
    waiting = follower.ask((0, 1), last=0, wait_ms=60_000)
    waiting.send(None)
    assert leader.partition().high_watermark == 1
    waiting.close()


async def test_only_changed_partitions_are_answered(leader: Replicant) -> None:
    """KIP-227: a partition is named once, and again when its offset has changed."""
    follower = FetchingFollower(leader)
    assert sorted(follower.fetch(*[(n, 0) for n in range(6)])) == list(range(6)), "high watermarks are new to it"
    assert follower.fetch() == {}
    leader.append(b"x", index=4)
    found = follower.fetch()
    assert {index: bases(row) for index, row in found.items()} == {4: [0]}
    await leader.partition(4).synced()
    found = follower.fetch((4, 1), last=0)
    assert [(i, row.high_watermark, row.records) for i, row in found.items()] == [(4, 1, b"")]
    assert follower.fetch() == {}


async def test_start_of_the_log_travels_without_data_too(leader: Replicant) -> None:
    for _ in range(4):
        leader.append(b"x")
    await leader.partition().synced()
    follower = FetchingFollower(leader)
    follower.fetch((0, 4), last=0)
    assert follower.fetch() == {}
    leader.partition().delete_records(3)
    assert [row.log_start_offset for row in follower.fetch().values()] == [3]
    assert follower.fetch() == {}


async def test_append_ends_the_wait_and_brings_other_changes(leader: Replicant) -> None:
    follower = FetchingFollower(leader)
    follower.fetch((0, 0), (1, 0), (2, 0))
    waiting = asyncio.ensure_future(follower.ask(wait_ms=60_000))
    await asyncio.sleep(0)
    leader.append(b"x", index=1)
    leader.append(b"y", index=2)
    leader.append(b"z", index=1)
    found = follower.took(await waiting)
    assert {index: bases(row) for index, row in found.items()} == {1: [0, 1], 2: [0]}


async def test_wait_ends_by_time_and_by_a_request_to_end_it(leader: Replicant) -> None:
    follower = FetchingFollower(leader)
    follower.fetch((0, 0))
    assert follower.took(await follower.ask(wait_ms=20)) == {}
    waiting = asyncio.ensure_future(follower.ask(wait_ms=60_000))
    await asyncio.sleep(0)
    await follower.end_wait()
    assert follower.took(await waiting) == {}
    await follower.end_wait()  # before the fetch that it is meant for
    assert follower.took(await follower.ask(wait_ms=60_000)) == {}
    waiting = asyncio.ensure_future(follower.ask(wait_ms=60_000))
    await asyncio.sleep(0.02)
    assert not waiting.done(), "it counts once"
    waiting.cancel()


@pytest.mark.proves("old-leader-epoch")
async def test_diverging_log_gets_the_diverging_epoch_and_no_progress(leader: Replicant) -> None:
    partition = leader.partition()
    leader.append(b"of epoch 0")
    partition.become_leader(4, partition.replicas)
    leader.append(b"of epoch 4")
    await partition.synced()
    follower = FetchingFollower(leader)
    for offset, last, expected in (
        (3, 4, (4, 2)),  # it has more of the current epoch than the leader
        (2, 3, (0, 1)),  # an epoch that the leader never had
        (2, 0, (0, 1)),
    ):
        row = follower.fetch((0, offset), epoch=4, last=last)[0]
        assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == expected
        assert (row.records, row.error_code) == (b"", 0)
        assert partition.high_watermark == 0
        assert partition.replicas is not None
        assert partition.replicas.offsets[FOLLOWER] == -1
    assert bases(follower.fetch((0, 1), epoch=4, last=0)[0]) == [1]
    assert partition.replicas.offsets[FOLLOWER] == 1


@pytest.mark.proves("old-leader-epoch")
async def test_leader_epochs_must_agree(leader: Replicant) -> None:
    """The leader ignores fetches of an old epoch (docs/reliability.md)."""
    partition = leader.partition()
    leader.append(b"x")
    await partition.synced()
    partition.become_leader(4, partition.replicas)
    follower = FetchingFollower(leader)
    old, new = follower.fetch((0, 1), epoch=3, last=0)[0], follower.fetch((0, 1), epoch=5, last=0)[0]
    assert old.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert new.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert partition.high_watermark == 0


async def test_waiting_fetch_gets_an_error_when_leadership_ends(leader: Replicant) -> None:
    follower = FetchingFollower(leader)
    follower.fetch((0, 0))
    waiting = asyncio.ensure_future(follower.ask(wait_ms=60_000))
    await asyncio.sleep(0)
    leader.partition().become_follower(3, 1)
    assert follower.took(await waiting)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(("offset", "is_below"), [(0, True), (9, False)])
async def test_offset_outside_of_the_log(leader: Replicant, offset: int, is_below: bool) -> None:
    for _ in range(5):
        leader.append(b"x")
    await leader.partition().synced()
    leader.partition().view.high_watermark = 5
    leader.partition().delete_records(3)
    row = FetchingFollower(leader).fetch((0, offset))[0]
    assert (row.error_code, row.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 3)
    assert leader.partition().replicas is not None
    assert leader.partition().replicas.offsets[FOLLOWER] == -1


async def test_a_log_of_older_epochs_that_ends_where_this_one_starts_begins_anew(leader: Replicant) -> None:
    """The leader has deleted those records and cannot compare them any more."""
    partition = leader.partition()
    for n in range(3):
        leader.append(b"x", producer_id=7, sequence=n)
    partition.become_leader(4, partition.replicas)
    leader.append(b"of epoch 4")
    await partition.synced()
    partition.view.high_watermark = 4
    partition.delete_records(3)
    follower = FetchingFollower(leader)
    for last, starts_anew in ((0, True), (3, True), (4, False), (-1, False)):
        row = follower.fetch((0, 3), epoch=4, last=last)[0]
        assert row.error_code == (ErrorCode.OFFSET_OUT_OF_RANGE if starts_anew else 0)
        assert (row.log_start_offset, bool(row.producer_snapshot)) == (3, starts_anew)
    assert bases(row) == [3]


async def test_fetch_by_a_broker_without_replica_is_refused(leader: Replicant) -> None:
    leader.append(b"x")
    row = FetchingFollower(leader, 9).fetch((0, 0))[0]
    assert (row.error_code, row.records) == (ErrorCode.REPLICA_NOT_AVAILABLE, b"")
    with pytest.raises(KafkaError) as refused:
        FetchingFollower(leader, -1).fetch((0, 0))
    assert refused.value.code == ErrorCode.INVALID_REQUEST


async def test_unknown_topic_and_partition(leader: Replicant) -> None:
    follower = FetchingFollower(leader)
    assert follower.fetch((77, 0))[77].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    request = follower.request((0, 0))
    request.topics[0].topic_id = b"?" * 16
    request.session_epoch = 0
    context = cast("RequestContext", SimpleNamespace(broker=leader))
    answer = await k01_replica_fetch.handle(follower.sessions, request, context)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_bytes_are_bounded_and_partitions_take_turns(leader: Replicant) -> None:
    offsets = dict.fromkeys(range(6), 0)
    for _ in range(8):
        for index in offsets:
            leader.append(b"x" * 1000, index=index)
    follower = FetchingFollower(leader)
    wanted = list(offsets.items())
    served: list[int] = []
    for _ in range(16):
        found = follower.fetch(*wanted, bytes_max=4000, partition_bytes_max=2500, last=0)
        data = {index: row for index, row in found.items() if row.records}
        assert 0 < sum(len(row.records or b"") for row in data.values()) <= 4000
        wanted = []
        for index, row in data.items():
            served.append(index)
            assert len(bases(row)) in (1, 2)
            assert bases(row)[0] == offsets[index]
            offsets[index] = bases(row)[-1] + 1
            wanted.append((index, offsets[index]))
    assert offsets == dict.fromkeys(range(6), 8)
    assert sorted(served[:6]) == list(range(6)), "no partition comes twice before all have come"


async def test_batch_larger_than_every_bound_comes_whole_and_alone(leader: Replicant) -> None:
    leader.append(b"x" * 5000, index=0)
    leader.append(b"y", index=1)
    follower = FetchingFollower(leader)
    found = follower.fetch((0, 0), (1, 0), bytes_max=100, partition_bytes_max=100)
    assert {index: bases(row) for index, row in found.items() if row.records} == {0: [0]}
    found = follower.fetch((0, 1), last=0, bytes_max=100, partition_bytes_max=100)
    assert {index: bases(row) for index, row in found.items() if row.records} == {1: [0]}


async def test_forgotten_partition_is_not_served_any_more(leader: Replicant) -> None:
    follower = FetchingFollower(leader)
    follower.fetch((0, 0), (1, 0))
    follower.fetch(forget=[0])
    leader.append(b"x", index=0)
    leader.append(b"x", index=1)
    assert list(follower.fetch()) == [1]
    assert [row.place[1] for row in leader.partition(0).view._waiters] == []  # type: ignore[attr-defined]
    assert list(follower.fetch((0, 0))) == [0]


async def test_unknown_sessions_are_refused(leader: Replicant) -> None:
    follower = FetchingFollower(leader)
    follower.fetch((0, 0))
    for session_id, epoch, code in (
        (follower.session_id + 1, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (follower.session_id, 5, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
    ):
        request = follower.request()
        request.session_id, request.session_epoch = session_id, epoch
        with pytest.raises(KafkaError) as refused:
            follower.sessions.take(request)
        assert refused.value.code == code


async def test_new_session_ends_the_one_before(leader: Replicant) -> None:
    """The follower reconnects while a fetch of its old connection still waits."""
    follower = FetchingFollower(leader)
    follower.fetch((0, 0))
    waiting = asyncio.ensure_future(follower.ask(wait_ms=60_000))
    await asyncio.sleep(0)
    FetchingFollower(leader).fetch((0, 0), (1, 0))
    with pytest.raises(KafkaError) as over:
        await waiting
    assert over.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(leader.partition(0).view._waiters) == 1


async def test_fetch_with_a_stale_broker_epoch_keeps_the_session(leader: Replicant) -> None:
    follower = FetchingFollower(leader)
    follower.fetch((0, 0))
    request = FetchingFollower(leader).request((0, 0))
    request.replica_state = FetchRequestReplicaState(replica_id=follower.node_id, replica_epoch=49)
    with pytest.raises(KafkaError) as refused:
        follower.sessions.take(request)
    assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH
    assert follower.fetch() == {}


@pytest.mark.proves("quiet-partition")
async def test_session_covers_partitions_that_are_not_named(leader: Replicant) -> None:
    """The leader measures lag by fetches. For a partition without new records only the session's fetches count."""
    partition = leader.partition()
    leader.append(b"x")
    await partition.synced()
    follower = FetchingFollower(leader)
    follower.fetch((0, 1), last=0)
    assert partition.replicas is not None
    before = partition.replicas._followers[FOLLOWER].caught_up_ms
    await asyncio.sleep(0.01)
    follower.sessions.note_again()
    assert partition.replicas._followers[FOLLOWER].caught_up_ms == before, "it has not asked since"
    follower.fetch()
    follower.sessions.note_again()
    assert partition.replicas._followers[FOLLOWER].caught_up_ms > before
    leader.append(b"y")
    await asyncio.sleep(0.01)
    caught_up_ms = partition.replicas._followers[FOLLOWER].caught_up_ms
    follower.fetch()
    follower.sessions.note_again()
    assert partition.replicas._followers[FOLLOWER].caught_up_ms == caught_up_ms, "it is not at the end"
