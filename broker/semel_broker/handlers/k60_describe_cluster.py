"""DescribeCluster (key 60): the brokers and the controller (KIP-700).

Served: v0 to v2. v2 can ask for fenced brokers, too: those that have registered and are not admitted yet (KIP-1073). A
broker whose session has ended is not registered any more. Endpoint type 2 (controllers) is answered with
INVALID_REQUEST: controllers have no listener of their own. Tagged fields of semel carry the remaining session time of
the answering broker, so that `semel cluster` can tell an unreachable store from a broker that is down, and how long its
disk has been hanging.
"""

from __future__ import annotations

from typing import Any

from semel_protocol.acls import CLUSTER_NAME, NOT_ASKED, Operation, ResourceType, every_operation
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k60_describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeClusterResponseBroker,
)
from semel_protocol.schema import Message
from semel_protocol.visible import encodable

from semel_broker.authorization.access import Access
from semel_broker.authorization.administration import CHANGES_NOTHING
from semel_broker.authorization.requirements import CheckedRequest, CustomRequirement, Requirements, Steps
from semel_broker.context import RequestContext
from semel_broker.handlers.k03_metadata import controller_of, operations_of_cluster, this_broker
from semel_broker.topics.advertised_brokers import AdvertisedBroker

BROKERS = 1


async def handle(request: DescribeClusterRequest, ctx: RequestContext) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "this listener describes brokers only; use endpoint type 1")
    wants_fenced = request.include_fenced_brokers
    session, hangs = ctx.broker.registration, ctx.broker.topics.local.hangs
    return DescribeClusterResponse(
        cluster_id=ctx.broker.cluster_id,
        controller_id=controller_of(ctx.broker.feed.image),
        brokers=[
            DescribeClusterResponseBroker(broker_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
            for each in ctx.broker.advertised_brokers.live(ctx.listener) or this_broker(ctx)
        ]
        + ([_fenced(each) for each in ctx.broker.advertised_brokers.fenced(ctx.listener)] if wants_fenced else []),
        cluster_authorized_operations=every_operation(ResourceType.CLUSTER)
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
        session_left_ms=-1 if session is None else session.left_ms,
        session_timeout_ms=-1 if session is None else ctx.broker.config.broker_session_timeout_ms,
        disk_hangs_ms=round(hangs.waiting_s * 1000) if hangs.stops_writes else -1,
        disk_path=encodable(ctx.broker.config.log_dir) if hangs.stops_writes else "",
    )


def _fenced(broker: AdvertisedBroker) -> DescribeClusterResponseBroker:
    return DescribeClusterResponseBroker(
        broker_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack, is_fenced=True
    )


# --- rights and audit ----------------------------------------------------------------------------------------


def _check(request: DescribeClusterRequest, ctx: RequestContext, access: Access) -> Steps:
    """Nothing: the brokers are known to every client. Authorized operations (KIP-430) and the path of a disk that hangs
    need Describe on the cluster."""
    yield 1

    def without_path(response: Any) -> Message:
        if response.disk_path and not access.allows_quietly(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
            response.disk_path = ""
        made: Message = response
        return made

    def with_operations(response: Any) -> Message:
        response.cluster_authorized_operations = operations_of_cluster(access)
        return without_path(response)

    complete = with_operations if request.include_cluster_authorized_operations else without_path
    return CheckedRequest(request, complete=[complete])


NEEDS: Requirements = (
    CustomRequirement([(Operation.DESCRIBE, ResourceType.CLUSTER, "for authorized operations only")], _check),
)
NOT_AUDITED = CHANGES_NOTHING
