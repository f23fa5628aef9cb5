"""IncrementalAlterConfigs (key 44): set, delete, append, subtract. KIP-339."""

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int8, Int16, Int32, Message


class IncrementalAlterConfigsRequestConfig(Message, kw_only=True):
    name: str
    config_operation: Int8
    value: str | None


class IncrementalAlterConfigsRequestResource(Message, kw_only=True):
    resource_type: Int8
    resource_name: str
    configs: list[IncrementalAlterConfigsRequestConfig]


class IncrementalAlterConfigsRequest(Message, kw_only=True):
    resources: list[IncrementalAlterConfigsRequestResource]
    validate_only: bool


class IncrementalAlterConfigsResponseResource(Message, kw_only=True):
    error_code: Int16 = 0
    error_message: str | None = None
    resource_type: Int8 = 0
    resource_name: str = ""


class IncrementalAlterConfigsResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    responses: list[IncrementalAlterConfigsResponseResource] = []


API = Api(
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    declared=(0, 1),
    flexible=1,
    advertised=(0, 1),
)
