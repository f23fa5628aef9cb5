"""Faults found by fuzzing record batches, each with the smallest batch that showed it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from broker.wire import Wire, produce_request
from fuzz.fuzzed_broker import WALL_MS, FuzzedBroker
from fuzz.record_batches import bomb, many_records
from semel_protocol.batch import read_header
from semel_protocol.compression import GZIP, LZ4, ZSTD
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from semel_protocol.schema import Message

TURN_S_MAX = 0.25
"""The limit on a slow machine. With the fault a turn took more than a second."""
MANY = 400_000
LATER_MS = WALL_MS + 1_000_000


def asked(*requests: Message, before: Callable[[FuzzedBroker], None] | None = None) -> tuple[list[Any], float]:
    """The answers of a broker with large segments, and the CPU time of the longest turn of its loop."""
    target = FuzzedBroker.open(log_segment_bytes="100000000")

    async def ask() -> list[Any]:
        if before is not None:
            before(target)
        target.loop.forget_turns()
        wire = await Wire.connect(target.node.port)
        answers = [await wire.call(request, 7) for request in requests]
        await wire.close()
        return answers

    answers = target.run(ask())
    longest_s = target.loop.longest_turn_s
    target.close()
    return answers, longest_s


def list_offsets(timestamp: int) -> ListOffsetsRequest:
    row = ListOffsetsRequestPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[ListOffsetsRequestTopic(name="t", partitions=[row])]
    )


def test_batch_of_very_many_records_does_not_block_others_in_a_compacted_topic() -> None:
    (response,), longest_s = asked(produce_request("c", many_records(MANY)))
    row = response.responses[0].partition_responses[0]
    assert row.error_code == ErrorCode.MESSAGE_TOO_LARGE  # producers then split the batch
    assert longest_s < TURN_S_MAX


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_bomb_in_a_compacted_topic_is_too_large(codec: int) -> None:
    (response,), longest_s = asked(produce_request("c", bomb(codec)))
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert longest_s < TURN_S_MAX


@pytest.mark.parametrize("timestamp", [-3, LATER_MS])
def test_batch_of_very_many_records_is_found_by_time_without_decoding(timestamp: int) -> None:
    batch = many_records(MANY, timestamp_ms=LATER_MS)
    (produced, listed), longest_s = asked(produce_request("t", batch), list_offsets(timestamp))
    offset = produced.responses[0].partition_responses[0].base_offset
    row = listed.topics[0].partitions[0]
    assert (row.error_code, row.offset, row.timestamp) == (ErrorCode.NONE, offset, LATER_MS)
    assert longest_s < TURN_S_MAX


def test_bomb_is_found_by_time_without_decoding() -> None:
    """The bomb is stored already: Produce refuses new ones."""
    stored: list[int] = []

    def store(target: FuzzedBroker) -> None:
        data = bomb(ZSTD)
        partition = target.node.broker.topics.partition("t", 0)
        stored.append(partition.append(data, header=read_header(data)).base_offset)

    (produced, listed), longest_s = asked(produce_request("t", bomb(ZSTD)), list_offsets(-3), before=store)
    assert produced.responses[0].partition_responses[0].error_code == ErrorCode.MESSAGE_TOO_LARGE
    row = listed.topics[0].partitions[0]
    assert (row.error_code, [row.offset]) == (ErrorCode.NONE, stored)
    assert longest_s < TURN_S_MAX
