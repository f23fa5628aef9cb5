"""Admin against a real broker: each accepted request takes effect, and each refusal has an error."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
from broker.harness import Harness, Wire, batch
from client.consuming import until
from semel import Producer
from semel.admin import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Admin,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConsumerGroupListing,
    LogDirDescription,
    NewPartitions,
    NewTopic,
    RecordsToDelete,
)
from semel.errors import (
    GroupIdNotFound,
    IllegalStateError,
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    InvalidTopicError,
    KafkaConfigurationError,
    KafkaConnectionError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from semel.structs import OffsetAndMetadata, TopicPartition
from semel_protocol.api import APIS
from support.against import wait_for_leaders

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC, BROKER, GROUP = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.GROUP


@pytest.fixture
async def admin(bootstrap: str) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=bootstrap, max_block_ms=5000) as admin:
        yield admin


@pytest.fixture
async def wire(broker: Harness) -> Wire:
    return await broker.wire()


async def own_topics(admin: Admin) -> list[str]:
    """The topics without internal ones, which Kafka lists once they are in use."""
    return [name for name in await admin.list_topics() if not name.startswith("__")]


# --- life ---


async def test_an_admin_is_used_while_it_runs_and_not_after(bootstrap: str) -> None:
    admin = Admin(bootstrap_servers=bootstrap)
    with pytest.raises(IllegalStateError, match="start"):
        await admin.list_topics()
    await admin.start()
    await admin.list_topics()
    await admin.close()
    await admin.close()
    with pytest.raises(IllegalStateError):
        await admin.list_topics()
    with pytest.raises(IllegalStateError, match="create a new one"):
        await admin.start()


async def test_start_fails_within_the_bootstrap_timeout(bootstrap: str, broker: Harness) -> None:
    await broker.stop()
    with pytest.raises(KafkaConnectionError):
        async with Admin(bootstrap_servers=bootstrap, bootstrap_timeout_ms=200):
            pass


# --- topics ---


async def test_topics_are_created_described_and_deleted(admin: Admin) -> None:
    await admin.create_topics([NewTopic("t", 2, 1), NewTopic("u", topic_configs={"retention.ms": "5"})])
    await wait_for_leaders(admin, T0, T1, TopicPartition("u", 0))
    assert await own_topics(admin) == ["t", "u"]
    u, t = await admin.describe_topics(["u", "t"])
    assert (t.name, [p.leader for p in t.partitions], t.is_internal) == ("t", [0, 0], False)
    assert (u.name, len(u.partitions), u.partitions[0].replicas) == ("u", 1, (0,))
    assert [topic.name for topic in await admin.describe_topics() if not topic.is_internal] == ["t", "u"]
    await admin.delete_topics(["t"])

    async def is_gone() -> bool:  # Kafka's broker follows its controller
        return await own_topics(admin) == ["u"]

    await until(is_gone)


async def test_describing_a_topic_that_is_not_there_creates_none(admin: Admin) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="'absent'"):
        await admin.describe_topics(["absent"])
    assert await own_topics(admin) == []


async def test_the_first_refusal_is_raised_with_the_others_as_notes_and_the_rest_is_done(admin: Admin) -> None:
    await admin.create_topics([NewTopic("t")])
    topics = [NewTopic("a"), NewTopic("t"), NewTopic("no/name"), NewTopic("b"), NewTopic("c", 0)]
    with pytest.raises(TopicAlreadyExistsError, match="creating topic 't'") as caught:
        await admin.create_topics(topics)
    assert len(caught.value.__notes__) == 2
    assert "no/name" in caught.value.__notes__[0]
    await wait_for_leaders(admin, *(TopicPartition(name, 0) for name in "abt"))
    assert await own_topics(admin) == ["a", "b", "t"]


async def test_errors_of_each_kind_have_their_class_and_the_brokers_message(admin: Admin) -> None:
    with pytest.raises(InvalidConfigurationError, match=r"(?s)(retention\.ms.*soon|soon.*retention\.ms)"):
        await admin.create_topics([NewTopic("t", topic_configs={"retention.ms": "soon"})])
    with pytest.raises(InvalidReplicationAssignmentError, match="7"):
        await admin.create_topics([NewTopic("t", replica_assignments={0: [7]})])
    with pytest.raises(InvalidTopicError):
        await admin.create_topics([NewTopic("..")])
    with pytest.raises(UnknownTopicOrPartitionError):
        await admin.delete_topics(["t"])


async def test_contradicting_arguments_are_refused_without_a_request(admin: Admin) -> None:
    with pytest.raises(KafkaConfigurationError, match="twice"):
        await admin.create_topics([NewTopic("t"), NewTopic("t")])
    with pytest.raises(KafkaConfigurationError, match="not both"):
        await admin.create_topics([NewTopic("t", 1, replica_assignments={0: [0]})])


async def test_empty_calls_send_no_request(admin: Admin) -> None:
    await admin.create_topics([])
    await admin.delete_topics([])
    await admin.create_partitions({})
    assert await admin.describe_topics([]) == []
    assert await admin.describe_configs([]) == []
    assert await admin.list_offsets({}) == {}


async def test_validate_only_creates_nothing(admin: Admin) -> None:
    await admin.create_topics([NewTopic("t")], validate_only=True)
    assert await own_topics(admin) == []


async def test_a_topic_grows_to_a_total(admin: Admin) -> None:
    await admin.create_topics([NewTopic("t", 2)])
    await admin.create_partitions({"t": NewPartitions(3)})

    async def has_three() -> bool:  # Kafka's broker follows its controller
        return len((await admin.describe_topics(["t"]))[0].partitions) == 3

    await until(has_three)
    with pytest.raises(InvalidPartitionsError):
        await admin.create_partitions({"t": NewPartitions(2)})


async def test_the_brokers_of_the_cluster_are_described(admin: Admin, broker: Harness) -> None:
    cluster = await admin.describe_cluster()
    assert cluster.cluster_id
    assert cluster.controller_id == 0
    assert [(b.node_id, b.host, b.port) for b in cluster.brokers.values()] == [(0, "127.0.0.1", broker.port)]


# --- sizes ---


async def test_data_directories_have_the_size_of_each_replica(admin: Admin, bootstrap: str) -> None:
    await admin.create_topics([NewTopic("t", 2)])
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait("t", b"x" * 1_000, partition=0)
    (node_id,) = (await admin.describe_cluster()).brokers
    written, empty = TopicPartition("t", 0), TopicPartition("t", 1)
    (directory,) = (await admin.describe_log_dirs([node_id], [written, empty]))[node_id]
    assert directory.path
    assert directory.replicas[written].size_bytes > 1_000
    assert directory.replicas[empty].size_bytes == 0
    (everything,) = (await admin.describe_log_dirs([node_id]))[node_id]
    assert everything.replicas[written] == directory.replicas[written]
    assert await admin.describe_log_dirs([node_id], []) == {node_id: [directory_without_replicas(directory)]}
    assert await admin.describe_log_dirs([]) == {}


def directory_without_replicas(found: LogDirDescription) -> LogDirDescription:
    return msgspec.structs.replace(found, replicas={})


# --- settings ---


async def test_altering_a_setting_leaves_the_others_alone(admin: Admin) -> None:
    await admin.create_topics([NewTopic("t", topic_configs={"retention.ms": "5", "segment.bytes": "2000000"})])
    await admin.alter_configs([ConfigResource(TOPIC, "t", {"retention.ms": "6"})])
    (found,) = await admin.describe_configs([ConfigResource(TOPIC, "t")])
    assert found.configs["retention.ms"].value == "6"
    assert found.configs["segment.bytes"].value == "2000000"
    await admin.alter_configs([ConfigResource(TOPIC, "t", {"retention.ms": None})])
    wanted = ConfigResource(TOPIC, "t", ["retention.ms", "segment.bytes"])
    (found,) = await admin.describe_configs([wanted], include_synonyms=True)
    assert found.configs["retention.ms"].is_default
    levels = [(level.value, level.source) for level in found.configs["segment.bytes"].synonyms]
    assert levels == [("2000000", ConfigSource.TOPIC), ("1073741824", ConfigSource.DEFAULT)]
    assert sorted(found.configs) == ["retention.ms", "segment.bytes"]


@pytest.mark.semel_only("Apache Kafka lists them from 4.1 on, and loggers too")
async def test_resources_with_settings_are_listed_by_type_and_name(admin: Admin) -> None:
    await admin.create_topics([NewTopic("u"), NewTopic("t")])
    await admin.alter_configs([ConfigResource(GROUP, "g", {"consumer.session.timeout.ms": "50000"})])
    listed = [
        ConfigResource(TOPIC, "t"),
        ConfigResource(TOPIC, "u"),
        ConfigResource(BROKER, "0"),
        ConfigResource(GROUP, "g"),
    ]
    assert await admin.list_config_resources() == listed
    assert await admin.list_config_resources([GROUP, BROKER]) == listed[2:]
    assert await admin.list_config_resources([ConfigResourceType.CLIENT_METRICS]) == []


@pytest.mark.semel_only("of a broker that lists client metrics alone: Apache Kafka 3.7 to 4.0")
async def test_an_older_broker_is_not_asked_for_types_that_it_does_not_list(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(APIS[74], "advertised", (0, 0))
    async with Admin(bootstrap_servers=bootstrap) as older:
        with pytest.raises(UnsupportedVersionError, match="client metrics"):
            await older.list_config_resources()
        assert await older.list_config_resources([ConfigResourceType.CLIENT_METRICS]) == []


@pytest.mark.semel_only("Kafka cannot change num.partitions while it runs")
async def test_topics_and_brokers_are_described_together_in_the_order_asked(admin: Admin) -> None:
    await admin.create_topics([NewTopic("t")])
    await admin.alter_configs([ConfigResource(BROKER, "", {"num.partitions": "3"})])
    found = await admin.describe_configs(
        [ConfigResource(BROKER, "0", ["num.partitions"]), ConfigResource(TOPIC, "t"), ConfigResource(BROKER, "")]
    )
    assert [(row.resource_type, row.name) for row in found] == [(BROKER, "0"), (TOPIC, "t"), (BROKER, "")]
    assert found[0].configs["num.partitions"].source is ConfigSource.DYNAMIC_DEFAULT_BROKER
    assert list(found[2].configs) == ["num.partitions"]


@pytest.mark.semel_only("Kafka answers INVALID_REQUEST where semel's broker says which setting needs a restart")
async def test_impossible_settings_are_refused_with_a_message(admin: Admin) -> None:
    with pytest.raises(InvalidConfigurationError, match="restart"):
        await admin.alter_configs([ConfigResource(BROKER, "0", {"log.dir": "/elsewhere"})])
    with pytest.raises(UnknownTopicOrPartitionError):
        await admin.describe_configs([ConfigResource(TOPIC, "absent")])
    with pytest.raises(KafkaConfigurationError, match="no broker 9"):
        await admin.describe_configs([ConfigResource(BROKER, "9")])
    with pytest.raises(KafkaConfigurationError, match="by its id"):
        await admin.describe_configs([ConfigResource(BROKER, "localhost")])
    with pytest.raises(KafkaConfigurationError, match="configs="):
        await admin.alter_configs([ConfigResource(TOPIC, "t", ["retention.ms"])])


# --- partitions ---


async def test_offsets_of_ends_times_and_the_latest_timestamp(admin: Admin, wire: Wire) -> None:
    await admin.create_topics([NewTopic("t", 2)])
    await wait_for_leaders(admin, T0, T1)  # a wire does not try again
    await wire.produce("t", batch(b"a", timestamp=1000))
    await wire.produce("t", batch(b"b", b"c", timestamp=3000))
    await wire.produce("t", batch(b"d", timestamp=2000))
    assert (await admin.list_offsets({T0: LATEST, T1: LATEST})) == {T0: (4, -1), T1: (0, -1)}
    assert (await admin.list_offsets({T0: EARLIEST}))[T0].offset == 0
    assert (await admin.list_offsets({T0: 1500}))[T0] == (1, 3000)
    assert (await admin.list_offsets({T0: 5000}))[T0] == (-1, -1)
    assert (await admin.list_offsets({T0: MAX_TIMESTAMP}))[T0].timestamp == 3000
    with pytest.raises(UnknownTopicOrPartitionError, match="t-2"):
        await admin.list_offsets({T0: LATEST, TopicPartition("t", 2): LATEST})


async def test_records_are_deleted_up_to_an_offset(admin: Admin, wire: Wire) -> None:
    await admin.create_topics([NewTopic("t", 2)])
    await wait_for_leaders(admin, T0, T1)
    for value in (b"a", b"b", b"c"):
        await wire.produce("t", batch(value))
    assert await admin.delete_records({T0: RecordsToDelete(2)}) == {T0: 2}
    assert (await admin.list_offsets({T0: EARLIEST}))[T0].offset == 2
    assert await admin.delete_records({T0: -1, T1: -1}) == {T0: 3, T1: 0}
    with pytest.raises(OffsetOutOfRangeError, match="t-0 before 9"):
        await admin.delete_records({T0: 9})


# --- groups ---


async def test_offsets_of_a_group_are_altered_listed_and_deleted(admin: Admin) -> None:
    await admin.create_topics([NewTopic("t", 2)])
    assert await admin.list_consumer_group_offsets("g") == {}
    offsets = {T0: OffsetAndMetadata(5, "note"), T1: OffsetAndMetadata(6, "")}
    await admin.alter_consumer_group_offsets("g", offsets)
    assert await admin.list_consumer_group_offsets("g") == offsets
    assert await admin.list_consumer_group_offsets("g", [T1]) == {T1: offsets[T1]}
    await admin.delete_consumer_group_offsets("g", [T1])
    assert await admin.list_consumer_group_offsets("g") == {T0: offsets[T0]}
    assert await admin.list_consumer_groups() == [ConsumerGroupListing("g", "", "Empty", "classic")]
    await admin.delete_consumer_groups(["g"])
    assert await admin.list_consumer_groups() == []


async def test_groups_that_do_not_exist_are_dead_and_cannot_be_deleted(admin: Admin) -> None:
    (group,) = await admin.describe_consumer_groups(["absent"])
    assert (group.state, group.members, group.coordinator) == ("Dead", (), 0)
    with pytest.raises(GroupIdNotFound) as caught:
        await admin.delete_consumer_groups(["absent", "also absent"])
    assert "'also absent'" in caught.value.__notes__[0]
    assert await admin.find_coordinator("absent") == 0
