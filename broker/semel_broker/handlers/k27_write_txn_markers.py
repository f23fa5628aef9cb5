"""WriteTxnMarkers (key 27): for clients, only to end a hanging transaction (KIP-664).

Served: v1. Markers are the coordinator's to write; it does so without this request. What an operator's tool may ask is
the abort of a transaction that is open in a partition and that no coordinator knows of. Anything else is refused; the
words are in a tagged field of our own, and in the log.
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
