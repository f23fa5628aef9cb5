"""A transaction survives the move of its coordinator in every state, and ends once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from broker.cluster.brokers import until
from broker.coordination.coordinator_cluster import (
    MARKERS,
    CoordinatorBroker,
    CoordinatorCluster,
    code_of,
    is_open,
    markers,
)
from broker.wire import Wire
from semel_broker.scheduling.turns import Turns
from semel_broker.txn.markers.channel import Marker
from semel_broker.txn.markers.remote_destination import RemoteDestination, codes_of, request_of
from semel_broker.txn.model import identity, metadata, state
from semel_broker.txn.model.identity import ClientName, ProducerIdentity
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k61_describe_producers import DescribeProducersRequest, DescribeProducersRequestTopic
from semel_protocol.messages.k65_describe_transactions import DescribeTransactionsRequest
from semel_protocol.messages.k66_list_transactions import ListTransactionsRequest
from semel_storage.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE

VERSIONS = pytest.mark.parametrize("version", [1, 2])
TIMEOUT_MS = 60_000


async def label(node: CoordinatorBroker, name: str) -> str:
    return (await node.describe(name)).state.label


async def until_state(node: CoordinatorBroker, name: str, wanted: str) -> None:
    async with asyncio.timeout(10):
        while await label(node, name) != wanted:
            await asyncio.sleep(0.002)


async def begin(nodes: CoordinatorCluster, version: int = 2, name: str = "") -> Any:
    """A producer of broker 1 with a record in both partitions of `out`."""
    one, two = nodes.brokers[1], nodes.brokers[2]
    producer = await (await one.producer(version, name or nodes.name_at(0))).init()
    for index, node in enumerate((one, two)):
        there = await node.producer(version, producer.name, like=producer)
        if version == 1:
            assert await producer.add("out", index) == 0
        assert (await there.send(there.produce_request("out", b"x", partition=index))).error_code == 0
    return producer


@pytest.mark.proves("moved-transaction")
@VERSIONS
async def test_an_open_transaction_is_ended_at_the_next_coordinator(nodes: CoordinatorCluster, version: int) -> None:
    one, two = await nodes.open(1, 2)
    mine = await begin(nodes, version)
    await nodes.move(TRANSACTION_STATE, 0, 2)
    assert await mine.end() == ErrorCode.NOT_COORDINATOR
    there = await two.producer(version, mine.name, like=mine)
    assert await there.end() == 0
    for node, index in ((one, 0), (two, 1)):
        assert [kind for _, kind, _ in markers(node, index)] == ["COMMIT"]
        assert not is_open(node, index)


@pytest.mark.proves("late-commit-after-a-move")
async def test_a_late_end_is_refused_by_a_coordinator_that_has_moved_away_and_back(nodes: CoordinatorCluster) -> None:
    """Transaction version 1: only the connection shows that the request is not for the open transaction."""
    one, _ = await nodes.open(1, 2)
    left = await one.wire()
    mine = await begin(nodes, 1)
    await nodes.move(TRANSACTION_STATE, 0, 2)
    await nodes.move(TRANSACTION_STATE, 0, 1)
    await nodes.ready(TRANSACTION_STATE, 0, 1)
    newest, mine.wire = mine.wire, left
    with pytest.raises(asyncio.IncompleteReadError):
        await mine.end(commit=False)
    assert await label(one, mine.name) == "Ongoing"
    mine.wire = newest
    assert await mine.end() == 0
    assert [kind for _, kind, _ in markers(one, 0)] == ["COMMIT"]


@pytest.mark.proves("moved-transaction")
@VERSIONS
async def test_a_decided_transaction_is_completed_by_the_next_coordinator(
    nodes: CoordinatorCluster, version: int
) -> None:
    """PREPARE_COMMIT is stored, but no other broker is reachable. A repeated EndTxn is answered with the commit."""
    one, two = await nodes.open(1, 2)
    mine = await begin(nodes, version)

    async def unreachable() -> None:
        raise ConnectionError("nobody there")

    one.wires.before[MARKERS] = unreachable
    there = await two.producer(version, mine.name, like=mine)
    ending = asyncio.create_task(mine.end())
    await until_state(one, mine.name, "PrepareCommit")
    await until(lambda: one.transactions.markers.waiting)
    assert is_open(two, 1)
    await nodes.move(TRANSACTION_STATE, 0, 2)
    assert await ending in (0, ErrorCode.NOT_COORDINATOR), "decided, or: ask again"
    await until_state(two, mine.name, "CompleteCommit")
    assert [is_open(one, 0), is_open(two, 1)] == [False, False]
    assert await there.end() == 0
    epoch = two.partition(0, TRANSACTION_STATE).leader_epoch
    assert markers(two, 1)[-1][1:] == ("COMMIT", epoch)
    await until(lambda: not one.transactions.markers.waiting)
    assert len(markers(two, 1)) == 1, "the last coordinator tries nothing again"


@pytest.mark.parametrize("how", ["kill", "crash"])
@pytest.mark.parametrize("decided", [False, True])
async def test_the_coordinators_broker_dies_amid_a_transaction(
    nodes: CoordinatorCluster, how: str, decided: bool
) -> None:
    """The broker is also the leader of one of the partitions.

    The others elect new leaders, and the transaction ends once.
    """
    one, two, three = await nodes.open(1, 2, 3)
    mine = await begin(nodes)
    there = await two.producer(2, mine.name, like=mine)
    if decided:
        one.wires.before[MARKERS] = asyncio.Event().wait
        ending = asyncio.create_task(mine.end())
        await until_state(one, mine.name, "PrepareCommit")
        await until(lambda: two.partition(0, TRANSACTION_STATE).high_watermark > 2)
        ending.cancel()
    await one.die(how)
    await nodes.ready(TRANSACTION_STATE, 0, 2)
    await until(lambda: two.partition(0, "out").is_leading or three.partition(0, "out").is_leading)
    assert await there.end() == 0
    await until(lambda: not is_open(two, 1))
    leader = two if two.partition(0, "out").is_leading else three
    await until(lambda: not is_open(leader, 0))
    for node, index in ((leader, 0), (two, 1)):
        assert {kind for _, kind, _ in markers(node, index)} == {"COMMIT"}


@pytest.mark.proves("marker-of-a-former-coordinator")
async def test_zombie_coordinators_marker_is_refused_by_every_partition_that_its_successor_has_written_to(
    nodes: CoordinatorCluster,
) -> None:
    """The marker was under way when the leadership moved.

    It arrives in the next transaction, which has the same producer epoch.
    """
    one, two = await nodes.open(1, 2)
    mine = await begin(nodes, 1)
    gate, arrived = asyncio.Event(), asyncio.Event()

    async def late() -> None:
        arrived.set()
        await gate.wait()

    one.wires.before[MARKERS] = late
    ending = asyncio.create_task(mine.end())
    await arrived.wait()
    destination = one.transactions.markers._far[2]
    assert isinstance(destination, RemoteDestination)
    await nodes.move(TRANSACTION_STATE, 0, 2)
    await ending
    await until_state(two, mine.name, "CompleteCommit")
    there = await two.producer(1, mine.name, like=mine)
    assert (await there.produce("out", b"next", partition=1)).error_code == 0
    gate.set()
    await until(lambda: not one.transactions.markers._writing)
    assert is_open(two, 1), "the next transaction is not ended by the marker of the last one"
    assert [epoch for _, _, epoch in markers(two, 1)] == [two.partition(0, TRANSACTION_STATE).leader_epoch]
    assert await there.end() == 0


@pytest.mark.proves("coordinator-without-a-session")
async def test_zombie_coordinator_decides_nothing(nodes: CoordinatorCluster) -> None:
    """Its session is over, but the coordinator does not know it yet."""
    one, two = await nodes.open(1, 2)
    mine = await begin(nodes)
    one.cut_off()
    await nodes.move(TRANSACTION_STATE, 0, 2)
    await nodes.move("out", 0, 2)
    one.session.deadline = 0.0
    assert await mine.end() == ErrorCode.NOT_COORDINATOR
    assert await code_of(one.describe(mine.name)) is ErrorCode.NOT_COORDINATOR
    slices = Turns(asyncio.get_running_loop(), lambda: 1.0).slices()
    assert list(await one.transactions.listing(slices)) == []
    there = await two.producer(2, mine.name, like=mine)
    assert await there.end(commit=False) == 0
    assert markers(two, 1)[-1][1] == "ABORT"


@pytest.mark.proves("coordinator-without-a-session")
async def test_a_request_that_waited_for_the_lock_is_not_answered_from_stale_state(nodes: CoordinatorCluster) -> None:
    one, _ = await nodes.open(1, 2)
    mine = await begin(nodes)
    shard = one.transactions.shards.of(mine.name)
    assert shard is not None
    slot = shard.slots.get(mine.name)
    assert slot.lock.take()
    places = [("out", 0)]  # enrolled already: there is nothing to store that could fail
    adding = asyncio.create_task(
        code_of(shard.add_partitions(mine.name, ProducerIdentity(mine.producer_id, mine.epoch), places, version=2))
    )
    await asyncio.sleep(0.01)
    one.session.deadline = 0.0
    slot.lock.give()
    assert await adding is ErrorCode.NOT_COORDINATOR


@pytest.mark.proves("marker-retried-after-a-move")
@VERSIONS
async def test_marker_retried_after_its_reply_was_lost_is_written_once(nodes: CoordinatorCluster, version: int) -> None:
    one, two = await nodes.open(1, 2)
    mine = await begin(nodes, version)
    lost = []

    async def lose() -> None:
        if not lost:
            lost.append(True)
            raise ConnectionResetError("the answer was on its way")

    one.wires.after[MARKERS] = lose
    assert await mine.end() == 0
    assert (len(one.wires.asked(MARKERS)), len(markers(two, 1))) == (2, 1)


@pytest.mark.proves("marker-retried-after-a-move")
async def test_markers_that_were_given_up_and_arrive_late_do_not_end_the_next_transaction(
    nodes: CoordinatorCluster,
) -> None:
    """Both transactions have the same epochs (transaction version 1).

    Only the replaced connection shows that the markers belong to the last one.
    """
    one, two = await nodes.open(1, 2)
    kept = two.feed.image.registration(2)
    assert kept is not None
    older = await Wire.connect(kept.value.peer_port)
    await asyncio.sleep(0.01)
    mine = await begin(nodes, 1)
    assert await mine.end() == 0
    (late,) = one.wires.asked(MARKERS)
    assert await mine.add("out", 1) == 0
    there = await two.producer(1, mine.name, like=mine)
    assert (await there.send(mine.produce_request("out", b"next", partition=1))).error_code == 0
    older.send(late, 1, client_id="broker-1")
    assert await older.closed_by_peer()
    assert is_open(two, 1)
    assert await mine.end() == 0


@pytest.mark.proves("marker-for-a-former-leader")
async def test_a_partition_that_moves_while_its_marker_is_under_way_gets_it_at_its_next_leader(
    nodes: CoordinatorCluster,
) -> None:
    """The last leader is paused. The channel does not wait for its answer."""
    one, two, three = await nodes.open(1, 2, 3)
    mine = await begin(nodes)
    gate, arrived = asyncio.Event(), asyncio.Event()

    async def paused() -> None:
        if not arrived.is_set():
            arrived.set()
            await gate.wait()

    one.wires.before[MARKERS] = paused
    ending = asyncio.create_task(mine.end())
    await arrived.wait()
    await nodes.move("out", 1, 3)
    assert await ending == 0
    assert [kind for _, kind, _ in markers(three, 1)] == ["COMMIT"]
    gate.set()
    await until(lambda: not one.transactions.markers._writing)
    assert len(markers(three, 1)) == 1
    assert two.partition(1, "out").leader == 3


async def test_one_request_carries_all_markers_queued_for_a_broker(nodes: CoordinatorCluster) -> None:
    one, two = await nodes.open(1, 2)
    names = [name for name in map(str, range(40)) if nodes.index_of(name) == 0][:10]
    mine = [await begin(nodes, 2, name) for name in names]
    gate = asyncio.Event()
    one.wires.before[MARKERS] = gate.wait
    ending = [asyncio.create_task(each.end()) for each in mine]
    for name in names:
        await until_state(one, name, "PrepareCommit")
    gate.set()
    assert await asyncio.gather(*ending) == [0] * 10
    asked = one.wires.asked(MARKERS)
    assert sum(len(request.markers) for request in asked) == 10
    assert len(asked) <= 2, "the first ones', and then all the others'"
    assert len(markers(two, 1)) == 10


@pytest.mark.proves("moved-transaction")
async def test_the_timeout_sweep_is_the_next_coordinators(nodes: CoordinatorCluster) -> None:
    one, two = await nodes.open(1, 2, **{"transaction.abort.timed.out.transaction.cleanup.interval.ms": "50"})
    producer = await (await one.producer(2, nodes.name_at(0))).init(timeout_ms=300)
    assert (await producer.produce("out", b"x")).error_code == 0
    await nodes.move(TRANSACTION_STATE, 0, 2)
    await until(lambda: markers(one, 0))
    assert [kind for _, kind, _ in markers(one, 0)] == ["ABORT"]
    fences = two.transactions.fences(producer.name)
    assert fences[-1].reason.name == "TIMED_OUT"


async def test_a_new_instance_at_the_next_coordinator_fences_the_old_one(nodes: CoordinatorCluster) -> None:
    one, two = await nodes.open(1, 2)
    old = await begin(nodes)
    await nodes.move(TRANSACTION_STATE, 0, 2)
    new = await (await two.producer(2, old.name)).init()
    assert (new.producer_id, new.epoch > old.epoch) == (old.producer_id, True)
    assert [kind for _, kind, _ in markers(one, 0)] == ["ABORT"]
    assert (await old.send(old.produce_request("out", b"y"))).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


# --- rotation ---


def few_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (identity, state):
        monkeypatch.setattr(module, "EPOCH_MAX", 3)
        monkeypatch.setattr(module, "EPOCH_LAST", 2)


Hold = Callable[[CoordinatorCluster, CoordinatorBroker], Awaitable[None]]


@pytest.mark.proves("epochs-used-up-amid-a-move")
@pytest.mark.parametrize("step", ["before the decision", "decided", "markers written", "complete"])
@pytest.mark.parametrize("how", ["end", "new instance", "timeout"])
async def test_producer_id_rotation_across_a_failover_at_each_step(
    nodes: CoordinatorCluster, monkeypatch: pytest.MonkeyPatch, step: str, how: str
) -> None:
    """The epochs of an id are used up, and the coordinator moves while the transaction with the last epoch ends.

    The producer continues with a new id at epoch 0. The old id is fenced everywhere. The open transaction is decided
    once.
    """
    few_epochs(monkeypatch)
    one, two = await nodes.open(1, 2)
    name = nodes.name_at(0)
    mine = await (await one.producer(2, name)).init()
    while mine.epoch < 2:
        mine = await (await one.producer(2, name)).init()
    for index, node in enumerate((one, two)):
        there = await node.producer(2, name, like=mine)
        assert (await there.send(there.produce_request("out", b"x", partition=index))).error_code == 0
    old = ProducerIdentity(mine.producer_id, mine.epoch)
    reached, gate = asyncio.Event(), asyncio.Event()

    async def stall() -> None:
        reached.set()
        await gate.wait()

    if step == "decided":
        one.wires.before[MARKERS] = stall
    elif step == "markers written":
        one.wires.after[MARKERS] = stall
    elif step == "complete":
        reached.set()

    async def act(node: CoordinatorBroker) -> None:
        if how == "end":
            await node.commit(name, old)
        elif how == "new instance":
            await node.transactions.init_producer_id(name, TIMEOUT_MS, client=ClientName("new", "h"))
        else:
            monkeypatch.setattr(state, "is_timed_out", lambda txn, *_: txn.state is metadata.ONGOING)
            await (await node.transactions.shards.ready(name)).time_out(name)

    if step != "before the decision":
        acting = asyncio.create_task(code_of(act(one)))
        await reached.wait()
        if step == "complete":
            assert await acting is ErrorCode.NONE
            await until(
                lambda: two.partition(0, TRANSACTION_STATE).end_offset == one.partition(0, TRANSACTION_STATE).end_offset
            )
    await nodes.move(TRANSACTION_STATE, 0, 2)
    gate.set()
    await nodes.ready(TRANSACTION_STATE, 0, 2)
    if step == "before the decision" or how == "new instance":
        assert await code_of(act(two)) in (ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS)
    wanted = "COMMIT" if how == "end" else "ABORT"
    for node, index in ((one, 0), (two, 1)):
        await until(lambda node=node, index=index: not is_open(node, index))  # type: ignore[misc]
        assert {kind for _, kind, _ in markers(node, index)} == {wanted}
    new = await (await two.producer(2, name)).init()
    assert new.producer_id != old.producer_id
    assert (await new.produce("out", b"new", partition=1)).error_code == 0
    zombie = await one.producer(2, name, like=mine)
    assert (await zombie.send(zombie.produce_request("out", b"late", sequence=1))).error_code != 0
    assert await code_of(two.commit(name, old)) is not ErrorCode.NONE


# --- looking ---


async def test_each_broker_lists_and_describes_its_own_transactions(nodes: CoordinatorCluster) -> None:
    one, two = await nodes.open(1, 2)
    mine, other = nodes.name_at(0), nodes.name_at(1)
    await (await one.producer(2, mine)).init()
    await (await two.producer(2, other)).init()
    wire = await one.wire()
    listed = await wire.call(ListTransactionsRequest(state_filters=[], producer_id_filters=[]))
    assert [row.transactional_id for row in listed.transaction_states] == [mine]
    described = await wire.call(DescribeTransactionsRequest(transactional_ids=[mine, other]))
    assert [row.error_code for row in described.transaction_states] == [0, ErrorCode.NOT_COORDINATOR]


@pytest.mark.proves("foreign-hanging-transaction")
async def test_a_hanging_transaction_is_ended_only_if_no_coordinator_knows_it(nodes: CoordinatorCluster) -> None:
    """Any broker may be the coordinator, so all are asked. A broker that does not answer may be the one."""
    one, two = await nodes.open(1, 2)
    mine = await begin(nodes)
    me, by = ProducerIdentity(mine.producer_id, mine.epoch), ClientName("op", "h")

    async def abort(node: CoordinatorBroker, index: int, producer: ProducerIdentity = me) -> ErrorCode:
        return await code_of(node.transactions.abort_hanging(producer, ("out", index), -1, by))

    assert await abort(two, 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await abort(two, 1) is ErrorCode.INVALID_TXN_STATE, "broker 1 knows it"
    assert await abort(one, 0) is ErrorCode.INVALID_TXN_STATE
    two.unplug()
    assert await abort(two, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    two.plug_in()
    two.append(b"left", topic="out", index=1, producer_id=99, sequence=0, is_transactional=True)
    assert await abort(two, 1, ProducerIdentity(99, 0)) is ErrorCode.NONE
    assert [kind for _, kind, _ in markers(two, 1)] == ["ABORT"]
    assert await mine.end() == 0


# --- the wire's form ---


def test_markers_of_several_coordinators_share_a_request_and_each_gets_its_answer() -> None:
    first = Marker(ProducerIdentity(5, 1), True, 3)
    second = Marker(ProducerIdentity(5, 2), False, 4)
    entries = [(first, ("a", 0)), (second, ("a", 0)), (first, ("b", 1)), (first, ("a", 2))]
    request = request_of(entries)
    assert [(row.producer_epoch, row.coordinator_epoch, row.transaction_result) for row in request.markers] == [
        (1, 3, True),
        (2, 4, False),
    ]
    answered = [
        ErrorCode.NONE,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NONE,
    ]
    response = _answer(request, dict(zip(entries, answered, strict=True)))
    codes = codes_of(request, response)
    assert [codes[entry] for entry in entries] == answered
    response.markers.pop()
    with pytest.raises(Exception, match="4 markers were sent, 3 answered"):
        codes_of(request, response)


def _answer(request: Any, codes: Any) -> Any:
    from semel_broker.peer_handlers.k27_write_txn_markers import _response
    from semel_protocol.messages.k27_write_txn_markers import WriteTxnMarkersResponse

    return WriteTxnMarkersResponse(markers=[_response(row, codes) for row in request.markers])


async def test_each_replica_describes_its_producers_and_other_brokers_refuse(
    nodes: CoordinatorCluster,
) -> None:
    """`kafka-transactions.sh find-hanging --broker-id` asks one broker for all partitions of which it has a replica."""
    one, two, three = await nodes.start(1, 2, 3)
    for name in (CONSUMER_OFFSETS, TRANSACTION_STATE, "out"):
        await nodes.topic([1, 2], [2, 1], name=name)
    await until(lambda: three.topics.get("out") is not None)
    mine = await begin(nodes)
    await until(lambda: two.partition(0, "out").end_offset == 1)
    request = DescribeProducersRequest(topics=[DescribeProducersRequestTopic(name="out", partition_indexes=[0, 2])])

    async def told(node: CoordinatorBroker) -> Any:
        rows = (await (await node.wire()).call(request)).topics[0].partitions
        assert rows[1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return rows[0]

    for node in (one, two):
        (producer,) = (await told(node)).active_producers
        assert (producer.producer_id, producer.current_txn_start_offset) == (mine.producer_id, 0)
    assert (await told(three)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    one.partition(0, "out").resign()
    two.partition(0, "out").resign()
    for node in (one, two):
        assert (await told(node)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "its session is over"
