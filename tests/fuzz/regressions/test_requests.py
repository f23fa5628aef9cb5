"""Faults found by fuzzing requests, each with the smallest request that showed it."""

from __future__ import annotations

from broker.wire import Wire
from fuzz.fuzzed_broker import FuzzedBroker
from semel_protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

INT64_MAX = 2**63 - 1


def test_offsets_committed_for_the_longest_time_there_is_do_not_overflow() -> None:
    target = FuzzedBroker.open()

    async def commit() -> list[int]:
        wire = await Wire.connect(target.node.port)
        row = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        request = OffsetCommitRequest(
            group_id="h",
            generation_id_or_member_epoch=-1,
            member_id="",
            retention_time_ms=INT64_MAX,
            topics=[OffsetCommitRequestTopic(name="t", partitions=[row])],
        )
        response = await wire.call(request, 4)
        await wire.close()
        return [row.error_code for row in response.topics[0].partitions]

    assert target.run(commit()) == [0]
    target.close()
