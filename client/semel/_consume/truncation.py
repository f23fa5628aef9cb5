"""Checks a new leader's log against the records that were read, for brokers where Fetch does not (KIP-320, below
v12).
"""

from __future__ import annotations

import msgspec
from semel_protocol.messages.k01_fetch import FetchRequest, FetchResponseDivergingEpoch
from semel_protocol.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
    OffsetForLeaderEpochResponse,
)

from semel._net.connection import Connection
from semel.structs import TopicPartition

ANY_CONSUMER = -1
FETCH_CHECKS_SINCE = 12
VERSION_MIN = 2
"""The first version of OffsetForLeaderEpoch that carries the client's leader epoch."""


class Read(msgspec.Struct, frozen=True):
    """The range to check: every offset below `offset` was read, the last record in `last_epoch`."""

    offset: int
    last_epoch: int
    leader_epoch: int


class Finding(msgspec.Struct, frozen=True):
    """The leader's answer: an error code, or the end of its log in that epoch.

    diverges: the leader's log ends before the offset that was read.
    """

    code: int
    diverges: bool
    leader: FetchResponseDivergingEpoch


def is_needed(connection: Connection) -> bool:
    """Whether the check is needed with this leader, and possible."""
    return connection.version(FetchRequest) < FETCH_CHECKS_SINCE and connection.serves(
        OffsetForLeaderEpochRequest, VERSION_MIN
    )


async def check(
    connection: Connection, read: dict[TopicPartition, Read], timeout_ms: float
) -> dict[TopicPartition, Finding]:
    """A finding for each partition in the leader's answer."""
    topics: dict[str, list[OffsetForLeaderEpochRequestPartition]] = {}
    for (topic, index), one in read.items():
        topics.setdefault(topic, []).append(
            OffsetForLeaderEpochRequestPartition(
                partition=index, current_leader_epoch=one.leader_epoch, leader_epoch=one.last_epoch
            )
        )
    request = OffsetForLeaderEpochRequest(
        replica_id=ANY_CONSUMER,
        topics=[OffsetForLeaderEpochRequestTopic(topic=topic, partitions=rows) for topic, rows in topics.items()],
    )
    answer: OffsetForLeaderEpochResponse = await connection.request(request, timeout_ms=timeout_ms)
    found: dict[TopicPartition, Finding] = {}
    for topic_row in answer.topics:
        for row in topic_row.partitions:
            partition = TopicPartition(topic_row.topic, row.partition)
            if partition in read:
                one = read[partition]
                # end_offset -1: the leader does not know the epoch, so it cannot say whether the logs diverge.
                diverges = row.end_offset >= 0 and (row.leader_epoch < one.last_epoch or row.end_offset < one.offset)
                leader = FetchResponseDivergingEpoch(epoch=row.leader_epoch, end_offset=row.end_offset)
                found[partition] = Finding(row.error_code, diverges, leader)
    return found
