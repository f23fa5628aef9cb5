"""ListOffsets: both ends, timestamps, the largest timestamp, leader epochs."""

from typing import Any

import pytest
from broker.harness import Harness, Wire, batch
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from semel_protocol.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6


async def look_up(wire: Wire, timestamp: int, *, partition: int = 0, version: int = 7, **fields: Any) -> Any:
    rows = [ListOffsetsRequestPartition(partition_index=partition, timestamp=timestamp, **fields)]
    topics = [ListOffsetsRequestTopic(name="t", partitions=rows)]
    response = await wire.call(ListOffsetsRequest(replica_id=-1, topics=topics), version)
    return response.topics[0].partitions[0]


@pytest.fixture
async def filled(wire: Wire) -> Wire:
    """Offsets 0 to 4 with timestamps 100, 300, 300, 200, 400."""
    await wire.create_topic("t", message_timestamp_before_max_ms=str(2**63 - 1))
    for timestamp in (100, 300, 300, 200, 400):
        assert (await wire.produce("t", batch(b"x", timestamp=timestamp))).error_code == 0
    return wire


@pytest.mark.parametrize("version", range(1, 12))
async def test_both_ends_in_every_version(filled: Wire, version: int) -> None:
    assert (await look_up(filled, LATEST, version=version)).offset == 5
    assert (await look_up(filled, EARLIEST, version=version)).offset == 0
    assert (await look_up(filled, LATEST, version=version)).timestamp == -1


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [(0, (0, 100)), (100, (0, 100)), (101, (1, 300)), (300, (1, 300)), (301, (4, 400)), (401, (-1, -1))],
)
async def test_the_first_record_at_or_after_a_timestamp(filled: Wire, timestamp: int, found: tuple[int, int]) -> None:
    row = await look_up(filled, timestamp)
    assert (row.error_code, row.offset, row.timestamp) == (0, *found)


async def test_the_record_with_the_largest_timestamp(filled: Wire) -> None:
    assert ((await look_up(filled, MAX_TIMESTAMP)).offset, (await look_up(filled, MAX_TIMESTAMP)).timestamp) == (4, 400)


async def test_a_topic_that_was_never_written(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("t")
    answers = [await look_up(wire, timestamp) for timestamp in (LATEST, EARLIEST, MAX_TIMESTAMP, 5)]
    assert [(row.offset, row.timestamp) for row in answers] == [(0, -1), (0, -1), (-1, -1), (-1, -1)]


async def test_errors(filled: Wire) -> None:
    assert (await look_up(filled, LATEST, partition=9)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await look_up(filled, -77)).error_code == ErrorCode.INVALID_REQUEST
    assert (await look_up(filled, LATEST, current_leader_epoch=3)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize(
    ("timestamp", "since", "found"),
    [(MAX_TIMESTAMP, 7, 4), (EARLIEST_LOCAL, 8, 2), (LATEST_TIERED, 9, -1), (EARLIEST_PENDING_UPLOAD, 11, -1)],
)
async def test_without_remote_storage_all_records_are_local(
    filled: Wire, timestamp: int, since: int, found: int
) -> None:
    """KIP-1005. A version without the special value is refused."""
    rows = [DeleteRecordsRequestPartition(partition_index=0, offset=2)]
    await filled.call(
        DeleteRecordsRequest(topics=[DeleteRecordsRequestTopic(name="t", partitions=rows)], timeout_ms=1000)
    )
    for version in range(1, 12):
        row = await look_up(filled, timestamp, version=version)
        expected = (0, found) if version >= since else (ErrorCode.UNSUPPORTED_VERSION, -1)
        assert (row.error_code, row.offset) == expected, version


async def test_a_partition_that_is_named_twice_is_answered_once_with_an_error(wire: Wire) -> None:
    """As Kafka 4.3.1. Others of the request are served; a topic may be named twice with different partitions."""
    await wire.create_topic("t", partitions=3)
    for indexes in ([[0, 0, 1]], [[0, 1], [0]], [[0], [0], [0, 1]]):
        topics = [
            ListOffsetsRequestTopic(
                name="t",
                partitions=[
                    ListOffsetsRequestPartition(partition_index=index, timestamp=(LATEST, EARLIEST)[n % 2])
                    for n, index in enumerate(asked)
                ],
            )
            for asked in indexes
        ]
        answer = await wire.call(ListOffsetsRequest(replica_id=-1, topics=topics))
        rows = [(row.partition_index, row.error_code, row.offset) for t in answer.topics for row in t.partitions]
        assert rows == [(0, ErrorCode.INVALID_REQUEST, -1), (1, 0, 0)]
    rows = [ListOffsetsRequestPartition(partition_index=index, timestamp=LATEST) for index in (0, 2)]
    topics = [ListOffsetsRequestTopic(name="t", partitions=[row]) for row in rows]
    answer = await wire.call(ListOffsetsRequest(replica_id=-1, topics=topics))
    assert [row.error_code for topic in answer.topics for row in topic.partitions] == [0, 0]


@pytest.mark.parametrize("epoch", [-2, -5, -100, -(2**31)])
async def test_an_epoch_below_minus_one_is_fenced(filled: Wire, epoch: int) -> None:
    """As Kafka 4.3.1; -1 means that the client knows none."""
    for timestamp in (LATEST, EARLIEST, MAX_TIMESTAMP, 0):
        row = await look_up(filled, timestamp, current_leader_epoch=epoch)
        assert (row.error_code, row.offset) == (ErrorCode.FENCED_LEADER_EPOCH, -1)
    assert (await look_up(filled, LATEST, current_leader_epoch=-1)).error_code == 0


async def test_the_leader_epoch_is_that_of_the_found_record(broker: Harness, wire: Wire) -> None:
    """As Kafka 4.3.1: -1 if nothing is found, the current one at the end of the log."""
    await wire.create_topic("t", message_timestamp_before_max_ms=str(2**63 - 1))
    assert broker.node is not None
    partition = broker.node.broker.topics.partition("t", 0)
    assert [(await look_up(wire, timestamp)).leader_epoch for timestamp in (LATEST, EARLIEST, MAX_TIMESTAMP, 5)] == [
        0,
        0,
        -1,
        -1,
    ]
    for epoch, timestamp in ((0, 100), (2, 300), (2, 200), (3, 250)):
        partition.leader_epoch = epoch
        assert (await wire.produce("t", batch(b"x", timestamp=timestamp))).error_code == 0
    partition.leader_epoch = 5
    found = {
        t: (await look_up(wire, t, version=11)).leader_epoch for t in (LATEST, EARLIEST, -3, -4, -5, 100, 101, 301)
    }
    assert found == {LATEST: 5, EARLIEST: 0, -3: 2, -4: 0, -5: -1, 100: 0, 101: 2, 301: -1}


async def test_undated_records_have_a_newest_one_and_are_at_no_time(wire: Wire) -> None:
    """As Kafka 4.3.1."""
    await wire.create_topic("t")
    for _ in range(2):
        assert (await wire.produce("t", batch(b"x", timestamp=-1))).error_code == 0
    row = await look_up(wire, MAX_TIMESTAMP)
    assert (row.error_code, row.offset, row.timestamp, row.leader_epoch) == (0, 0, -1, 0)
    assert (await look_up(wire, 0)).offset == -1
