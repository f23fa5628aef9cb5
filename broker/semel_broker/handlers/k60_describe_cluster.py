"""DescribeCluster (key 60): the brokers and the controller (KIP-700).

Served: v0 to v2. v2 can ask for fenced brokers, too: those that have registered and are not admitted yet (KIP-1073). A
broker whose session has ended is not registered any more. Endpoint type 2 (controllers) is answered with
INVALID_REQUEST: controllers have no listener of their own. A tagged field of semel carries the remaining session time
of the answering broker, so that `semel cluster` can tell an unreachable store from a broker that is down.
"""

from __future__ import annotations

from typing import Any

from semel_protocol.acls import NOT_ASKED, Operation, ResourceType, every_operation
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k60_describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeClusterResponseBroker,
)
from semel_protocol.schema import Message

from semel_broker.authorization.access import Access
from semel_broker.authorization.administration import CHANGES_NOTHING
from semel_broker.authorization.requirements import Permitted, Requirements, Special, Steps
from semel_broker.context import RequestContext
from semel_broker.handlers.k03_metadata import controller_of, operations_of_cluster, this_broker
from semel_broker.topics.advertised_brokers import AdvertisedBroker

BROKERS = 1


def handle(request: DescribeClusterRequest, ctx: RequestContext) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "this listener describes brokers only; use endpoint type 1")
    wants_fenced = request.include_fenced_brokers
    session = ctx.broker.registration
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
    )


def _fenced(broker: AdvertisedBroker) -> DescribeClusterResponseBroker:
    return DescribeClusterResponseBroker(
        broker_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack, is_fenced=True
    )


# --- rights and audit ----------------------------------------------------------------------------------------


def _check(request: DescribeClusterRequest, ctx: RequestContext, access: Access) -> Steps:
    """Nothing: the brokers are known to every client. Authorized operations need Describe on the cluster (KIP-430)."""
    yield 1
    if not request.include_cluster_authorized_operations:
        return Permitted(request)

    def with_operations(response: Any) -> Message:
        response.cluster_authorized_operations = operations_of_cluster(access)
        made: Message = response
        return made

    return Permitted(request, complete=[with_operations])


NEEDS: Requirements = (Special([(Operation.DESCRIBE, ResourceType.CLUSTER, "for authorized operations only")], _check),)
NOT_AUDITED = CHANGES_NOTHING
