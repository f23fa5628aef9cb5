"""WriteTxnMarkers (key 27): for clients, only to abort a hanging transaction (KIP-664).

Served: v1. The coordinator writes markers without this request. An operator's tool may ask to abort a transaction that
is open in a partition and unknown to every coordinator. All else is refused; a tagged field of semel and the log carry
the message.
"""

from __future__ import annotations

from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k27_write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersResponse,
    WriteTxnMarkersResponseMarker,
    WriteTxnMarkersResponsePartition,
    WriteTxnMarkersResponseTopic,
)

from semel_broker.context import RequestContext
from semel_broker.txn.model.identity import ProducerIdentity


async def handle(request: WriteTxnMarkersRequest, ctx: RequestContext) -> WriteTxnMarkersResponse:
    slices = ctx.slices()
    markers = []
    for marker in request.markers:
        topics = []
        for topic in marker.topics:
            rows = []
            for index in topic.partition_indexes:
                rows.append(await _abort(marker, topic.name, index, ctx))
                if slices.is_over():
                    await slices.next()
            topics.append(WriteTxnMarkersResponseTopic(name=topic.name, partitions=rows))
        markers.append(WriteTxnMarkersResponseMarker(producer_id=marker.producer_id, topics=topics))
    return WriteTxnMarkersResponse(markers=markers)


async def _abort(
    marker: WriteTxnMarkersRequestMarker, topic: str, index: int, ctx: RequestContext
) -> WriteTxnMarkersResponsePartition:
    producer = ProducerIdentity(marker.producer_id, marker.producer_epoch)
    try:
        if marker.transaction_result:
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "only the coordinator commits")
        await ctx.broker.transactions.abort_hanging(producer, (topic, index), marker.coordinator_epoch, ctx.client)
    except KafkaError as error:
        ctx.broker.log.warning(
            "marker_refused", topic=topic, partition=index, producer=str(producer), by=str(ctx.client), error=str(error)
        )
        return WriteTxnMarkersResponsePartition(
            partition_index=index, error_code=error.code, error_message=error.message
        )
    return WriteTxnMarkersResponsePartition(partition_index=index)
