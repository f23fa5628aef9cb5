"""Replaced connections in transaction version 1, where one epoch serves all transactions of a producer.

A request over a connection that its producer has replaced is late. It must not become part of the current transaction.
"""

from __future__ import annotations

import pytest
from broker.conftest import StartBroker
from broker.harness import Harness
from broker.transactional import TransactionalProducer, stable_offsets
from broker.wire import records_of

PRODUCE_VERSION = 7
COMMIT_VERSION = 3


@pytest.fixture
async def broker(start_broker: StartBroker) -> Harness:
    broker = await start_broker(durability="os", transaction_version="1")
    await (await broker.wire()).create_topic("t", 2)
    return broker


async def begun(broker: Harness) -> TransactionalProducer:
    """A transaction over one connection, as Java's and several other clients send it."""
    one = await TransactionalProducer(await broker.wire(), 1).init()
    assert (await one.produce("t", b"a")).error_code == 0
    return one


@pytest.mark.proves("replaced-connection")
async def test_a_late_produce_over_a_replaced_connection_closes_it(broker: Harness) -> None:
    one = await begun(broker)
    late = one.produce_request("t", b"late")
    replaced, one.wire = one.wire, await broker.wire()
    assert await one.end(commit=False) == 0
    assert await one.add("t", 0) == 0  # the next transaction has begun, without any record
    replaced.send(late, PRODUCE_VERSION)
    assert await replaced.closed_by_peer()
    assert (await one.send(one.produce_request("t", b"b", sequence=1))).error_code == 0
    assert await one.end() == 0
    row = await one.wire.fetch("t", 0)
    assert [record.value for record in records_of(row.records) if len(record.value or b"") < 6] == [b"a", b"b"]
    assert [line["reason"] for line in broker.log.of("connection_closed")] == ["stale_connection"]


@pytest.mark.proves("replaced-connection")
async def test_late_offsets_over_a_replaced_connection_close_it(broker: Harness) -> None:
    one = await begun(broker)
    assert await one.add_group() == 0
    late = one.commit_request({0: 5})
    replaced, one.wire = one.wire, await broker.wire()
    assert await one.end(commit=False) == 0
    assert await one.add_group() == 0  # the next transaction commits offsets of another partition
    replaced.send(late, COMMIT_VERSION)
    assert await replaced.closed_by_peer()
    assert await one.commit_offsets({1: 7}) == [0]
    assert await one.end() == 0
    assert await stable_offsets(one.wire, 0, 1) == [(0, -1), (0, 7)]


async def test_a_new_coordinator_connection_does_not_replace_that_for_produces(broker: Harness) -> None:
    """As with librdkafka, which has a connection to the coordinator and one to the leader."""
    one = await TransactionalProducer(await broker.wire(), 1).init()
    partitions = await broker.wire()
    for value in (b"a", b"b", b"c"):
        one.wire = await broker.wire()  # a new coordinator connection for each transaction
        assert await one.add("t", 0) == 0
        coordinator, one.wire = one.wire, partitions
        assert (await one.send(one.produce_request("t", value))).error_code == 0
        one.wire = coordinator
        assert await one.end() == 0


async def test_a_new_epoch_may_use_a_replaced_connection(broker: Harness) -> None:
    one = await begun(broker)
    older, one.wire = one.wire, await broker.wire()
    assert await one.end() == 0
    again = await TransactionalProducer(older, 1).init()
    assert (await again.produce("t", b"b")).error_code == 0
    assert await again.end() == 0
