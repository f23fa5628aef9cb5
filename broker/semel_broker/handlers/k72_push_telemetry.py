"""PushTelemetry (key 72): takes the metrics of a client (KIP-714).

INVALID_REQUEST: a reserved id, or the client has terminated. THROTTLING_QUOTA_EXCEEDED: the push comes too early; the
last one of a client never does. UNKNOWN_SUBSCRIPTION_ID: the subscriptions have changed. UNSUPPORTED_COMPRESSION_TYPE.
TELEMETRY_TOO_LARGE: larger than telemetry.max.bytes. INVALID_RECORD: the bytes are not metrics. A push that is too
large when decompressed closes its connection.
"""

from __future__ import annotations

from semel_protocol.batch import CorruptBatch
from semel_protocol.compression import NONE, InflatesTooLarge, inflating
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k72_push_telemetry import PushTelemetryRequest, PushTelemetryResponse

from semel_broker.answers import CloseConnectionError
from semel_broker.authorization.administration import OWN_METRICS
from semel_broker.authorization.requirements import Requirements
from semel_broker.context import RequestContext
from semel_broker.handlers.k71_get_telemetry_subscriptions import client_of
from semel_broker.pushed_points import UnreadableMetricsError


async def handle(request: PushTelemetryRequest, ctx: RequestContext) -> PushTelemetryResponse:
    telemetry, read = ctx.broker.telemetry, ctx.broker.world.read_otlp
    assert telemetry is not None, "the API is offered with a receiver alone"
    instance = telemetry.begin_push(
        request.client_instance_id,
        client_of(ctx),
        request.subscription_id,
        request.compression_type,
        len(request.metrics),
        is_last=request.terminating,
    )
    slices = ctx.slices()
    data = bytes(request.metrics)
    try:
        if request.compression_type != NONE and data:
            data = bytes(await slices.finish(inflating(request.compression_type, data, telemetry.inflated_bytes_max)))
        if read is not None:
            for point in read(data):
                telemetry.note(instance, point)
                if slices.is_over():
                    await slices.next()
    except InflatesTooLarge as error:
        telemetry.refusal(ErrorCode.TELEMETRY_TOO_LARGE, error.message)
        raise CloseConnectionError("telemetry_inflates_too_large", error=error.message) from None
    except (CorruptBatch, UnreadableMetricsError) as error:
        raise telemetry.refusal(ErrorCode.INVALID_RECORD, str(error)) from None
    if telemetry.forwarder is not None and data:
        telemetry.forwarder.forward(data)
    return PushTelemetryResponse()


NEEDS: Requirements = ()
"""As in Kafka, every client may push its metrics."""
NOT_AUDITED = OWN_METRICS
