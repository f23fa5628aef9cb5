"""While the cluster's store is unreachable, coordinators answer COORDINATOR_NOT_AVAILABLE, and no client loses its
connection.
"""

from __future__ import annotations

from broker.coordination.coordinator_cluster import CoordinatorCluster, code_of
from semel_broker.cluster.store import StoreUnavailableError
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest

NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_producer_id_cannot_be_had_now(nodes: CoordinatorCluster) -> None:
    one, _ = await nodes.open(1, 2)
    away = StoreUnavailableError("away")
    wire = await one.wire()
    for name in (None, nodes.name_at(0)):
        one.store.failing = [away]
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000)
        assert (await wire.call(request, 4)).error_code == NOT_AVAILABLE
        assert (await wire.call(request, 4)).error_code == 0
        one.producer_ids._next = one.producer_ids._end  # its block is used up


async def test_the_internal_topics_cannot_be_made_now(nodes: CoordinatorCluster) -> None:
    (one,) = await nodes.start(1)
    wire = await one.wire()
    for key_type in (0, 1):
        one.store.failing = [StoreUnavailableError("away")]
        request = FindCoordinatorRequest(key="x", key_type=key_type)
        assert (await wire.call(request, 2)).error_code == NOT_AVAILABLE
        assert (await wire.call(request, 2)).error_code == 0


async def test_the_internal_topics_cannot_be_made_with_too_few_brokers(nodes: CoordinatorCluster) -> None:
    (one,) = await nodes.start(1, **{"offsets.topic.replication.factor": "3"})
    assert await code_of(one.groups.shard("g")) is NOT_AVAILABLE
    assert one.topics.names() == []
