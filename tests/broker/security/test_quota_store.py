"""Quotas in the store of a cluster: followed by all brokers, and changed by two at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from broker.cluster.brokers import ControllerBroker, ControllerCluster, SharedLocalStore
from semel_broker.security.quota_store import QuotaStore
from semel_broker.security.quotas.client_quotas import ClientQuotas
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.quotas import PRODUCER_BYTE_RATE, QuotaEntity, QuotaFilter

ALICE = QuotaEntity(user="alice")
IN_FORCE_S = 1.0


async def two(cluster: ControllerCluster) -> list[QuotaStore]:
    members = await cluster.start(1, 2)
    return [store_of(member) for member in members]


def store_of(member: ControllerBroker) -> QuotaStore:
    return QuotaStore(member.store, member.feed, ClientQuotas(), member.log)


@pytest.fixture
async def cluster() -> AsyncIterator[ControllerCluster]:
    cluster = ControllerCluster(SharedLocalStore())
    yield cluster
    await cluster.close()


async def test_a_change_is_in_force_on_every_broker_within_a_second(cluster: ControllerCluster) -> None:
    one, other = await two(cluster)
    await one.alter(ALICE, [(PRODUCER_BYTE_RATE, 1_000.0, False)])
    assert one.quotas.is_active
    await asyncio.sleep(IN_FORCE_S)
    assert other.quotas.is_active
    assert other.quotas.produced("alice", "app", 12_000, 0.0) == pytest.approx(2.0)
    await other.alter(ALICE, [(PRODUCER_BYTE_RATE, 0.0, True)])
    await asyncio.sleep(IN_FORCE_S)
    assert not one.quotas.is_active
    assert one.find(QuotaFilter()) == []


async def test_two_brokers_change_different_quotas_of_an_entity_at_once(cluster: ControllerCluster) -> None:
    one, other = await two(cluster)
    await asyncio.gather(
        one.alter(ALICE, [("producer_byte_rate", 1.0, False)]),
        other.alter(ALICE, [("consumer_byte_rate", 2.0, False)]),
        one.alter(ALICE, [("request_percentage", 3.0, False)]),
    )
    await asyncio.sleep(IN_FORCE_S)
    every = {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0, "request_percentage": 3.0}
    for store in (one, other):
        assert store.find(QuotaFilter()) == [(ALICE, every)]


async def test_a_broker_that_starts_later_has_the_quotas(cluster: ControllerCluster) -> None:
    one, _ = await two(cluster)
    await one.alter(ALICE, [(PRODUCER_BYTE_RATE, 1.0, False)])
    (third,) = await cluster.start(3)
    assert store_of(third).quotas.is_active


async def test_a_refused_change_is_not_stored(cluster: ControllerCluster) -> None:
    one, _ = await two(cluster)
    with pytest.raises(KafkaError) as refused:
        await one.alter(ALICE, [(PRODUCER_BYTE_RATE, 1.0, False), ("consumer_byte_rate", -1.0, False)])
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert one.find(QuotaFilter()) == []
