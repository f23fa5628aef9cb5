"""PushTelemetry (key 72): the metrics of a client, in OpenTelemetry's format. KIP-714."""

from semel_protocol.declaration import Api, ApiKey, Feature
from semel_protocol.schema import ZERO_UUID, Int8, Int16, Int32, Message, Uuid


class PushTelemetryRequest(Message, kw_only=True):
    client_instance_id: Uuid = ZERO_UUID
    subscription_id: Int32 = 0
    terminating: bool = False
    compression_type: Int8 = 0
    metrics: bytes = b""


class PushTelemetryResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


API = Api(
    ApiKey.PUSH_TELEMETRY,
    PushTelemetryRequest,
    PushTelemetryResponse,
    declared=(0, 0),
    flexible=0,
    advertised=(0, 0),
    needs_feature=Feature.TELEMETRY,
)
