"""A transaction group survives the move of its coordinator in every state of its step, and each step ends once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker.cluster.brokers import until
from broker.coordination.coordinator_cluster import MARKERS, CoordinatorBroker, CoordinatorCluster, is_open, markers
from semel_broker.txn.model.group_metadata import TransactionGroup
from semel_broker.txn.model.group_state import Begin, Decide, TransactionGroupDecision
from semel_broker.txn.model.identity import ProducerIdentity
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.internal_topics import TRANSACTION_STATE

TIMEOUT_MS = 60_000


def group_at(nodes: CoordinatorCluster, index: int = 0) -> str:
    """A transaction group of this partition. Kafka's hash would put none of its members there."""
    return nodes.name_at(index, "g")


async def begin(node: CoordinatorBroker, group: str, owner: str = "driver") -> TransactionGroup:
    return await node.transactions.groups.begin(Begin(group=group, owner=owner, timeout_ms=TIMEOUT_MS))


async def decide(
    node: CoordinatorBroker, group: str, epoch: int, token: str, *members: Any
) -> TransactionGroupDecision:
    transactions = [(each.name, ProducerIdentity(each.producer_id, each.epoch)) for each in members]
    return await node.transactions.groups.decide(
        Decide(group=group, epoch=epoch, token=token, commit=True, transactions=transactions)
    )


async def join(nodes: CoordinatorCluster, at: CoordinatorBroker, name: str, epoch: int) -> Any:
    step = await at.transactions.init_producer_id(name, TIMEOUT_MS, group_epoch=epoch)
    assert step.answer is not None
    producer = await at.producer(2, name)
    producer.producer_id, producer.epoch = step.answer.producer_id, step.answer.epoch
    return producer


async def work(nodes: CoordinatorCluster, at: CoordinatorBroker, name: str, epoch: int) -> Any:
    """A member, initialised at the coordinator `at`, that has written a record to both partitions of `out`."""
    producer = await join(nodes, at, name, epoch)
    for index, node in enumerate((nodes.brokers[1], nodes.brokers[2])):
        there = await node.producer(2, name, like=producer)
        assert (await there.send(there.produce_request("out", b"x", partition=index))).error_code == 0
    return producer


async def workers(
    nodes: CoordinatorCluster, at: CoordinatorBroker, group: str, epoch: int, count: int = 3
) -> list[Any]:
    return [await work(nodes, at, f"{group}/m{n}", epoch) for n in range(count)]


async def label(node: CoordinatorBroker, name: str) -> str:
    return (await node.describe(name)).state.label


async def until_all(node: CoordinatorBroker, members: list[Any], wanted: str) -> None:
    async with asyncio.timeout(10):
        for each in members:
            while await label(node, each.name) != wanted:
                await asyncio.sleep(0.002)


async def test_an_open_step_is_decided_at_the_next_coordinator(nodes: CoordinatorCluster) -> None:
    one, two = await nodes.open(1, 2)
    group = group_at(nodes)
    step = await begin(one, group)
    members = await workers(nodes, one, group, step.epoch)
    await nodes.move(TRANSACTION_STATE, 0, 2)
    with pytest.raises(KafkaError) as refused:
        await decide(one, group, step.epoch, "q:0", *members)
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    members.append(await work(nodes, two, f"{group}/late", step.epoch))
    assert not (await decide(two, group, step.epoch, "q:0", *members[1:])).already
    for node, index in ((one, 0), (two, 1)):
        assert sorted(kind for _, kind, _ in markers(node, index)) == ["ABORT", "COMMIT", "COMMIT", "COMMIT"]
        assert not is_open(node, index)


async def test_a_decision_continues_at_the_next_coordinator_and_a_retry_gets_its_outcome(
    nodes: CoordinatorCluster,
) -> None:
    one, two = await nodes.open(1, 2)
    group = group_at(nodes)
    step = await begin(one, group)
    members = await workers(nodes, one, group, step.epoch)

    async def unreachable() -> None:
        raise ConnectionError("nobody there")

    one.wires.before[MARKERS] = unreachable
    deciding = asyncio.create_task(decide(one, group, step.epoch, "q:0", *members))
    await until_all(one, members, "PrepareCommit")
    assert is_open(two, 1)
    await nodes.move(TRANSACTION_STATE, 0, 2)
    assert not (await deciding).already, "decided, whichever coordinator sends the markers"
    await until_all(two, members, "CompleteCommit")
    assert [is_open(one, 0), is_open(two, 1)] == [False, False]
    again = await decide(two, group, step.epoch, "q:0", *members)
    assert again.already
    assert [kind for _, kind, _ in markers(two, 1)] == ["COMMIT"] * 3
    following = await begin(two, group)
    assert (following.epoch, following.decided_token, following.decided_epoch) == (2, "q:0", 1)


async def test_a_driver_waiting_for_locks_gets_not_coordinator_when_the_coordinator_moves(
    nodes: CoordinatorCluster,
) -> None:
    one, two = await nodes.open(1, 2)
    group = group_at(nodes)
    step = await begin(one, group)
    members = await workers(nodes, one, group, step.epoch, 2)
    shard = one.transactions.shards.of(f"{group}/")
    assert shard is not None
    busy = await shard.slots.enter(members[1].name)
    deciding = asyncio.create_task(decide(one, group, step.epoch, "q:0", *members))
    behind = asyncio.create_task(decide(one, group, 99, "q:0"))
    await asyncio.sleep(0.02)
    await nodes.move(TRANSACTION_STATE, 0, 2)
    shard.slots.leave(busy)
    for each in (deciding, behind):
        with pytest.raises(KafkaError) as refused:
            await each
        assert refused.value.code is ErrorCode.NOT_COORDINATOR, "whether there is a step 99 is not for it to say"
    assert not (await decide(two, group, step.epoch, "q:0", *members)).already
    assert [kind for _, kind, _ in markers(two, 1)] == ["COMMIT"] * 2


async def test_a_worker_of_an_old_step_is_refused_by_partitions_on_other_brokers(nodes: CoordinatorCluster) -> None:
    """These brokers verify the producer at the coordinator before its first batch, and do not append the batch."""
    one, two = await nodes.open(1, 2)
    group = group_at(nodes)
    step = await begin(one, group)
    idle = await join(nodes, one, f"{group}/idle", step.epoch)
    await begin(one, group, owner="the next driver")
    there = await two.producer(2, idle.name, like=idle)
    row = await there.send(there.produce_request("out", b"late", partition=1))
    assert row.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert not is_open(two, 1)
    assert two.partition(1, "out").end_offset == 0


@pytest.mark.parametrize("how", ["kill", "crash"])
@pytest.mark.parametrize("decided", [False, True])
async def test_the_coordinators_broker_dies_amid_a_step(nodes: CoordinatorCluster, how: str, decided: bool) -> None:
    one, two, three = await nodes.open(1, 2, 3)
    group = group_at(nodes)
    step = await begin(one, group)
    members = await workers(nodes, one, group, step.epoch)
    if decided:
        one.wires.before[MARKERS] = asyncio.Event().wait
        end = one.partition(0, TRANSACTION_STATE).end_offset
        deciding = asyncio.create_task(decide(one, group, step.epoch, "q:0", *members))
        await until_all(one, members, "PrepareCommit")
        await until(lambda: two.partition(0, TRANSACTION_STATE).high_watermark > end)
        deciding.cancel()
    await one.die(how)
    await nodes.ready(TRANSACTION_STATE, 0, 2)
    await until(lambda: two.partition(0, "out").is_leading or three.partition(0, "out").is_leading)
    assert (await decide(two, group, step.epoch, "q:0", *members)).already is decided
    leader = two if two.partition(0, "out").is_leading else three
    await until(lambda: not is_open(two, 1) and not is_open(leader, 0))
    for node, index in ((leader, 0), (two, 1)):
        assert {kind for _, kind, _ in markers(node, index)} == {"COMMIT"}
    assert (await begin(two, group)).decided_token == "q:0"
