"""Administration with the clients' own tools."""

from __future__ import annotations

import time

import pytest
from support.processes import BrokerProcess
from support.strangers import ConfluentStranger


def test_confluent_kafka_administers_topics_and_configs(broker: BrokerProcess, topic: str) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        NewPartitions,
        NewTopic,
        ResourceType,
    )

    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(topic, 2, 1, config={"retention.ms": "3600000"})])[topic].result(10)
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(10)
    with pytest.raises(KafkaException, match="TOPIC_EXCEPTION"):
        admin.create_topics([NewTopic("a/b", 2, 1)])["a/b"].result(10)
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        admin.create_topics([NewTopic(topic + "-x", 2, 1, config={"no.such.key": "1"})])[topic + "-x"].result(10)

    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(10)
    assert len(admin.list_topics(topic, 10).topics[topic].partitions) == 5

    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = admin.describe_configs([resource])[resource].result(10)
    assert entries["retention.ms"].value == "3600000"
    assert entries["cleanup.policy"].value == "delete"
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ],
    )
    admin.incremental_alter_configs([change])[change].result(10)
    entries = admin.describe_configs([resource])[resource].result(10)
    assert entries["cleanup.policy"].value == "compact"
    assert entries["retention.ms"].value == "604800000"

    admin.delete_topics([topic])[topic].result(10)
    assert topic not in admin.list_topics(timeout=10).topics


def test_confluent_kafka_deletes_records_and_lists_offsets(broker: BrokerProcess, topic: str) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec

    face = ConfluentStranger(broker.address)
    face.create_topic(topic, 1)
    face.produce(topic, [(0, None, b"%d" % i) for i in range(100)])
    admin = AdminClient({"bootstrap.servers": broker.address})
    place = TopicPartition(topic, 0)
    assert admin.list_offsets({place: OffsetSpec.latest()})[place].result(10).offset == 100
    cut = TopicPartition(topic, 0, 40)
    assert admin.delete_records([cut])[cut].result(10).low_watermark == 40
    assert admin.list_offsets({place: OffsetSpec.earliest()})[place].result(10).offset == 40
    assert [row.offset for row in face.consume(topic, 60)] == list(range(40, 100))


def test_confluent_kafka_administers_groups(broker: BrokerProcess, topic: str) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
    from confluent_kafka.admin import AdminClient

    face = ConfluentStranger(broker.address)
    face.create_topic(topic, 2)
    face.produce(topic, [(i % 2, None, b"%d" % i) for i in range(10)])
    group = f"group-{topic}"
    member = face.member(group, topic)
    member.start()
    admin = AdminClient({"bootstrap.servers": broker.address})
    deadline = time.monotonic() + 30
    while len(member.rows) < 10 or len(member.assigned) < 2:
        assert time.monotonic() < deadline, "the member got no rows"
        time.sleep(0.02)
    described = admin.describe_consumer_groups([group])[group].result(10)
    assert described.state.name == "STABLE"
    (only,) = described.members
    assert sorted(tp.partition for tp in only.assignment.topic_partitions) == [0, 1]
    member.leave()
    listed = admin.list_consumer_groups().result().valid
    assert group in [g.group_id for g in listed]
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0), TopicPartition(topic, 1)])
    offsets = admin.list_consumer_group_offsets([wanted])[group].result(10).topic_partitions
    assert [tp.offset for tp in offsets] == [5, 5]
    back = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 2)])
    admin.alter_consumer_group_offsets([back])[group].result(10)
    offsets = admin.list_consumer_group_offsets([wanted])[group].result(10).topic_partitions
    assert [tp.offset for tp in offsets] == [2, 5]
    admin.delete_consumer_groups([group])[group].result(10)
    assert group not in [g.group_id for g in admin.list_consumer_groups().result().valid]


def test_kafka_python_administers(broker: BrokerProcess, topic: str) -> None:
    from kafka import KafkaAdminClient
    from kafka.admin import NewPartitions, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    admin.create_topics([NewTopic(topic, 2, 1)])
    assert topic in [t["name"] if isinstance(t, dict) else t for t in admin.list_topics()]
    admin.create_partitions({topic: NewPartitions(4)})
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 4
    page = admin.describe_topic_partitions([topic], response_partition_limit=3)
    assert [row["partition_index"] for row in page["topics"][0]["partitions"]] == [0, 1, 2]
    assert (page["next_cursor"]["topic_name"], page["next_cursor"]["partition_index"]) == (topic, 3)
    page = admin.describe_topic_partitions([topic], cursor=page["next_cursor"])
    assert [row["partition_index"] for row in page["topics"][0]["partitions"]] == [3]
    assert page["next_cursor"] is None
    listed = admin.list_config_resources()
    assert topic in listed["topic"]
    cluster = admin.describe_cluster()
    assert cluster["brokers"], cluster
    face = ConfluentStranger(broker.address)
    face.produce(topic, [(0, None, b"1"), (0, None, b"2")])
    admin.delete_topics([topic])
    assert topic not in [t["name"] if isinstance(t, dict) else t for t in admin.list_topics()]
    admin.close()


async def test_aiokafka_administers(broker: BrokerProcess, topic: str) -> None:
    from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

    admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 2, 1)])
    await admin.create_partitions({topic: NewPartitions(4)})
    (described,) = await admin.describe_topics([topic])
    assert len(described["partitions"]) == 4
    (configs,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    names = [entry[0] for entry in configs.resources[0][4]]
    assert "retention.ms" in names
    cluster = await admin.describe_cluster()
    assert cluster["brokers"]
    assert isinstance(await admin.list_consumer_groups(), list)
    await admin.delete_topics([topic])
    assert topic not in await admin.list_topics()
    await admin.close()
