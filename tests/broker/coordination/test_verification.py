"""Writes into a transaction of a coordinator on another broker (KIP-890).

The leader verifies them there, and notices an end of the transaction meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker.cluster.brokers import until
from broker.coordination.coordinator_cluster import (
    VERIFY,
    CoordinatorBroker,
    CoordinatorCluster,
    code_of,
    is_open,
    markers,
)
from broker.transactional import TransactionalProducer
from semel_broker.txn.model.identity import ClientName, ProducerIdentity
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnRequestTransaction,
)
from semel_storage.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE

VERSIONS = pytest.mark.parametrize("version", [1, 2])
AGAIN = ErrorCode.NOT_ENOUGH_REPLICAS


async def apart(
    nodes: CoordinatorCluster, version: int
) -> tuple[CoordinatorBroker, CoordinatorBroker, TransactionalProducer, TransactionalProducer]:
    """Broker 1 is the coordinator, broker 2 leads partition 1 of `out`.

    Yields the producer's connection to each of them.
    """
    one, two = await nodes.open(1, 2)
    mine = await (await one.producer(version, nodes.name_at(0))).init()
    return one, two, mine, await two.producer(version, mine.name, like=mine)


async def send(there: TransactionalProducer, value: bytes = b"x", **more: Any) -> ErrorCode:
    request = there.produce_request("out", value, partition=1, **more)
    return ErrorCode((await there.send(request)).error_code)


@pytest.mark.proves("late-batch-at-another-broker")
@VERSIONS
async def test_batch_is_appended_if_the_coordinator_knows_the_transaction_to_be_open_and_to_include_the_partition(
    nodes: CoordinatorCluster, version: int
) -> None:
    _, two, mine, there = await apart(nodes, version)
    if version == 1:
        assert await send(there, sequence=0) is ErrorCode.INVALID_TXN_STATE
        assert await mine.add("out", 0) == 0
        assert await send(there, sequence=0) is ErrorCode.INVALID_TXN_STATE
        assert await mine.add("out", 1) == 0
    assert [await send(there) for _ in range(3)] == [0, 0, 0]
    assert len(two.wires.asked(VERIFY)) == (3 if version == 1 else 1), "once it is open no coordinator is asked"
    assert [row.verify_only for row in two.wires.asked(VERIFY)[-1].transactions] == [version == 1]
    assert await mine.end() == 0
    assert [kind for _, kind, _ in markers(two, 1)] == ["COMMIT"]


@pytest.mark.proves("late-batch-at-another-broker")
@VERSIONS
async def test_hanging_transaction_a_produce_after_the_marker_is_refused(
    nodes: CoordinatorCluster, version: int
) -> None:
    _, two, mine, there = await apart(nodes, version)
    if version == 1:
        assert await mine.add("out", 1) == 0
    assert await send(there) is ErrorCode.NONE
    old = await two.producer(version, mine.name, like=mine)
    assert await mine.end() == 0
    assert await send(old, sequence=1) in (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert not is_open(two, 1)


async def test_a_partition_refuses_a_producer_that_its_coordinator_has_fenced(nodes: CoordinatorCluster) -> None:
    one, _, mine, there = await apart(nodes, 2)
    await (await one.producer(2, mine.name)).init()
    assert await send(there) is ErrorCode.INVALID_PRODUCER_EPOCH


async def test_an_unknown_id_is_refused_as_unknown(nodes: CoordinatorCluster) -> None:
    _, _, mine, there = await apart(nodes, 2)
    there.producer_id = mine.producer_id + 17
    assert await send(there) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@VERSIONS
async def test_while_the_coordinator_cannot_be_asked_the_producer_is_to_try_again(
    nodes: CoordinatorCluster, version: int
) -> None:
    one, two, mine, there = await apart(nodes, version)
    if version == 1:
        assert await mine.add("out", 1) == 0
    two.unplug()
    assert await send(there, sequence=0) is AGAIN
    two.plug_in()
    assert await send(there, sequence=0) is ErrorCode.NONE
    assert len(two.transactions._admissions._guards) == 0
    assert await mine.end() == 0
    assert one.transactions.coordinates(mine.name)


async def test_the_coordinator_is_asked_where_it_is_now(nodes: CoordinatorCluster) -> None:
    one, two, mine, there = await apart(nodes, 2)
    await nodes.move(TRANSACTION_STATE, 0, 2)
    assert await send(there) is ErrorCode.NONE, "it is here now"
    assert two.wires.asked(VERIFY) == []
    assert (await mine.send(mine.produce_request("out", b"x", partition=0))).error_code == 0
    assert len(one.wires.asked(VERIFY)) == 1, "and no longer there"


@pytest.mark.proves("append-behind-the-marker")
@VERSIONS
async def test_a_marker_between_verification_and_append_is_noticed(nodes: CoordinatorCluster, version: int) -> None:
    """The coordinator confirms the transaction, then ends it. The marker arrives before the confirmation."""
    one, two, mine, there = await apart(nodes, version)
    if version == 1:
        assert await mine.add("out", 1) == 0
    gate, asked = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        asked.set()
        await gate.wait()

    two.wires.after[VERIFY] = slow
    sending = asyncio.create_task(send(there, sequence=0))
    await asked.wait()
    assert len(two.transactions._admissions._guards) == 1
    ender = await one.producer(version, mine.name, like=mine)
    assert await ender.end(commit=False) == 0
    gate.set()
    assert await sending is {1: AGAIN, 2: ErrorCode.INVALID_PRODUCER_EPOCH}[version], "the end has bumped the epoch"
    assert not is_open(two, 1)
    again = await send(there, sequence=0)
    assert again in (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_EPOCH), "and then the true answer"
    assert [kind for _, kind, _ in markers(two, 1)] == ["ABORT"]


@pytest.mark.proves("append-behind-the-marker")
async def test_a_marker_that_changes_nothing_in_the_log_is_noticed_too(nodes: CoordinatorCluster) -> None:
    """The last transaction had the same outcome, and this one has written nothing here.

    So the leader takes the marker for a retry of the last one (transaction version 1).
    """
    one, two, mine, there = await apart(nodes, 1)
    assert await mine.add("out", 1) == 0
    assert await send(there) is ErrorCode.NONE
    assert await mine.end() == 0
    assert await mine.add("out", 1) == 0
    gate, asked = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        asked.set()
        await gate.wait()

    two.wires.after[VERIFY] = slow
    sending = asyncio.create_task(send(there))
    await asked.wait()
    ender = await one.producer(1, mine.name, like=mine)
    assert await ender.end() == 0
    assert len(markers(two, 1)) == 1, "no second one"
    gate.set()
    assert await sending is AGAIN
    assert not is_open(two, 1)


@pytest.mark.proves("append-behind-the-marker")
async def test_a_change_of_leader_between_verification_and_append_is_noticed(nodes: CoordinatorCluster) -> None:
    """Another leader may have written the marker."""
    _, two, mine, there = await apart(nodes, 1)
    assert await mine.add("out", 1) == 0
    gate, asked = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        asked.set()
        await gate.wait()

    two.wires.after[VERIFY] = slow
    sending = asyncio.create_task(send(there, sequence=0))
    await asked.wait()
    await nodes.move("out", 1, 1)
    assert await mine.end() == 0
    await nodes.move("out", 1, 2)
    gate.set()
    assert await sending is AGAIN
    assert not is_open(two, 1)


async def test_questions_of_one_loop_iteration_go_out_as_one_request(nodes: CoordinatorCluster) -> None:
    one, two = await nodes.open(1, 2)
    names = [name for name in map(str, range(60)) if nodes.index_of(name) == 0][:8]
    mine = [await (await one.producer(2, name)).init() for name in names]
    partition = two.partition(1, "out")
    admissions = await asyncio.gather(
        *(two.transactions.admit(each.name, each.producer_id, each.epoch, [partition], joins=True) for each in mine)
    )
    (asked,) = two.wires.asked(VERIFY)
    assert [row.transactional_id for row in asked.transactions] == names
    for admission in admissions:
        admission.check(("out", 1))
        admission.close()
    assert not len(two.transactions._admissions._guards)
    for each in mine:
        assert (await one.describe(each.name)).partitions == {("out", 1): None}


async def test_a_question_that_waits_for_an_end_does_not_delay_other_questions(nodes: CoordinatorCluster) -> None:
    one, two = await nodes.open(1, 2)
    names = [name for name in map(str, range(60)) if nodes.index_of(name) == 0][:2]
    busy, idle = [await (await one.producer(2, name)).init() for name in names]
    assert (await busy.produce("out", b"x")).error_code == 0
    one.disk.hold_syncs()  # the marker does not become durable, nor does the decision
    ending = asyncio.create_task(busy.end())
    request = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnRequestTransaction(
                transactional_id=each.name,
                producer_id=each.producer_id,
                producer_epoch=each.epoch,
                verify_only=verify,
                topics=[AddPartitionsToTxnRequestTopic(name="out", partitions=[0, 1])],
            )
            for each, verify in ((busy, False), (idle, True))
        ]
    )
    await until(lambda: one.transactions.shards.here()[0].slots.get(busy.name).lock.is_taken)
    answer = await two.peers.call(1, VERIFY, 5, request, 5_000)
    codes = [
        [row.partition_error_code for row in result.topic_results[0].results_by_partition]
        for result in answer.results_by_transaction
    ]
    assert codes == [[ErrorCode.CONCURRENT_TRANSACTIONS] * 2, [ErrorCode.INVALID_TXN_STATE] * 2]
    one.disk.release_syncs()
    assert await ending == 0


@VERSIONS
async def test_offsets_are_part_of_a_transaction_that_another_broker_coordinates(
    nodes: CoordinatorCluster, version: int
) -> None:
    one, two, mine, there = await apart(nodes, version)
    group = nodes.name_at(1, "g")
    if version == 1:
        assert await there.commit_offsets({0: 5}, version=3, group_id=group) == [ErrorCode.INVALID_TXN_STATE]
        assert await mine.add_group(group) == 0
    request = there.commit_request({0: 5}, group_id=group)
    response = await there.wire.call(request, {1: 3, 2: 5}[version])
    assert [row.error_code for row in response.topics[0].partitions] == [0]
    await two.ask.offsets(group)
    assert two.ask.unstable(group) == [("t", 0)]
    assert await mine.end() == 0
    found = (await two.ask.offsets(group)).get("t", 0)
    assert found is not None
    assert found.offset == 5
    assert two.ask.unstable(group) == []
    assert one.groups.shards.of(group) is None


@pytest.mark.proves("append-behind-the-marker")
@VERSIONS
async def test_offsets_that_come_when_the_marker_has_been_are_refused(nodes: CoordinatorCluster, version: int) -> None:
    one, two, mine, there = await apart(nodes, version)
    group = nodes.name_at(1, "g")
    if version == 1:
        assert await mine.add_group(group) == 0
    gate, asked = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        asked.set()
        await gate.wait()

    two.wires.after[VERIFY] = slow
    request = there.commit_request({0: 5}, group_id=group)
    committing = asyncio.create_task(there.wire.call(request, {1: 3, 2: 5}[version]))
    await asked.wait()
    ender = await one.producer(version, mine.name, like=mine)
    assert await ender.end(commit=False) == 0
    gate.set()
    codes = [row.error_code for row in (await committing).topics[0].partitions]
    assert codes == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS], "try again"
    assert two.ask.unstable(group) == []
    assert not is_open(two, 1, CONSUMER_OFFSETS)


async def test_offsets_for_a_group_that_another_broker_coordinates_are_not_taken(nodes: CoordinatorCluster) -> None:
    _, _, _, there = await apart(nodes, 2)
    assert await there.commit_offsets({0: 5}, group_id=nodes.name_at(0, "g")) == [ErrorCode.NOT_COORDINATOR]


@pytest.mark.proves("pending-offsets-of-a-moved-group")
async def test_failover_of_the_group_with_offsets_pending(nodes: CoordinatorCluster) -> None:
    """The offsets are unstable at the next coordinator of the group until it gets the marker."""
    one, two, mine, there = await apart(nodes, 2)
    group = nodes.name_at(1, "g")
    assert await there.commit_offsets({0: 5}, group_id=group) == [0]
    await nodes.move(CONSUMER_OFFSETS, 1, 1)
    await one.ask.offsets(group)
    assert one.ask.unstable(group) == [("t", 0)]
    assert await mine.end() == 0
    found = (await one.ask.offsets(group)).get("t", 0)
    assert (found is not None and found.offset, one.ask.unstable(group)) == (5, [])
    await nodes.move(CONSUMER_OFFSETS, 1, 2)
    found = (await two.ask.offsets(group)).get("t", 0)
    assert (found is not None and found.offset, two.ask.unstable(group)) == (5, [])


@pytest.mark.proves("pending-offsets-of-a-moved-group")
async def test_failover_of_both_coordinators_with_offsets_pending(nodes: CoordinatorCluster) -> None:
    one, two, mine, there = await apart(nodes, 2)
    group = nodes.name_at(1, "g")
    assert await there.commit_offsets({0: 5}, group_id=group) == [0]
    await nodes.move(CONSUMER_OFFSETS, 1, 1)
    await nodes.move(TRANSACTION_STATE, 0, 2)
    ender = await two.producer(2, mine.name, like=mine)
    assert await ender.end(commit=False) == 0
    assert (await one.ask.offsets(group)).get("t", 0) is None
    assert one.ask.unstable(group) == []


@pytest.mark.proves("marker-at-the-next-coordinator")
async def test_marker_that_comes_before_the_pending_offsets_are_loaded_decides_them(nodes: CoordinatorCluster) -> None:
    one, two, mine, there = await apart(nodes, 2)
    group = nodes.name_at(1, "g")
    assert await there.commit_offsets({0: 5}, group_id=group) == [0]
    reading = one.groups.shards._reading
    await reading.acquire()  # the next coordinator of the group is busy with another partition
    await nodes.move(CONSUMER_OFFSETS, 1, 1)
    assert await mine.end() == 0
    asking = asyncio.create_task(one.ask.offsets(group))
    await asyncio.sleep(0.02)
    assert not asking.done()
    reading.release()
    found = (await asking).get("t", 0)
    assert (found is not None and found.offset, one.ask.unstable(group)) == (5, [])
    assert not two.groups.shards.at(1)


async def test_an_operators_marker_breaks_into_no_write_under_way(nodes: CoordinatorCluster) -> None:
    """The operator's tool aborts a hanging transaction.

    A batch that was verified earlier is not appended after the marker.
    """
    _, two, mine, there = await apart(nodes, 2)
    assert await send(there) is ErrorCode.NONE
    partition = two.partition(1, "out")
    guard = two.transactions._admissions._guards.take(partition, mine.producer_id)
    hanging = two.transactions.abort_hanging(
        ProducerIdentity(mine.producer_id, mine.epoch), ("out", 1), -1, ClientName("op", "h")
    )
    assert await code_of(hanging) is ErrorCode.INVALID_TXN_STATE
    guard.check()
    assert await mine.end() == 0
    with pytest.raises(Exception, match="ended while it was looked up"):
        guard.check()
    two.transactions._admissions._guards.release(guard)
