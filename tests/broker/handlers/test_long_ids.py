"""Transactional ids: one limit for their length, in every request that names one."""

from __future__ import annotations

import pytest
from broker.harness import Harness
from broker.transactional import TransactionalProducer
from semel_broker.config.limits import Limits
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest
from semel_protocol.messages.k65_describe_transactions import DescribeTransactionsRequest
from semel_protocol.messages.k66_list_transactions import ListTransactionsRequest
from semel_protocol.messages.k20001_begin_transaction_group import BeginTransactionGroupRequest

MOST = Limits().id_bytes_max
TOO_LONG = "x" * (MOST + 1)
WIDE = "é" * (MOST // 2 + 1)
"""Fewer characters than the limit, more bytes."""


@pytest.mark.parametrize("name", [TOO_LONG, WIDE, "x" * 32_000])
@pytest.mark.parametrize("version", [1, 2])
async def test_every_request_refuses_an_id_that_is_too_long(broker: Harness, name: str, version: int) -> None:
    wire = await broker.wire()
    await wire.create_topic("out")
    init = await wire.call(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000), 4)
    assert init.error_code == ErrorCode.INVALID_REQUEST
    one = TransactionalProducer(wire, version, name)
    one.producer_id, one.epoch = 1, 0
    assert await one.add("out", 0) == ErrorCode.INVALID_REQUEST
    assert await one.add_group() == ErrorCode.INVALID_REQUEST
    assert await one.end() == ErrorCode.INVALID_REQUEST
    assert (await one.send(one.produce_request("out", b"x"))).error_code == ErrorCode.INVALID_REQUEST
    assert (await wire.call(one.commit_request({0: 1}), 3)).topics[0].partitions[0].error_code == (
        ErrorCode.INVALID_REQUEST
    )
    (row,) = (await wire.call(DescribeTransactionsRequest(transactional_ids=[name]), 0)).transaction_states
    assert row.error_code == ErrorCode.INVALID_REQUEST
    assert f"at most {MOST} are allowed" in row.error_message
    assert len(row.error_message) < 300
    found = await wire.call(FindCoordinatorRequest(key=name, key_type=1), 3)
    assert found.error_code == ErrorCode.INVALID_REQUEST
    group = await wire.call(BeginTransactionGroupRequest(group=name, owner="o", timeout_ms=1000), 0)
    assert group.error_code == ErrorCode.INVALID_REQUEST
    listed = await wire.call(ListTransactionsRequest(state_filters=[], producer_id_filters=[]))
    assert listed.transaction_states == []


@pytest.mark.parametrize("name", ["x" * MOST, "é" * (MOST // 2)])
async def test_an_id_of_the_greatest_length_is_served(broker: Harness, name: str) -> None:
    wire = await broker.wire()
    await wire.create_topic("out")
    one = await TransactionalProducer(wire, 2, name).init()
    assert (await one.produce("out", b"x")).error_code == 0
    assert await one.end() == 0
    listed = await wire.call(
        ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern="x+|é+"), 2
    )
    assert [row.transactional_id for row in listed.transaction_states] == [name]
