"""DescribeCluster (key 60): the brokers, and which of them is the controller (KIP-700).

Served: v0 and v1. Endpoint type 2 (controllers) is refused with INVALID_REQUEST: they have no listener of their own.

Tagged fields of semel: how long the session of the broker that answers lasts, so that `semel cluster` can tell a store
that does not answer from a broker that is away.
"""

from __future__ import annotations

from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k60_describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeClusterResponseBroker,
)

from semel_broker.context import RequestContext
from semel_broker.handlers.k03_metadata import controller_of, this_broker

BROKERS = 1


def handle(request: DescribeClusterRequest, ctx: RequestContext) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "only brokers (endpoint type 1) can be described on this listener")
    session = ctx.broker.registration
    return DescribeClusterResponse(
        cluster_id=ctx.broker.cluster_id,
        controller_id=controller_of(ctx.broker.feed.image),
        brokers=[
            DescribeClusterResponseBroker(broker_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
            for each in ctx.broker.advertised_brokers.live() or [this_broker(ctx.broker)]
        ],
        session_left_ms=-1 if session is None else session.left_ms,
        session_timeout_ms=-1 if session is None else ctx.broker.config.broker_session_timeout_ms,
    )
