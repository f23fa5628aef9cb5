"""The admin client under aiokafka's name: aiokafka's arguments and results."""

from __future__ import annotations

import pytest
from client.consuming import produce, tp
from semel.aiokafka import AIOKafkaConsumer
from semel.aiokafka.admin import AIOKafkaAdminClient, ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from semel.aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from semel.aiokafka.errors import UnknownTopicOrPartitionError
from semel_protocol.errors import ErrorCode


@pytest.mark.semel_only("Kafka lists its internal topics, too")
async def test_topics_are_created_described_and_deleted_with_aiokafkas_results(bootstrap: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.start()
    new = NewTopic("a", 1, 1, replica_assignments=None, topic_configs=None)
    assert (await admin.create_topics([new])).topic_errors == [("a", 0, None)]
    ((name, code, message),) = (await admin.create_topics([new])).topic_errors
    assert (name, code) == ("a", ErrorCode.TOPIC_ALREADY_EXISTS)
    assert message
    assert (await admin.create_partitions({"a": NewPartitions(2)})).topic_errors == [("a", 0, None)]
    (topic,) = await admin.describe_topics(["a"])
    assert (topic["topic"], [row["partition"] for row in topic["partitions"]]) == ("a", [0, 1])
    cluster = await admin.describe_cluster()
    assert [row["node_id"] for row in cluster["brokers"]] == [cluster["controller_id"]]
    assert (await admin.delete_topics(["a"])).topic_error_codes == [("a", 0)]
    assert await admin.list_topics() == []
    await admin.close()


async def test_what_a_broker_refuses_has_its_code_in_the_results(bootstrap: str) -> None:
    """As in aiokafka: FastStream creates its topics at each start and reads the error codes."""
    unknown, illegal = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), int(ErrorCode.INVALID_TOPIC_EXCEPTION)
    async with AIOKafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic("old", 1, 1)])
        made = (await admin.create_topics([NewTopic("old", 1, 1), NewTopic("new", 1, 1), NewTopic("a/b", 1, 1)]))[1]
        assert [row[:2] for row in made] == [("old", ErrorCode.TOPIC_ALREADY_EXISTS), ("new", 0), ("a/b", illegal)]
        assert (await admin.delete_topics(["missing", "new"])).topic_error_codes == [("missing", unknown), ("new", 0)]
        topics = await admin.describe_topics(["missing", "old"])
        assert [(row["topic"], row["error_code"], len(row["partitions"])) for row in topics] == [
            ("missing", unknown, 0),
            ("old", 0, 1),
        ]
        resources = [ConfigResource("topic", name, {"cleanup.policy": "compact"}) for name in ("missing", "old")]  # type: ignore[arg-type]
        (altered,) = await admin.alter_configs(resources)
        assert [(row[0], row[2:]) for row in altered.resources] == [(unknown, (2, "missing")), (0, (2, "old"))]
        (described,) = await admin.describe_configs(resources)
        assert [(row[0], row[3], len(row[4])) for row in described.resources] == [
            (unknown, "missing", 0),
            (0, "old", 1),
        ]
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.create_partitions({"missing": NewPartitions(2)})
        with pytest.raises(TypeError, match="topics='old'"):
            await admin.delete_topics("old")
        assert await admin.list_topics() == ["old"]


async def test_settings_are_altered_and_described_with_aiokafkas_results(bootstrap: str) -> None:
    async with AIOKafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic("a", 1, 1)])
        resource = ConfigResource("topic", "a", {"cleanup.policy": "compact"})  # type: ignore[arg-type]
        (altered,) = await admin.alter_configs([resource])
        assert altered.resources == [(0, None, ConfigResourceType.TOPIC, "a")]
        (described,) = await admin.describe_configs([resource])
        ((code, _, kind, name, entries),) = described.resources
        assert (code, kind, name, entries[0][:2]) == (0, ConfigResourceType.TOPIC, "a", ("cleanup.policy", "compact"))
        broker = ConfigResource(ConfigResourceType.BROKER, 0)  # type: ignore[arg-type]
        assert [len(each.resources) for each in await admin.describe_configs([resource, broker])] == [1, 1]


async def test_groups_are_described_with_aiokafkas_results(bootstrap: str) -> None:
    await produce(bootstrap, [b"a"])
    consumer = AIOKafkaConsumer("t", bootstrap_servers=bootstrap, group_id="g", auto_offset_reset="earliest")
    async with consumer, AIOKafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        await consumer.getone()
        await consumer.commit()
        (answer,) = await admin.describe_consumer_groups(["g"], await admin.find_coordinator("g"))
        code, group, state, *_, members, _ = answer.groups[0]
        assert (code, group, state) == (0, "g", "Stable")
        assert ConsumerProtocolMemberAssignment.decode(members[0][4]).partitions() == [tp(0)]
        offsets = await admin.list_consumer_group_offsets("g", None, [tp(0), tp(1)])
        assert {partition: at.offset for partition, at in offsets.items()} == {tp(0): 1, tp(1): -1}
        assert await admin.find_coordinator("x", 1) == 0


async def test_two_groups_with_members_are_described_at_once(bootstrap: str) -> None:
    """aiokafka 0.14 itself reads such an answer with the layout of an older version, and fails."""
    await produce(bootstrap, [b"a"])
    members = [AIOKafkaConsumer("t", bootstrap_servers=bootstrap, group_id=group) for group in ("g", "h")]
    async with members[0], members[1], AIOKafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        answers = await admin.describe_consumer_groups(["g", "h", "absent"])
        groups = {row[1]: (row[2], len(row[5])) for answer in answers for row in answer.groups}
        assert {name: groups[name] for name in ("g", "h")} == {"g": ("Stable", 1), "h": ("Stable", 1)}
        assert groups["absent"][1] == 0
