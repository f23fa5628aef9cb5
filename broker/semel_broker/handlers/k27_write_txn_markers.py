"""WriteTxnMarkers (key 27): for clients, only to abort a hanging transaction (KIP-664).

Served: v1. The coordinator writes markers without this request. An operator's tool may ask to abort a transaction that
is open in a partition and unknown to every coordinator. All else is refused; a tagged field of semel and the log carry
the message.
"""

from __future__ import annotations

from semel_protocol.acls import CLUSTER_NAME, Operation, ResourceType
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k27_write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersResponse,
    WriteTxnMarkersResponseMarker,
    WriteTxnMarkersResponsePartition,
    WriteTxnMarkersResponseTopic,
)
from semel_protocol.refusals import first_error, refused, refused_row

from semel_broker.authorization.access import Access
from semel_broker.authorization.administration import Administration, AdministrativeChange, Codes
from semel_broker.authorization.requirements import REFUSAL_OF, CheckedRequest, CustomRequirement, Requirements, Steps
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
        return refused_row(WriteTxnMarkersResponsePartition, index, error.code, error.message)
    return WriteTxnMarkersResponsePartition(partition_index=index)


# --- rights and audit ----------------------------------------------------------------------------------------


def _check(request: WriteTxnMarkersRequest, ctx: RequestContext, access: Access) -> Steps:
    """ClusterAction, or Alter on the cluster: an operator's tool aborts a hanging transaction with this request."""
    yield 1
    if access.allows_quietly(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME) or access.allows(
        Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME
    ):
        return CheckedRequest(request)
    return CheckedRequest(request, refused(request, REFUSAL_OF[ResourceType.CLUSTER]))


def _written(request: WriteTxnMarkersRequest, ctx: RequestContext) -> list[AdministrativeChange]:
    rights = [(each, ResourceType.CLUSTER, CLUSTER_NAME) for each in (Operation.CLUSTER_ACTION, Operation.ALTER)]
    return [
        AdministrativeChange(
            rights,
            topic.name,
            Operation.ALTER,
            ResourceType.TOPIC,
            topic.name,
            [
                f"partition {index}: {'commit' if marker.transaction_result else 'abort'} of producer "
                f"{marker.producer_id}, epoch {marker.producer_epoch}"
                for index in topic.partition_indexes
            ],
        )
        for marker in request.markers
        for topic in marker.topics
    ]


def _codes(response: WriteTxnMarkersResponse, deeds: list[AdministrativeChange]) -> Codes:
    found: Codes = {}
    for marker in response.markers:
        for topic in marker.topics:
            found[topic.name] = found.get(topic.name) or first_error(topic)
    return found


NEEDS: Requirements = (
    CustomRequirement(
        [(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "or:"), (Operation.ALTER, ResourceType.CLUSTER, "")], _check
    ),
)
AUDIT = Administration(_written, _codes, refuses_itself=True)
LONG_ANSWER = True
