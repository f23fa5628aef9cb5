"""DescribeLogDirs (key 35): the replicas in the broker's data directory, with their sizes (KIP-113).

There is one directory, and no replica moves between directories. The sizes of the file system (v4) are not known: -1.
The directory is never cordoned (v5). Topics and partitions without a replica here are left out.
"""

from __future__ import annotations

from semel_protocol.acls import Operation
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k35_describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResponsePartition,
    DescribeLogDirsResponseResult,
    DescribeLogDirsResponseTopic,
)
from semel_protocol.visible import encodable

from semel_broker.authorization.administration import CHANGES_NOTHING
from semel_broker.authorization.requirements import Requirements, on_cluster
from semel_broker.cluster.image import PartitionView
from semel_broker.context import RequestContext
from semel_broker.topics.topics import Topics


async def handle(request: DescribeLogDirsRequest, ctx: RequestContext) -> DescribeLogDirsResponse:
    """By topic and index."""
    asked = None if request.topics is None else {topic.topic: set(topic.partitions) for topic in request.topics}
    broker = ctx.broker
    topics: dict[str, DescribeLogDirsResponseTopic] = {}

    def describe(view: PartitionView) -> None:
        if broker.node_id in view.replicas and (asked is None or view.index in asked.get(view.topic, ())):
            row = _row(broker.topics, view)
            topics.setdefault(
                view.topic, DescribeLogDirsResponseTopic(name=view.topic, partitions=[])
            ).partitions.append(row)

    await ctx.slices().each(broker.feed.image.partitions(), describe)
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResponseResult(log_dir=encodable(ctx.broker.config.log_dir), topics=list(topics.values()))
        ]
    )


def _row(topics: Topics, view: PartitionView) -> DescribeLogDirsResponsePartition:
    """A partition that was never written has the size 0. A log that is not open yet is not opened for this."""
    row, partition = DescribeLogDirsResponsePartition(partition_index=view.index), topics.local.get(*view.place)
    if partition is None:
        row.partition_size = topics.unopened_size(view.topic, view.index)
    elif partition.is_open and not partition.is_retired:
        row.partition_size = partition.log.size
        row.offset_lag = max(0, partition.high_watermark - partition.end_offset)
    return row


# --- rights and audit ----------------------------------------------------------------------------------------


def _refused(request: DescribeLogDirsRequest, code: ErrorCode, why: str) -> DescribeLogDirsResponse:
    """No directory. Before v3 there is no field for the error; as in Kafka, the list is empty."""
    return DescribeLogDirsResponse(error_code=code)


NEEDS: Requirements = (on_cluster(Operation.DESCRIBE, _refused),)
NOT_AUDITED = CHANGES_NOTHING
LONG_ANSWER = True
