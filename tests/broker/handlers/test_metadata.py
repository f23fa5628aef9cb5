"""Metadata, DescribeCluster and DescribeProducers: the facts that a client gets about this broker."""

from typing import Any

import pytest
from broker.conftest import StartBroker
from broker.harness import Harness, Wire, batch
from semel_broker.cluster.store import RemovedKey
from semel_protocol.acls import NOT_ASKED, ResourceType, every_operation
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from semel_protocol.messages.k60_describe_cluster import DescribeClusterRequest
from semel_protocol.messages.k61_describe_producers import DescribeProducersRequest, DescribeProducersRequestTopic
from semel_protocol.schema import ZERO_UUID


async def metadata(wire: Wire, names: list[str] | None, version: int = 5, *, create: bool = False) -> Any:
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    return await wire.call(MetadataRequest(topics=topics, allow_auto_topic_creation=create), version)


@pytest.mark.parametrize("version", range(13))
async def test_a_topic_and_its_leader_in_every_version(broker: Harness, version: int) -> None:
    wire = await broker.wire()
    await wire.create_topic("t", partitions=3)
    response = await metadata(wire, ["t"], version)
    node = response.brokers[0]
    assert (node.node_id, node.host, node.port, node.rack) == (0, "127.0.0.1", broker.port, None)
    assert [(p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in response.topics[0].partitions] == [
        (i, 0, [0], [0]) for i in range(3)
    ]
    if version >= 1:
        assert response.controller_id == 0
    if version >= 2:
        assert response.cluster_id


async def test_all_topics_none_and_version_0(wire: Wire) -> None:
    for name in ("b", "a"):
        await wire.create_topic(name)
    assert [topic.name for topic in (await metadata(wire, None)).topics] == ["a", "b"]
    assert (await metadata(wire, [])).topics == []
    assert [topic.name for topic in (await metadata(wire, [], 0)).topics] == ["a", "b"]


async def test_topics_are_created_when_both_sides_allow_it(start_broker: StartBroker) -> None:
    willing = await start_broker("a", num_partitions="2")
    wire = await willing.wire()
    assert (await metadata(wire, ["t"])).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len((await metadata(wire, ["t"], create=True)).topics[0].partitions) == 2
    assert len((await metadata(wire, ["older"], 3)).topics[0].partitions) == 2  # v3 cannot disable it
    assert (await wire.produce("t", batch(b"x"))).error_code == 0
    unwilling = await start_broker("b", auto_create_topics_enable="false")
    wire = await unwilling.wire()
    assert (await metadata(wire, ["t"], create=True)).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.proves("topic-names")
@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "x" * 250, "ä", "a\x00b"])
@pytest.mark.parametrize("create", [False, True])
async def test_illegal_names_are_refused(wire: Wire, name: str, create: bool) -> None:
    response = await metadata(wire, [name, "fine"], create=create)
    assert response.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (response.topics[1].error_code == 0) is create


async def test_topics_have_ids_and_are_asked_for_by_them(wire: Wire) -> None:
    await wire.create_topic("t", partitions=2)
    topic_id = (await metadata(wire, ["t"], 10)).topics[0].topic_id
    assert topic_id != ZERO_UUID
    asked = [
        MetadataRequestTopic(name=None, topic_id=topic_id),
        MetadataRequestTopic(name=None, topic_id=bytes(15) + b"x"),
    ]
    found, unknown = (await wire.call(MetadataRequest(topics=asked), 12)).topics
    assert (found.name, found.topic_id, len(found.partitions)) == ("t", topic_id, 2)
    assert (unknown.error_code, unknown.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    for version in (10, 11):  # Kafka refuses ids there
        rows = (await wire.call(MetadataRequest(topics=asked), version)).topics
        assert [row.error_code for row in rows] == [ErrorCode.INVALID_REQUEST] * 2


async def test_without_an_authorizer_every_operation_is_authorized_where_it_was_asked_for(wire: Wire) -> None:
    await wire.create_topic("t")
    request = MetadataRequest(
        topics=None, include_cluster_authorized_operations=True, include_topic_authorized_operations=True
    )
    answer = await wire.call(request, 8)
    assert answer.cluster_authorized_operations == every_operation(ResourceType.CLUSTER)
    assert answer.topics[0].topic_authorized_operations == every_operation(ResourceType.TOPIC)
    cluster = await wire.call(DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
    assert cluster.cluster_authorized_operations == every_operation(ResourceType.CLUSTER)
    plain = await metadata(wire, ["t"], 8)
    assert (plain.cluster_authorized_operations, plain.topics[0].topic_authorized_operations) == (NOT_ASKED, NOT_ASKED)


async def test_metadata_does_not_create_internal_topics(wire: Wire) -> None:
    response = await metadata(wire, ["__consumer_offsets", "__transaction_state"], create=True)
    assert [topic.error_code for topic in response.topics] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


async def test_clients_get_the_advertised_address(start_broker: StartBroker) -> None:
    broker = await start_broker(advertised_host_name="broker.example", advertised_port="19092", node_id="7")
    wire = await broker.wire()
    node = (await metadata(wire, [])).brokers[0]
    assert (node.node_id, node.host, node.port) == (7, "broker.example", 19092)
    cluster = await wire.call(DescribeClusterRequest(include_cluster_authorized_operations=False), version=1)
    assert [(b.broker_id, b.host, b.port) for b in cluster.brokers] == [(7, "broker.example", 19092)]
    assert cluster.controller_id == 7
    refused = await wire.call(DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2), 1)
    assert refused.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.proves("metadata-without-brokers")
async def test_the_answering_broker_is_listed_without_any_session(start_broker: StartBroker) -> None:
    """The store was unreachable for longer than all sessions.

    A client that gets an empty list drops its brokers (librdkafka fails every handle until it rebootstraps).
    """
    broker = await start_broker(advertised_host_name="broker.example", advertised_port="19092", broker_rack="r")
    assert broker.node is not None
    image = broker.node.broker.feed.image
    image.apply([RemovedKey("brokers/0", image.revision + 1)], image.revision + 1)
    wire = await broker.wire()
    told = await metadata(wire, [])
    assert [(b.node_id, b.host, b.port, b.rack) for b in told.brokers] == [(0, "broker.example", 19092, "r")]
    assert told.controller_id == -1
    cluster = await wire.call(DescribeClusterRequest(include_cluster_authorized_operations=False), version=1)
    assert [(b.broker_id, b.host, b.port, b.rack) for b in cluster.brokers] == [(0, "broker.example", 19092, "r")]


async def test_the_cluster_id_survives_a_restart(broker: Harness) -> None:
    before = (await metadata(await broker.wire(), [])).cluster_id
    await broker.restart()
    assert (await metadata(await broker.wire(), [])).cluster_id == before
    assert len(before) == 22


async def test_describe_producers(wire: Wire) -> None:
    await wire.create_topic("t", partitions=2)
    producer_id = await wire.new_producer()
    await wire.produce("t", batch(b"x", b"y", producer_id=producer_id, producer_epoch=2, base_sequence=0))
    topics = [DescribeProducersRequestTopic(name="t", partition_indexes=[0, 1, 2])]
    rows = (await wire.call(DescribeProducersRequest(topics=topics))).topics[0].partitions
    assert [row.error_code for row in rows] == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    [producer] = rows[0].active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (producer_id, 2, 1)
    assert (producer.current_txn_start_offset, rows[1].active_producers) == (-1, [])


async def test_topics_are_described_by_id(wire: Wire) -> None:
    """Members of the consumer protocol get topic ids and ask for the names.

    Java's request has an empty name, not null.
    """
    await wire.create_topic("t", 2)
    (topic,) = (await wire.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)).topics
    for name in (None, ""):
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name, topic_id=topic.topic_id)])
        (found,) = (await wire.call(asked, 12)).topics
        assert (found.error_code, found.name, len(found.partitions)) == (0, "t", 2)
    unknown = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=b"x" * 16)])
    (found,) = (await wire.call(unknown, 12)).topics
    assert (found.error_code, found.name, found.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, b"x" * 16)
