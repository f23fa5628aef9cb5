"""Admin: transactions. Against the real broker, and against a scripted one for coordinators that move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from broker.wire import Wire, batch
from client.fake_broker import FakeBroker
from semel import Admin, Producer, TopicPartition
from semel.admin import ProducerState
from semel.errors import (
    BrokerResponseError,
    InvalidRequestError,
    ProducerFenced,
    TransactionalIdNotFound,
    UnknownTopicOrPartitionError,
)
from semel_broker.node import Node
from semel_broker.testing.in_process import EphemeralBroker
from semel_protocol.batch import read_header
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest
from semel_protocol.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnRequestTopic
from semel_protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTransaction,
)
from support.against import OutsideBroker

AT = TopicPartition("t", 0)
NOT_YET = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS)
"""The answers of a coordinator that starts, or that ends an earlier transaction of the id."""


@pytest.fixture
async def admin(semel_broker: EphemeralBroker) -> AsyncIterator[Admin]:
    semel_broker.create_topic("t", 2)
    async with Admin(bootstrap_servers=semel_broker.bootstrap_servers) as made:
        yield made


@pytest.fixture
async def wire(semel_broker: EphemeralBroker) -> AsyncIterator[Wire]:
    made = await Wire.connect(semel_broker.port)
    yield made
    await made.close()


async def initialised(wire: Wire, name: str) -> tuple[int, int]:
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    await wire.call(FindCoordinatorRequest(key=name, key_type=1))  # Kafka creates the coordinators' topic then
    while (answer := await wire.call(request)).error_code in NOT_YET:
        await asyncio.sleep(0.01)
    assert answer.error_code == 0, answer
    return answer.producer_id, answer.producer_epoch


async def opened(wire: Wire, name: str) -> tuple[int, int]:
    """A transaction that contains t-0 and no records."""
    producer_id, epoch = await initialised(wire, name)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[AddPartitionsToTxnRequestTopic(name="t", partitions=[0])],
    )
    await wire.call(request)
    return producer_id, epoch


def hang(broker: EphemeralBroker, producer_id: int) -> None:
    """A record of a transaction that no coordinator knows."""
    data = batch(b"lost", producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)

    if isinstance(broker, OutsideBroker):
        broker.hang("t", data)
        return

    async def append(node: Node) -> None:
        node.broker.topics.partition("t", 0).append(data, header=read_header(data))

    broker.call(append)


@pytest.mark.semel_only("an id that was used before stays listed: the broker is not new")
async def test_ids_are_listed_by_name_by_state_and_by_producer(admin: Admin, wire: Wire) -> None:
    assert await admin.list_transactions() == []
    (b, _), (a, _) = await initialised(wire, "b"), await opened(wire, "a")
    assert [(row.transactional_id, row.producer_id, row.state) for row in await admin.list_transactions()] == [
        ("a", a, "Ongoing"),
        ("b", b, "Empty"),
    ]
    assert [row.transactional_id for row in await admin.list_transactions(states=["Ongoing"])] == ["a"]
    assert [row.transactional_id for row in await admin.list_transactions(producer_ids=[b, 999])] == ["b"]
    with pytest.raises(InvalidRequestError, match="Nonsense"):
        await admin.list_transactions(states=["Ongoing", "Nonsense"])


async def test_ids_are_described_in_the_order_asked_for_and_unknown_ones_named(admin: Admin, wire: Wire) -> None:
    await initialised(wire, "b")
    producer_id, epoch = await opened(wire, "a")
    b, a = await admin.describe_transactions(["b", "a"])
    assert (b.state, b.is_open, b.partitions, b.expires_at_ms) == ("Empty", False, (), None)
    assert (a.state, a.is_open, a.partitions, a.producer_id, a.producer_epoch) == (
        "Ongoing",
        True,
        (AT,),
        producer_id,
        epoch,
    )
    assert a.start_time_ms is not None
    assert a.expires_at_ms == a.start_time_ms + 60_000
    assert a.owner == ("client 'wire' at 127.0.0.1" if a.has_ledger else "")
    with pytest.raises(TransactionalIdNotFound, match="'c'") as raised:
        await admin.describe_transactions(["a", "c", "d"])
    assert "'d'" in raised.value.__notes__[0]
    assert await admin.describe_transactions([]) == []


@pytest.mark.semel_only("needs the fence ledger")
async def test_fencing_bumps_the_epoch_aborts_and_is_in_the_ledger(admin: Admin, wire: Wire) -> None:
    producer_id, epoch = await opened(wire, "a")
    left = await admin.fence_producers(["a"], reason="the till is closed")
    assert left["a"].producer_id == producer_id
    assert left["a"].producer_epoch > epoch
    (a,) = await admin.describe_transactions(["a"])
    assert (a.is_open, a.partitions) == (False, ())
    assert a.fences[-1].reason == "admin"
    assert a.fences[-1].note == "the till is closed"
    assert a.fences[-1].new_epoch == a.producer_epoch
    assert a.fences[0].old_epoch == epoch
    assert "the till is closed" in a.fences[-1].text


@pytest.mark.real_time
async def test_producers_of_partitions_are_described(semel_broker: EphemeralBroker, admin: Admin, wire: Wire) -> None:
    hang(semel_broker, 77)
    found = await admin.describe_producers([AT, TopicPartition("t", 1)])
    assert found[TopicPartition("t", 1)] == []
    (state,) = found[AT]
    assert (state.producer_id, state.producer_epoch, state.current_txn_start_offset) == (77, 0, 0)
    with pytest.raises(UnknownTopicOrPartitionError):
        await admin.describe_producers([AT, TopicPartition("nosuch", 0)])


@pytest.mark.real_time
async def test_a_hanging_transaction_is_ended_and_a_known_one_is_not(
    semel_broker: EphemeralBroker, admin: Admin, wire: Wire
) -> None:
    hang(semel_broker, 77)
    ((state,),) = (await admin.describe_producers([AT])).values()
    await admin.abort_transaction(AT, state)
    ((after,),) = (await admin.describe_producers([AT])).values()
    assert after.current_txn_start_offset is None
    if isinstance(semel_broker, OutsideBroker):
        return  # Kafka writes the marker into an open transaction of a coordinator, too
    producer_id, epoch = await opened(wire, "a")
    with pytest.raises(BrokerResponseError):
        await admin.abort_transaction(AT, ProducerState(producer_id=producer_id, producer_epoch=epoch))


async def test_a_coordinator_that_has_moved_is_looked_up_again(fake_broker: FakeBroker) -> None:
    lookups = 0

    async def find(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        nonlocal lookups
        assert request.key_type == 1
        lookups += 1
        return FindCoordinatorResponse(node_id=0, host="127.0.0.1", port=fake_broker.port)

    async def describe(request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        code = ErrorCode.NOT_COORDINATOR if lookups == 1 else ErrorCode.NONE
        return DescribeTransactionsResponse(
            transaction_states=[
                DescribeTransactionsResponseTransaction(
                    transactional_id=name, error_code=code, transaction_state="Empty", transaction_start_time_ms=-1
                )
                for name in request.transactional_ids
            ]
        )

    fake_broker.answers |= {10: find, 65: describe}
    async with Admin(bootstrap_servers=fake_broker.address, retry_backoff_ms=1) as admin:
        (found,) = await admin.describe_transactions(["a"])
    assert found.state == "Empty"
    assert found.start_time_ms is None
    assert found.fences == ()
    assert lookups == 2


@pytest.mark.real_time
@pytest.mark.parametrize("version", [1, 2])
async def test_the_fenced_producer_gets_the_client_and_the_reason(version: int) -> None:
    with EphemeralBroker({"transaction.version": version}) as broker:
        broker.create_topic("t")
        at = broker.bootstrap_servers
        async with (
            Admin(bootstrap_servers=at) as admin,
            Producer(bootstrap_servers=at, transactional_id="a") as producer,
        ):
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"never read")
            await admin.fence_producers(["a"], reason="the till is closed")
            with pytest.raises(ProducerFenced, match="the till is closed"):
                await producer.commit_transaction()
            (a,) = await admin.describe_transactions(["a"])
            assert not a.is_open
            end = await admin.list_offsets({AT: -1}, read_committed=True)
            assert end[AT].offset == 2, "the record and the abort marker"
