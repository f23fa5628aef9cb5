"""ListOffsets: both ends, timestamps, the largest timestamp."""

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
    """Offsets 0 to 4 with timestamps 100, 300, 300, 200, 400; 400 is in the middle of nothing special."""
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
