"""CreateTopics, DeleteTopics and CreatePartitions on the wire."""

import pytest
from broker.harness import Harness, Wire, batch
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestAssignment,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponseTopic,
)
from semel_protocol.messages.k20_delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsRequestTopic,
    DeleteTopicsResponseTopic,
)
from semel_protocol.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestAssignment,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponseResult,
)
from semel_protocol.schema import ZERO_UUID


def asked(
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    assignments: dict[int, list[int]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> CreateTopicsRequestTopic:
    return CreateTopicsRequestTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[
            CreateTopicsRequestAssignment(partition_index=index, broker_ids=ids)
            for index, ids in (assignments or {}).items()
        ],
        configs=[CreateTopicsRequestConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


async def create(
    wire: Wire, *topics: CreateTopicsRequestTopic, version: int | None = None, validate_only: bool = False
) -> list[CreateTopicsResponseTopic]:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate_only)
    rows: list[CreateTopicsResponseTopic] = (await wire.call(request, version)).topics
    return rows


async def delete(wire: Wire, *names: str, version: int | None = None) -> list[DeleteTopicsResponseTopic]:
    request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=1000)
    rows: list[DeleteTopicsResponseTopic] = (await wire.call(request, version)).responses
    return rows


async def grow(
    wire: Wire, name: str, count: int, assignments: list[list[int]] | None = None, validate_only: bool = False
) -> CreatePartitionsResponseResult:
    rows = None if assignments is None else [CreatePartitionsRequestAssignment(broker_ids=ids) for ids in assignments]
    topic = CreatePartitionsRequestTopic(name=name, count=count, assignments=rows)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=1000, validate_only=validate_only)
    result: CreatePartitionsResponseResult = (await wire.call(request)).results[0]
    return result


# --- CreateTopics ---


@pytest.mark.parametrize("version", [2, 3, 4, 5, 6, 7])
async def test_create_topics_in_every_served_version(broker: Harness, wire: Wire, version: int) -> None:
    (row,) = await create(wire, asked("t", partitions=3), version=version)
    assert (row.name, row.error_code, row.error_message) == ("t", 0, None)
    assert (await wire.produce("t", batch(b"x"), partition=2)).base_offset == 0
    assert (await wire.produce("t", batch(b"x"), partition=3)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_kip464_minus_one_asks_for_the_brokers_defaults(broker: Harness, wire: Wire) -> None:
    (row,) = await create(wire, asked("t", partitions=-1, replication_factor=-1))
    assert row.error_code == 0
    assert (await wire.produce("t", batch(b"x"), partition=0)).error_code == 0
    assert (await wire.produce("t", batch(b"x"), partition=1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_one_refused_topic_does_not_affect_the_others(broker: Harness, wire: Wire) -> None:
    rows = await create(
        wire,
        asked("good"),
        asked("bad/name"),
        asked("none", partitions=0),
        asked("many", replication_factor=3),
        asked("odd", configs={"retention.ms": "soon"}),
        asked("empty", configs={"retention.ms": None}),
        asked("both", partitions=1, assignments={0: [0]}),
        asked("lost", partitions=-1, replication_factor=-1, assignments={0: [9]}),
        asked("__consumer_offsets"),
        asked("also.good", partitions=-1, replication_factor=-1, assignments={0: [0], 1: [0]}),
        asked("also_good"),
    )
    codes = {row.name: row.error_code for row in rows}
    assert codes == {
        "good": 0,
        "bad/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "none": ErrorCode.INVALID_PARTITIONS,
        "many": ErrorCode.INVALID_REPLICATION_FACTOR,
        "odd": ErrorCode.INVALID_CONFIG,
        "empty": ErrorCode.INVALID_CONFIG,
        "both": ErrorCode.INVALID_REQUEST,
        "lost": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "__consumer_offsets": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "also.good": 0,
        "also_good": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert all(row.error_message for row in rows if row.error_code)
    assert "retention.ms = 'soon': must be a whole number from -1" in (rows[4].error_message or "")


async def test_a_topic_named_twice_in_one_request_is_refused_once(broker: Harness, wire: Wire) -> None:
    rows = await create(wire, asked("twice"), asked("once"), asked("twice"))
    assert [(row.name, row.error_code) for row in rows] == [("twice", ErrorCode.INVALID_REQUEST), ("once", 0)]


async def test_a_setting_given_twice_is_refused(broker: Harness, wire: Wire) -> None:
    topic = asked("t", configs={"retention.ms": "5"})
    topic.configs.append(CreateTopicsRequestConfig(name="retention.ms", value="6"))
    assert (await create(wire, topic))[0].error_code == ErrorCode.INVALID_REQUEST


async def test_a_topic_that_exists_is_refused(broker: Harness, wire: Wire) -> None:
    await create(wire, asked("t"))
    (row,) = await create(wire, asked("t", partitions=9))
    assert row.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_validate_only_checks_and_creates_nothing(broker: Harness, wire: Wire) -> None:
    rows = await create(wire, asked("t"), asked("u", partitions=0), validate_only=True)
    assert [row.error_code for row in rows] == [0, ErrorCode.INVALID_PARTITIONS]
    (row,) = await create(wire, asked("t"))
    assert row.error_code == 0


async def test_created_topics_survive_a_restart(broker: Harness, wire: Wire) -> None:
    await create(wire, *(asked(f"t{i}", partitions=i + 1) for i in range(20)))
    await broker.restart()
    rows = await create(await broker.wire(), *(asked(f"t{i}") for i in range(20)))
    assert {row.error_code for row in rows} == {ErrorCode.TOPIC_ALREADY_EXISTS}


# --- DeleteTopics ---


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
async def test_delete_topics_in_every_served_version(broker: Harness, wire: Wire, version: int) -> None:
    await wire.create_topic("t")
    await wire.produce("t", batch(b"old"))
    rows = await delete(wire, "t", "never was", version=version)
    expected = [("t", 0), ("never was", ErrorCode.INVALID_TOPIC_EXCEPTION)]
    assert [(row.name, row.error_code) for row in rows] == expected
    await wire.create_topic("t")
    assert await wire.values("t") == []
    assert (await wire.produce("t", batch(b"new"))).base_offset == 0


async def test_unknown_internal_and_repeated_names_get_different_errors(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t")
    rows = await delete(wire, "t", "unknown", "t", "__consumer_offsets")
    assert [(row.name, row.error_code) for row in rows] == [
        ("t", 0),
        ("unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("__consumer_offsets", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]


async def test_deletion_can_be_switched_off(start_broker: object) -> None:
    harness: Harness = await start_broker(durability="os", delete_topic_enable="false")  # type: ignore[operator]
    wire = await harness.wire()
    await wire.create_topic("t")
    (row,) = await delete(wire, "t")
    assert row.error_code == ErrorCode.POLICY_VIOLATION
    assert (await wire.produce("t", batch(b"x"))).error_code == 0


async def test_kip516_topics_are_deleted_by_id(broker: Harness, wire: Wire) -> None:
    assert broker.node is not None
    await wire.create_topic("t")
    topic_id = broker.node.broker.topics.required("t").topic_id
    rows = [
        DeleteTopicsRequestTopic(name=None, topic_id=topic_id),
        DeleteTopicsRequestTopic(name=None, topic_id=b"?" * 16),
        DeleteTopicsRequestTopic(name=None, topic_id=ZERO_UUID),
        DeleteTopicsRequestTopic(name="t", topic_id=topic_id),
    ]
    response = await wire.call(DeleteTopicsRequest(topics=rows, timeout_ms=1), 6)
    assert [(row.name, row.error_code) for row in response.responses] == [
        ("t", 0),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        (None, ErrorCode.INVALID_REQUEST),
        ("t", ErrorCode.INVALID_REQUEST),
    ]


async def test_the_id_of_a_deleted_topic_does_not_delete_its_successor(broker: Harness, wire: Wire) -> None:
    assert broker.node is not None
    topics = broker.node.broker.topics
    await wire.create_topic("t")
    old = topics.required("t").topic_id
    await delete(wire, "t")
    await wire.create_topic("t")
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_ID"):
        await topics.delete("t", topic_id=old)
    assert topics.names() == ["t"]


# --- CreatePartitions ---


async def test_count_is_the_new_total_and_records_stay(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t", partitions=2)
    await wire.produce("t", batch(b"x"))
    assert (await grow(wire, "t", 4)).error_code == 0
    assert (await wire.produce("t", batch(b"y"), partition=3)).base_offset == 0
    assert await wire.values("t") == [b"x"]


async def test_create_partitions_refuses_invalid_requests(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t", partitions=2)
    assert (await grow(wire, "t", 2)).error_code == ErrorCode.INVALID_PARTITIONS
    assert (await grow(wire, "t", 1)).error_code == ErrorCode.INVALID_PARTITIONS
    assert (await grow(wire, "u", 3)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await grow(wire, "t", 4, [[0]])).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert (await grow(wire, "__consumer_offsets", 60)).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (await grow(wire, "t", 3, validate_only=True)).error_code == 0
    assert (await wire.produce("t", batch(b"x"), partition=2)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_grown_twice_in_one_request_is_refused(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t")
    topics = [CreatePartitionsRequestTopic(name="t", count=count, assignments=None) for count in (2, 3)]
    response = await wire.call(CreatePartitionsRequest(topics=topics, timeout_ms=1, validate_only=False))
    assert [(row.name, row.error_code) for row in response.results] == [("t", ErrorCode.INVALID_REQUEST)]
