"""OffsetForLeaderEpoch of consumers: the end offset of an epoch (KIP-320)."""

from typing import Any

import pytest
from broker.harness import Harness, Wire, batch
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
)


async def ask(wire: Wire, epoch: int, *, current: int = -1, partition: int = 0, version: int = 4) -> Any:
    row = OffsetForLeaderEpochRequestPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    topics = [OffsetForLeaderEpochRequestTopic(topic="t", partitions=[row])]
    answer = await wire.call(OffsetForLeaderEpochRequest(topics=topics), version)
    return answer.topics[0].partitions[0]


@pytest.fixture
async def filled(broker: Harness, wire: Wire) -> Wire:
    """Offsets 0 to 2 have epoch 0, 3 and 4 have epoch 2; the current epoch 5 has no records."""
    await wire.create_topic("t")
    assert broker.node is not None
    partition = broker.node.broker.topics.partition("t", 0)
    for epoch, count in ((0, 3), (2, 2), (5, 0)):
        partition.leader_epoch = epoch
        for _ in range(count):
            assert (await wire.produce("t", batch(b"x"))).error_code == 0
    return wire


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_end_of_an_epoch_in_every_version(filled: Wire, version: int) -> None:
    row = await ask(filled, 0, version=version)
    assert (row.error_code, row.partition, row.leader_epoch, row.end_offset) == (0, 0, 0, 3)


@pytest.mark.parametrize(("epoch", "found", "end"), [(0, 0, 3), (1, 0, 3), (2, 2, 5), (3, -1, -1), (-1, -1, -1)])
async def test_answer_is_the_largest_epoch_with_records_up_to_the_requested(
    filled: Wire, epoch: int, found: int, end: int
) -> None:
    row = await ask(filled, epoch)
    assert (row.error_code, row.leader_epoch, row.end_offset) == (0, found, end)


@pytest.mark.parametrize(
    ("current", "code"),
    [
        (-100, ErrorCode.FENCED_LEADER_EPOCH),
        (-2, ErrorCode.FENCED_LEADER_EPOCH),
        (-1, ErrorCode.NONE),
        (4, ErrorCode.FENCED_LEADER_EPOCH),
        (5, ErrorCode.NONE),
        (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
async def test_leader_epochs_must_agree(filled: Wire, current: int, code: ErrorCode) -> None:
    assert (await ask(filled, 0, current=current)).error_code == code


async def test_unknown_partition(filled: Wire) -> None:
    assert (await ask(filled, 0, partition=9)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
