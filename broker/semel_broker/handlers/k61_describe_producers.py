"""DescribeProducers (key 61): the producers whose state a partition keeps (KIP-664).

Served: v0. `current_txn_start_offset` is -1 for a producer without an open transaction.
"""

from __future__ import annotations

from semel_protocol.errors import KafkaError
from semel_protocol.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersResponseActiveProducer,
    DescribeProducersResponsePartition,
    DescribeProducersResponseTopic,
)

from semel_broker.context import RequestContext


def handle(request: DescribeProducersRequest, ctx: RequestContext) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponseTopic(
                name=topic.name, partitions=[_describe(topic.name, index, ctx) for index in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


def _describe(topic: str, index: int, ctx: RequestContext) -> DescribeProducersResponsePartition:
    try:
        partition = ctx.broker.topics.partition(topic, index)
        partition.check_leading()
    except KafkaError as error:
        return DescribeProducersResponsePartition(
            partition_index=index, error_code=error.code, error_message=error.message
        )
    producers = partition.log.active_producers() if partition.is_open else []
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
