"""DescribeProducers (key 61): the producers whose state a partition keeps (KIP-664).

Served: v0, by leaders and followers, as in Kafka: `kafka-transactions.sh find-hanging --broker-id` asks one broker for
all its replicas. NOT_LEADER_OR_FOLLOWER: this broker has no replica, or its session has expired.
`current_txn_start_offset` is -1 for a producer without an open transaction.
"""

from __future__ import annotations

from semel_protocol.acls import Operation
from semel_protocol.errors import KafkaError
from semel_protocol.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersResponseActiveProducer,
    DescribeProducersResponsePartition,
    DescribeProducersResponseTopic,
)
from semel_protocol.refusals import refused_row

from semel_broker.authorization.administration import CHANGES_NOTHING
from semel_broker.authorization.requirements import Requirements, on_topics
from semel_broker.context import RequestContext
from semel_broker.partitions.partition import Role


async def handle(request: DescribeProducersRequest, ctx: RequestContext) -> DescribeProducersResponse:
    """Each partition once, in the order of the request: the answer may be far longer than the request."""
    asked: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    slices = ctx.slices()
    topics = []
    for name, indexes in asked.items():
        rows = []
        for index in indexes:
            rows.append(row := _describe(name, index, ctx))
            if slices.is_over(1 + len(row.active_producers)):
                await slices.next()
        topics.append(DescribeProducersResponseTopic(name=name, partitions=rows))
    return DescribeProducersResponse(topics=topics)


def _describe(topic: str, index: int, ctx: RequestContext) -> DescribeProducersResponsePartition:
    try:
        partition = ctx.broker.topics.partition(topic, index)
        if partition.role is not Role.FOLLOWER:
            partition.check_leading()
    except KafkaError as error:
        return refused_row(DescribeProducersResponsePartition, index, error.code, error.message)
    producers = partition.log.producers.all() if partition.is_open else []
    return DescribeProducersResponsePartition(
        partition_index=index,
        active_producers=[
            DescribeProducersResponseActiveProducer(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.txn_first_offset,
            )
            for producer in producers
        ],
    )


NEEDS: Requirements = (on_topics(Operation.READ, DescribeProducersRequest),)
NOT_AUDITED = CHANGES_NOTHING
LONG_ANSWER = True
