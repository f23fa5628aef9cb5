"""Members of one group `g`, by either group protocol, for tests against a real broker."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest
from broker.harness import Harness
from client.consuming import Reader, produce
from semel import ConsumerRebalanceListener, NewTopic, TopicPartition
from semel._edge import Edge
from semel._group.consumer_group import ConsumerGroup
from semel._net.connection import connect
from semel.admin import Admin
from semel.consumer import Consumer
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from support.against import OutsideBroker

CLASSIC: dict[str, Any] = {"heartbeat_interval_ms": 50, "session_timeout_ms": 6000}
CONSUMER: dict[str, Any] = {"group_protocol": "consumer"}
"""Settings that make a consumer a member by the classic protocol, or by the consumer protocol."""

TIMES = {
    "group_consumer_min_heartbeat_interval_ms": "100",
    "group_consumer_heartbeat_interval_ms": "200",
    "group_consumer_min_session_timeout_ms": "1000",
    "group_consumer_session_timeout_ms": "3000",
}
"""Settings of the broker. Apache Kafka needs them too: docs/with-apache-kafka.md."""


def member_of(bootstrap: str, *topics: str, **settings: Any) -> Consumer:
    merged: dict[str, Any] = {
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "rebalance_timeout_ms": 3000,
        "fetch_max_wait_ms": 100,
        "retry_backoff_ms": 20,
        **settings,
    }
    return Consumer(*(topics or ("t",)), bootstrap_servers=bootstrap, **merged)


def group_of(consumer: Consumer) -> ConsumerGroup:
    assert isinstance(consumer._group, ConsumerGroup)
    return consumer._group


async def create(bootstrap: str, **partitions: int) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(name, count) for name, count in partitions.items()])


async def spread(bootstrap: str, values: list[bytes], partitions: int = 6) -> None:
    for partition in range(partitions):
        await produce(bootstrap, values[partition::partitions], partition=partition)


def shares(*readers: Reader) -> list[int]:
    return [len(reader.consumer.assignment()) for reader in readers]


class ListenerCalls(ConsumerRebalanceListener):
    """Records the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[TopicPartition]]] = []

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self.calls.append(("revoked", revoked))

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> Awaitable[None] | None:
        self.calls.append(("assigned", assigned))
        return None

    async def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        self.calls.append(("lost", lost))


async def skip_without_consumer_protocol(broker: Harness | OutsideBroker) -> None:
    """Skip a test on an outside broker without KIP-848. Kafka 3.9 names the API in ApiVersions and refuses it."""
    if not isinstance(broker, OutsideBroker):
        return
    connection = await connect(Edge(), "127.0.0.1", broker.port, client_id="looking", timeout_ms=5000)
    leave = ConsumerGroupHeartbeatRequest(group_id="g", member_id="stranger", member_epoch=-1)
    try:
        is_served = connection.serves(ConsumerGroupHeartbeatRequest)
        if is_served:
            answer = await connection.request(leave, timeout_ms=5000)
            is_served = answer.error_code != ErrorCode.UNSUPPORTED_VERSION
    finally:
        connection.close()
    if not is_served:
        pytest.skip("this broker does not serve the consumer protocol of KIP-848")
