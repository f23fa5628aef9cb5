"""GetTelemetrySubscriptions (key 71): the metrics that a client is asked to push. KIP-714."""

from semel_protocol.declaration import Api, ApiKey, Feature
from semel_protocol.schema import ZERO_UUID, Int8, Int16, Int32, Message, Uuid


class GetTelemetrySubscriptionsRequest(Message, kw_only=True):
    client_instance_id: Uuid = ZERO_UUID


class GetTelemetrySubscriptionsResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: Uuid = ZERO_UUID
    subscription_id: Int32 = 0
    accepted_compression_types: list[Int8] = []
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    delta_temporality: bool = False
    requested_metrics: list[str] = []


API = Api(
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    declared=(0, 0),
    flexible=0,
    advertised=(0, 0),
    needs_feature=Feature.TELEMETRY,
)
