"""OffsetForLeaderEpoch (key 23): the end offset of a leader epoch.

Served: v2 to v4. Consumers use it to detect that records they have read were truncated (KIP-320). The answer is the
largest epoch with records that is not above the requested one, and the first offset after it; (-1, -1) if the leader
has no such epoch. The last epoch ends at the end of the log.
"""

from __future__ import annotations

from functools import partial

from semel_protocol.acls import Operation
from semel_protocol.errors import KafkaError
from semel_protocol.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponsePartition,
    OffsetForLeaderEpochResponseTopic,
)
from semel_protocol.refusals import refused_row

from semel_broker.authorization.administration import CHANGES_NOTHING
from semel_broker.authorization.requirements import Requirements, on_topics
from semel_broker.context import RequestContext


async def handle(request: OffsetForLeaderEpochRequest, ctx: RequestContext) -> OffsetForLeaderEpochResponse:
    slices = ctx.slices()
    topics = []
    for topic in request.topics:
        partitions = await slices.each(topic.partitions, partial(_row, topic.topic, ctx=ctx))
        topics.append(OffsetForLeaderEpochResponseTopic(topic=topic.topic, partitions=partitions))
    return OffsetForLeaderEpochResponse(topics=topics)


def _row(
    topic: str, wanted: OffsetForLeaderEpochRequestPartition, ctx: RequestContext
) -> OffsetForLeaderEpochResponsePartition:
    try:
        partition = ctx.broker.topics.partition(topic, wanted.partition)
        partition.check_leading()
        partition.check_leader_epoch(wanted.current_leader_epoch)
        epoch, end_offset = partition.log.epochs.end_offset_for(wanted.leader_epoch, partition.end_offset)
    except KafkaError as error:
        return refused_row(OffsetForLeaderEpochResponsePartition, wanted, error.code)
    return OffsetForLeaderEpochResponsePartition(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)


NEEDS: Requirements = (on_topics(Operation.DESCRIBE, OffsetForLeaderEpochRequest),)
NOT_AUDITED = CHANGES_NOTHING
