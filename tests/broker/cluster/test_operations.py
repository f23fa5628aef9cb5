"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments, asked of any broker of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from broker.cluster.brokers import ControllerBroker, ControllerCluster, until
from semel_broker.cluster import records
from semel_broker.cluster.records import NO_LEADER, PartitionState
from semel_broker.cluster.store import OutcomeUnknownError, Put, StoreUnavailableError
from semel_broker.context import Broker, RequestContext
from semel_broker.handlers import k43_elect_leaders, k45_alter_partition_reassignments, k46_list_partition_reassignments
from semel_broker.scheduling.turns import Turns
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k43_elect_leaders import PREFERRED, UNCLEAN, ElectLeadersRequest, ElectLeadersRequestTopic
from semel_protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestPartition,
    AlterPartitionReassignmentsRequestTopic,
)
from semel_protocol.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequestTopic,
)

NONE = ErrorCode.NONE
Target = Sequence[int] | None
Moving = dict[tuple[str, int], tuple[Any, Any, Any]]


def context(member: ControllerBroker) -> RequestContext:
    turns = Turns(asyncio.get_running_loop(), monotonic)
    broker = SimpleNamespace(store=member.store, feed=member.feed, log=member.log, turns=turns)
    return RequestContext(cast(Broker, broker), 1, "", "", "")


async def elect(
    member: ControllerBroker, indexes: Sequence[int] | None, kind: int = PREFERRED, topic: str = "t"
) -> dict[int, ErrorCode]:
    topics = None if indexes is None else [ElectLeadersRequestTopic(topic=topic, partitions=list(indexes))]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=topics)
    answer = await k43_elect_leaders.handle(request, context(member))
    rows = [row for one in answer.replica_election_results for row in one.partition_result]
    assert all(bool(row.error_message) is bool(row.error_code) for row in rows)
    return {row.partition_id: ErrorCode(row.error_code) for row in rows}


async def reassign(
    member: ControllerBroker, *targets: tuple[int, Target], topic: str = "t", **more: Any
) -> list[ErrorCode]:
    partitions = [
        AlterPartitionReassignmentsRequestPartition(
            partition_index=index, replicas=None if target is None else list(target)
        )
        for index, target in targets
    ]
    topics = [AlterPartitionReassignmentsRequestTopic(name=topic, partitions=partitions)]
    request = AlterPartitionReassignmentsRequest(topics=topics, **more)
    answer = await k45_alter_partition_reassignments.handle(request, context(member))
    assert [one.name for one in answer.responses] == [topic]
    return [ErrorCode(row.error_code) for row in answer.responses[0].partitions]


def in_progress(member: ControllerBroker) -> list[tuple[str, int]]:
    """The partitions that this broker knows to be reassigned."""
    return [(view.topic, view.index) for view in member.image.reassignments()]


async def moving(member: ControllerBroker, asked: dict[str, list[int]] | None = None) -> Moving:
    topics = None
    if asked is not None:
        topics = [ListPartitionReassignmentsRequestTopic(name=n, partition_indexes=i) for n, i in asked.items()]
    answer = await k46_list_partition_reassignments.handle(
        ListPartitionReassignmentsRequest(topics=topics), context(member)
    )
    return {
        (topic.name, row.partition_index): (row.replicas, row.adding_replicas, row.removing_replicas)
        for topic in answer.topics
        for row in topic.partitions
    }


async def put_state(cluster: ControllerCluster, topic_id: str, index: int, state: PartitionState) -> None:
    key = records.partition_key(topic_id, index)
    revision = await cluster.shared_store.hand.transact([], [Put(key, msgspec.json.encode(state))])
    assert revision is not None
    for member in cluster.members:
        await member.feed.reached(revision)


def replicas(member: ControllerBroker, index: int) -> list[int]:
    view = member.image.partition("id-of-t", index)
    assert view is not None
    return list(view.replicas)


# --- elections ---


async def test_any_broker_elects_preferred_leaders_and_its_image_shows_them_with_the_answer(
    cluster: ControllerCluster,
) -> None:
    _, two, _ = await cluster.start(1, 2, 3)
    topic_id = await cluster.topic([1, 2, 3], [2, 3, 1], [3, 1, 2])
    await put_state(cluster, topic_id, 0, PartitionState(2, 1, [1, 2, 3]))
    await put_state(cluster, topic_id, 1, PartitionState(3, 1, [3, 1]))
    assert await elect(two, [0, 1, 2, 9]) == {
        0: NONE,
        1: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        2: ErrorCode.ELECTION_NOT_NEEDED,
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert two.image.leader(topic_id, 0) == 1
    assert await elect(two, [0], topic="nowhere") == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_an_election_of_all_partitions_lists_those_that_were_elected(cluster: ControllerCluster) -> None:
    _, two, _ = await cluster.start(1, 2, 3)
    topic_id = await cluster.topic(*[[1, 2, 3]] * 300)
    moved = msgspec.json.encode(PartitionState(2, 1, [1, 2, 3]))
    keys = [records.partition_key(topic_id, index) for index in range(1, 299)]
    for first in range(0, len(keys), 100):
        revision = await cluster.shared_store.hand.transact([], [Put(key, moved) for key in keys[first : first + 100]])
    assert revision is not None
    await two.feed.reached(revision)
    assert await elect(two, None) == dict.fromkeys(range(1, 299), NONE)
    assert await elect(two, None) == {}
    assert await cluster.state(topic_id, 298) == PartitionState(1, 2, [1, 2, 3])


@pytest.mark.proves("unclean-election")
async def test_an_unclean_election_happens_only_on_request(cluster: ControllerCluster) -> None:
    one, _, three = await cluster.start(1, 2, 3)
    topic_id = await cluster.topic([3, 2, 1])
    await put_state(cluster, topic_id, 0, PartitionState(3, 4, [3]))
    assert await elect(one, [0], UNCLEAN) == {0: ErrorCode.ELECTION_NOT_NEEDED}
    await three.kill()
    await until(lambda: one.image.partition(topic_id, 0).state == PartitionState(NO_LEADER, 5, [3]))  # type: ignore[union-attr]
    assert await elect(one, [0]) == {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert await elect(one, [0], UNCLEAN) == {0: NONE}
    assert await cluster.state(topic_id) == PartitionState(2, 6, [2])
    await cluster.start(3)
    assert await cluster.state(topic_id) == PartitionState(2, 6, [2]), "what it has more than others is lost"


async def test_an_unknown_election_type_is_refused(local: ControllerCluster) -> None:
    (one,) = await local.start(1)
    with pytest.raises(KafkaError) as caught:
        await elect(one, None, 2)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


# --- reassignments ---


async def test_partitions_are_reassigned_and_errors_are_returned_for_the_others(cluster: ControllerCluster) -> None:
    one, two, *_ = await cluster.start(1, 2, 3, 4)
    topic_id = await cluster.topic([1, 2], [2, 1], [1, 2])
    assert await reassign(two, (0, [3, 4]), (1, [1]), (2, [9]), (7, [1]), (8, [1]), (8, [2])) == [
        NONE,
        NONE,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    ]
    assert ("t", 0) in await moving(two), "what was answered is known here"
    await until(lambda: in_progress(one) == [("t", 0)])
    assert await moving(one) == {("t", 0): ([3, 4, 1, 2], [3, 4], [1, 2])}
    assert await moving(one, {"t": [0, 1], "u": [0]}) == await moving(one)
    assert await moving(one, {"t": [1], "u": [0]}) == {}
    assert replicas(one, 1) == [1]
    await put_state(cluster, topic_id, 0, PartitionState(1, 0, [1, 2, 4, 3]))
    await until(lambda: not in_progress(one))
    assert replicas(one, 0) == [3, 4]
    assert await cluster.state(topic_id, 0) == PartitionState(3, 1, [4, 3])


async def test_a_wide_reassignment_writes_the_record_of_the_topic_once_for_many_partitions(
    cluster: ControllerCluster,
) -> None:
    _, two, *_ = await cluster.start(1, 2, 3)
    await cluster.topic(*[[1, 2]] * 240)
    written: list[str] = []
    two.feed.listeners.append(lambda delta: written.extend(delta.topics))
    assert await reassign(two, *((index, [3, 1]) for index in range(240))) == [NONE] * 240
    assert len(written) <= 2, "each write has all rows: with few new ones in each, wide requests would be quadratic"
    assert len(await moving(two)) == 240
    assert await reassign(two, *((index, None) for index in range(40)), (40, [2, 3])) == [NONE] * 41
    assert len(await moving(two)) == 200
    assert replicas(two, 40) == [2, 3, 1]


async def test_a_reassignment_is_cancelled(cluster: ControllerCluster) -> None:
    one, *_ = await cluster.start(1, 2, 3)
    topic_id = await cluster.topic([1, 2], [1, 2])
    assert await reassign(one, (0, [3]), (1, None)) == [NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]
    await put_state(cluster, topic_id, 0, PartitionState(1, 3, [1, 2]))
    assert await reassign(one, (0, None)) == [NONE]
    assert await moving(one) == {}
    assert replicas(one, 0) == [1, 2]
    assert await cluster.state(topic_id, 0) == PartitionState(1, 3, [1, 2])


async def test_a_reassignment_of_an_unknown_topic_is_refused(local: ControllerCluster) -> None:
    (one,) = await local.start(1)
    assert await reassign(one, (0, [1]), (1, None), topic="nowhere") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


async def test_kip860_a_request_can_insist_on_the_number_of_replicas(local: ControllerCluster) -> None:
    one, *_ = await local.start(1, 2, 3)
    await local.topic([1, 2])
    assert await reassign(one, (0, [3]), allow_replication_factor_change=False) == [
        ErrorCode.INVALID_REPLICATION_FACTOR
    ]
    assert await reassign(one, (0, [3, 2]), allow_replication_factor_change=False) == [NONE]


async def test_a_hundred_moves_in_one_request(cluster: ControllerCluster) -> None:
    one, *_ = await cluster.start(1, 2, 3)
    await cluster.topic(*[[1, 2]] * 100)
    assert await reassign(one, *((index, [2, 3]) for index in range(100))) == [NONE] * 100
    assert len(await moving(one)) == 100


# --- while others write too, and the store fails ---


async def test_nothing_is_refused_because_of_what_this_broker_has_not_seen_yet(local: ControllerCluster) -> None:
    one, two, _ = await local.start(1, 2, 3)
    await local.topic([1, 2])
    two.store.watch_gate.clear()
    await local.start(4)
    new = records.TopicRecord("u", "id-of-u", [[1, 2]], {})
    await local.shared_store.hand.transact([], [Put(records.topic_key("u"), msgspec.json.encode(new))])
    moved = asyncio.ensure_future(reassign(two, (0, [4])))
    shrunk = asyncio.ensure_future(reassign(two, (0, [2]), topic="u"))
    await until(lambda: one.image.topic("u") is not None)
    assert not moved.done()
    assert not shrunk.done()
    two.store.watch_gate.set()
    assert await moved == [NONE]
    assert await shrunk == [NONE]


async def test_two_brokers_that_move_partitions_of_one_topic_at_once_both_succeed(cluster: ControllerCluster) -> None:
    one, two, _ = await cluster.start(1, 2, 3)
    await cluster.topic([1, 2], [1, 2])
    answers = await asyncio.gather(reassign(one, (0, [3])), reassign(two, (1, [2, 3])))
    assert answers == [[NONE], [NONE]]
    await until(lambda: len(in_progress(one)) == 2)
    assert await moving(one) == {("t", 0): ([3, 1, 2], [3], [1, 2]), ("t", 1): ([2, 3, 1], [3], [1])}


async def test_an_answer_that_got_lost_is_not_taken_for_a_refusal(local: ControllerCluster) -> None:
    one, *_ = await local.start(1, 2, 3)
    topic_id = await local.topic([1, 2], [2, 1])
    await put_state(local, topic_id, 1, PartitionState(1, 3, [1, 2]))
    one.store.failing = [OutcomeUnknownError("who knows")]
    assert await reassign(one, (0, [3])) == [NONE]
    one.store.failing = [OutcomeUnknownError("who knows")]
    assert await reassign(one, (0, None)) == [NONE]
    one.store.failing = [OutcomeUnknownError("who knows")]
    assert await elect(one, [1]) == {1: NONE}
    assert await local.state(topic_id, 1) == PartitionState(2, 4, [1, 2])


async def test_an_operation_without_the_store_is_refused_with_a_retriable_error(local: ControllerCluster) -> None:
    one, *_ = await local.start(1, 2, 3)
    topic_id = await local.topic([1, 2])
    await put_state(local, topic_id, 0, PartitionState(2, 3, [1, 2]))
    one.store.failing = [StoreUnavailableError("away")]
    assert await reassign(one, (0, [3])) == [ErrorCode.REQUEST_TIMED_OUT]
    one.store.failing = [StoreUnavailableError("away")]
    with pytest.raises(KafkaError) as caught:
        await elect(one, [0])
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
