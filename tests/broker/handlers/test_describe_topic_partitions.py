"""DescribeTopicPartitions: topics page by page, in the order of their names (KIP-966)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker.conftest import StartBroker
from broker.harness import Harness, Wire
from semel_protocol.acls import ResourceType, every_operation
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k03_metadata import MetadataRequest
from semel_protocol.messages.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsRequestTopic,
)
from semel_protocol.schema import ZERO_UUID

Cursor = tuple[str, int]
COUNTS = {"c": 4, "a": 2, "b": 3}


@pytest.fixture
async def three(wire: Wire) -> Wire:
    """A broker with the topics a, b and c of 2, 3 and 4 partitions."""
    for name, count in COUNTS.items():
        await wire.create_topic(name, partitions=count)
    return wire


async def ask(wire: Wire, *names: str, limit: int = 2_000, cursor: Cursor | None = None) -> Any:
    at = (
        None
        if cursor is None
        else DescribeTopicPartitionsRequestCursor(topic_name=cursor[0], partition_index=cursor[1])
    )
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequestTopic(name=name) for name in names],
        response_partition_limit=limit,
        cursor=at,
    )
    return await wire.call(request, 0)


def indexes(answer: Any) -> dict[str, list[int]]:
    """The partitions of each topic of a page, in order."""
    return {topic.name: [row.partition_index for row in topic.partitions] for topic in answer.topics}


def next_cursor(answer: Any) -> Cursor | None:
    found = answer.next_cursor
    return None if found is None else (found.topic_name, found.partition_index)


async def test_all_topics_come_in_the_order_of_their_names_as_metadata_has_them(three: Wire) -> None:
    answer = await ask(three)
    assert next_cursor(answer) is None
    assert [(name, found) for name, found in indexes(answer).items()] == [
        ("a", [0, 1]),
        ("b", [0, 1, 2]),
        ("c", [0, 1, 2, 3]),
    ]
    shown = {topic.name: topic for topic in (await three.call(MetadataRequest(topics=None), 12)).topics}
    for topic in answer.topics:
        assert topic.topic_id == shown[topic.name].topic_id != ZERO_UUID
        assert (topic.error_code, topic.is_internal) == (0, False)
        assert topic.topic_authorized_operations == every_operation(ResourceType.TOPIC)
        for row, other in zip(topic.partitions, shown[topic.name].partitions, strict=True):
            assert (row.error_code, row.leader_id, row.leader_epoch) == (0, other.leader_id, other.leader_epoch)
            assert (row.replica_nodes, row.isr_nodes, row.offline_replicas) == ([0], [0], [])
            assert (row.eligible_leader_replicas, row.last_known_elr) == ([], [])


async def test_a_replica_whose_files_cannot_be_used_is_offline_once_the_cluster_knows_it(
    broker: Harness, wire: Wire
) -> None:
    await wire.create_topic("t", partitions=2)
    assert broker.node is not None
    broker.node.broker.topics.partition("t", 1).take_offline("its disk gives errors")
    await asyncio.sleep(1)
    (described,) = (await ask(wire)).topics
    (shown,) = (await wire.call(MetadataRequest(topics=None), 12)).topics
    for topic in (described, shown):
        assert [row.offline_replicas for row in topic.partitions] == [[], [0]]


@pytest.mark.parametrize("limit", [-1, 0, 1, 2, 3, 4, 5, 6, 8, 9, 100])
@pytest.mark.parametrize("names", [(), ("c", "a", "b", "a")], ids=["all", "named"])
async def test_pages_have_every_partition_once_in_order_and_none_more_than_the_limit(
    three: Wire, names: tuple[str, ...], limit: int
) -> None:
    seen: list[tuple[str, int]] = []
    cursor: Cursor | None = None
    for _ in range(20):
        answer = await ask(three, *names, limit=limit, cursor=cursor)
        page = [(name, index) for name, found in indexes(answer).items() for index in found]
        assert 1 <= len(page) <= max(1, limit)
        seen += page
        cursor = next_cursor(answer)
        if cursor is None:
            break
    assert seen == [(name, index) for name in sorted(COUNTS) for index in range(COUNTS[name])]


async def test_the_cursor_names_the_first_partition_that_did_not_fit(three: Wire) -> None:
    assert next_cursor(await ask(three, limit=1)) == ("a", 1)
    assert next_cursor(await ask(three, limit=2)) == ("b", 0)
    answer = await ask(three, limit=3, cursor=("b", 2))
    assert indexes(answer) == {"b": [2], "c": [0, 1]}
    assert next_cursor(answer) == ("c", 2)


async def test_the_broker_bounds_a_page_whatever_is_requested(start_broker: StartBroker) -> None:
    wire = await (await start_broker(max_request_partition_size_limit="3")).wire()
    await wire.create_topic("t", partitions=5)
    answer = await ask(wire, limit=100)
    assert (indexes(answer), next_cursor(answer)) == ({"t": [0, 1, 2]}, ("t", 3))


async def test_topics_that_do_not_exist_have_error_rows_among_the_others(three: Wire) -> None:
    answer = await ask(three, "b", "aa", "?", limit=100)
    assert [(topic.name, ErrorCode(topic.error_code)) for topic in answer.topics] == [
        ("?", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("aa", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("b", ErrorCode.NONE),
    ]
    assert [topic.topic_id for topic in answer.topics[:2]] == [ZERO_UUID] * 2


async def test_a_cursor_of_a_topic_that_was_deleted_continues_with_the_next_one(three: Wire) -> None:
    assert indexes(await ask(three, cursor=("bb", 7))) == {"c": [0, 1, 2, 3]}
    answer = await ask(three, "bb", "c", cursor=("bb", 7))
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]


async def test_a_cursor_beyond_the_last_partition_shows_the_topic_without_partitions(three: Wire) -> None:
    answer = await ask(three, cursor=("b", 9))
    assert indexes(answer) == {"b": [], "c": [0, 1, 2, 3]}


@pytest.mark.parametrize("cursor", [("b", -1), ("missing", 0)])
async def test_a_cursor_that_is_not_valid_refuses_each_topic(three: Wire, cursor: Cursor) -> None:
    answer = await ask(three, "a", "b", cursor=cursor)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.INVALID_REQUEST),
    ]
    assert (await ask(three, cursor=("b", -1))).topics == []  # as Kafka: there is no row for the error


async def test_internal_topics_are_marked(broker: Harness) -> None:
    wire = await broker.wire()
    assert broker.node is not None
    await broker.node.broker.groups.shard("g")
    (topic,) = (await ask(wire)).topics
    assert (topic.name, topic.is_internal) == ("__consumer_offsets", True)
