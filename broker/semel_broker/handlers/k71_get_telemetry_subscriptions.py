"""GetTelemetrySubscriptions (key 71): the metrics that this client is asked to push, and how (KIP-714).

The first request has no client instance id, and the answer assigns one. The subscription is the union of all those that
select the client. THROTTLING_QUOTA_EXCEEDED: the interval since the last request is not over. Counters are asked for as
totals (no delta temporality): a push that is lost, or that goes to another broker, loses nothing then.
"""

from __future__ import annotations

from semel_protocol.compression import GZIP, LZ4, SNAPPY, ZSTD
from semel_protocol.messages.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

from semel_broker.authorization.administration import OWN_METRICS
from semel_broker.authorization.requirements import Requirements
from semel_broker.context import RequestContext
from semel_broker.telemetry.instances import Client

CODECS = [ZSTD, LZ4, GZIP, SNAPPY]
"""In the order of preference."""


async def handle(request: GetTelemetrySubscriptionsRequest, ctx: RequestContext) -> GetTelemetrySubscriptionsResponse:
    telemetry = ctx.broker.telemetry
    assert telemetry is not None, "the API is offered with a receiver alone"
    instance_id, instance = telemetry.get(request.client_instance_id, client_of(ctx))
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=CODECS,
        push_interval_ms=instance.interval_ms,
        telemetry_max_bytes=ctx.broker.config.telemetry_max_bytes,
        requested_metrics=list(instance.metrics),
    )


def client_of(ctx: RequestContext) -> Client:
    """The client that sends this request."""
    return Client(ctx.client_id, *ctx.software, ctx.client_host, ctx.client_port)


NEEDS: Requirements = ()
"""As in Kafka, every client may push its metrics."""
NOT_AUDITED = OWN_METRICS
