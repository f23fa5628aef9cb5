"""DescribeCluster (key 60): this broker, which is also the controller (KIP-700).

Served: v0 and v1. Endpoint type 2 (controllers) is refused with INVALID_REQUEST: they have no listener of their own.
"""

from __future__ import annotations

from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k60_describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeClusterResponseBroker,
)

from semel_broker.context import RequestContext

BROKERS = 1


def handle(request: DescribeClusterRequest, ctx: RequestContext) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "only brokers (endpoint type 1) can be described on this listener")
    broker = ctx.broker
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[DescribeClusterResponseBroker(broker_id=broker.node_id, host=broker.host, port=broker.port)],
    )
