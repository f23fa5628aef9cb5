"""OffsetForLeaderEpoch (key 23): where the records of a leader epoch end, for consumers that want to know whether what
they have read is still so (KIP-320).

Served: v2 to v4. The answer is the largest epoch up to the one asked for that has records, and the first offset that
is not of it or an older one; (-1, -1) when the leader has nothing of the kind. Epochs end at the end of the log.
"""

from __future__ import annotations

from semel_protocol.errors import KafkaError
from semel_protocol.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponsePartition,
    OffsetForLeaderEpochResponseTopic,
)

from semel_broker.context import RequestContext


def handle(request: OffsetForLeaderEpochRequest, ctx: RequestContext) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponseTopic(
                topic=topic.topic, partitions=[_row(topic.topic, wanted, ctx) for wanted in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _row(
    topic: str, wanted: OffsetForLeaderEpochRequestPartition, ctx: RequestContext
) -> OffsetForLeaderEpochResponsePartition:
    try:
        partition = ctx.broker.topics.partition(topic, wanted.partition)
        partition.check_leading()
        partition.check_leader_epoch(wanted.current_leader_epoch)
        epoch, end_offset = partition.log.epochs.end_offset_for(wanted.leader_epoch, partition.end_offset)
    except KafkaError as error:
        return OffsetForLeaderEpochResponsePartition(partition=wanted.partition, error_code=error.code)
    return OffsetForLeaderEpochResponsePartition(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)
