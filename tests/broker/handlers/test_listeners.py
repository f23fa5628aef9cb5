"""Several listeners: each answers with its own addresses."""

from typing import Any

import msgspec
import pytest
from broker.conftest import StartBroker
from broker.harness import Harness, Wire
from semel_broker.cluster.records import BrokerRecord
from semel_broker.cluster.store import StoreEntry
from semel_broker.config.listeners import Endpoint
from semel_broker.config.loading import ConfigError
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from semel_protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from semel_protocol.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsRequestResource
from semel_protocol.messages.k60_describe_cluster import DescribeClusterRequest
from semel_protocol.messages.k74_list_config_resources import ListConfigResourcesRequest
from semel_protocol.messages.k75_describe_topic_partitions import DescribeTopicPartitionsRequest

BOTH = {
    "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0,HIDDEN://127.0.0.1:0",
    "advertised_listeners": "INSIDE://127.0.0.1:0,OUTSIDE://outside.example:19092",
    "listener_security_protocol_map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,HIDDEN:PLAINTEXT",
}


@pytest.fixture
async def both(start_broker: StartBroker) -> Harness:
    return await start_broker(**BOTH)


async def wire_to(broker: Harness, listener: str) -> Wire:
    assert broker.node is not None
    return await Wire.connect(broker.node.ports[listener])


def addresses(answer: Any) -> list[tuple[str, int]]:
    return [(each.host, each.port) for each in answer.brokers]


@pytest.mark.parametrize("listener", ["INSIDE", "OUTSIDE"])
async def test_a_client_gets_the_addresses_of_its_listener(both: Harness, listener: str) -> None:
    assert both.node is not None
    expected = ("outside.example", 19092) if listener == "OUTSIDE" else ("127.0.0.1", both.node.ports["INSIDE"])
    wire = await wire_to(both, listener)
    await wire.create_topic("t")
    assert addresses(await wire.call(MetadataRequest(topics=None), 7)) == [expected]
    assert addresses(await wire.call(DescribeClusterRequest(include_cluster_authorized_operations=False), 1)) == [
        expected
    ]
    found = await wire.call(FindCoordinatorRequest(key="g"), 2)
    assert (found.error_code, found.host, found.port) == (0, *expected)
    await wire.close()


@pytest.mark.parametrize(("version", "error"), [(5, "LEADER_NOT_AVAILABLE"), (6, "LISTENER_NOT_FOUND")])
async def test_a_listener_that_is_not_advertised_has_no_addresses(both: Harness, version: int, error: str) -> None:
    wire = await wire_to(both, "HIDDEN")
    await wire.create_topic("t")
    answer = await wire.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), version)
    assert addresses(answer) == []
    (partition,) = answer.topics[0].partitions
    assert (partition.leader_id, partition.error_code) == (-1, ErrorCode[error])
    assert partition.replica_nodes == partition.isr_nodes == [0]
    assert addresses(await wire.call(DescribeClusterRequest(include_cluster_authorized_operations=False), 1)) == []
    found = await wire.call(FindCoordinatorRequest(key="g"), 2)
    assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    assert "HIDDEN" in found.error_message
    await wire.close()


async def test_a_page_of_topics_shows_no_leader_on_a_listener_that_is_not_advertised(both: Harness) -> None:
    wire = await wire_to(both, "HIDDEN")
    await wire.create_topic("t")
    (partition,) = (await wire.call(DescribeTopicPartitionsRequest(topics=[]))).topics[0].partitions
    assert (partition.leader_id, partition.error_code) == (-1, ErrorCode.NONE)  # Kafka has no error code here
    assert partition.replica_nodes == partition.isr_nodes == [0]
    assert (await wire.call(ListConfigResourcesRequest(resource_types=[4]))).config_resources == []
    await wire.close()


async def test_a_broker_without_the_listener_is_left_out(both: Harness) -> None:
    """The other broker of the cluster has one PLAINTEXT listener, and a record of an earlier version."""
    assert both.node is not None
    feed = both.node.broker.feed
    old = b'{"node_id":7,"incarnation":"i","directory_id":"d","host":"old","port":9092}'
    feed.image.apply([StoreEntry("brokers/7", old, 1_000), StoreEntry("admissions/7", b'{"epoch":1000}', 1_001)], 1_001)
    record = msgspec.json.decode(old, type=BrokerRecord)
    assert record.endpoint("PLAINTEXT") == Endpoint("old", 9092)
    assert record.endpoint("INSIDE") is None
    assert [each.node_id for each in feed.image.live()] == [0, 7]
    wire = await wire_to(both, "OUTSIDE")
    assert addresses(await wire.call(MetadataRequest(topics=[]), 7)) == [("outside.example", 19092)]
    await wire.close()


def test_the_record_of_a_broker_with_one_listener_is_that_of_earlier_versions() -> None:
    record = BrokerRecord(node_id=1, incarnation="i", directory_id="d", host="h", port=1)
    assert b"endpoints" not in msgspec.json.encode(record)


async def test_an_address_that_clients_cannot_reach_is_refused(start_broker: StartBroker) -> None:
    with pytest.raises(ConfigError, match=r"clients cannot connect to 0\.0\.0\.0: .* advertised\.listeners"):
        await start_broker(**{**BOTH, "listeners": "INSIDE://0.0.0.0:0", "advertised_listeners": ""})


async def test_secrets_are_not_described(start_broker: StartBroker) -> None:
    broker = await start_broker(ssl_key_password="hunter2")
    wire = await broker.wire()
    resource = DescribeConfigsRequestResource(resource_type=4, resource_name="0", configuration_keys=None)
    answer = await wire.call(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 2)
    assert "hunter2" not in repr(answer)
    (row,) = [row for row in answer.results[0].configs if row.name == "ssl.key.password"]
    assert (row.value, row.is_sensitive) == (None, True)


async def test_brokers_that_are_not_admitted_are_fenced(both: Harness) -> None:
    assert both.node is not None
    feed = both.node.broker.feed
    inside = b'"endpoints":{"INSIDE":{"host":"new","port":2}}'
    new = b'{"node_id":7,"incarnation":"i","directory_id":"d","host":"h","port":1,' + inside + b"}"
    feed.image.apply([StoreEntry("brokers/7", new, 1_000)], 1_000)
    wire = await wire_to(both, "INSIDE")

    async def found(version: int, *, fenced: bool) -> list[tuple[int, bool]]:
        request = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=fenced)
        return [(each.broker_id, each.is_fenced) for each in (await wire.call(request, version)).brokers]

    assert await found(2, fenced=True) == [(0, False), (7, True)]
    assert await found(2, fenced=False) == await found(1, fenced=True) == [(0, False)]
    await wire.close()
