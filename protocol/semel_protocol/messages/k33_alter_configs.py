"""AlterConfigs (key 33): replace all settings of a resource. KIP-133; superseded by IncrementalAlterConfigs."""

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int8, Int16, Int32, Message


class AlterConfigsRequestConfig(Message, kw_only=True):
    name: str
    value: str | None


class AlterConfigsRequestResource(Message, kw_only=True):
    resource_type: Int8
    resource_name: str
    configs: list[AlterConfigsRequestConfig]


class AlterConfigsRequest(Message, kw_only=True):
    resources: list[AlterConfigsRequestResource]
    validate_only: bool


class AlterConfigsResponseResource(Message, kw_only=True):
    error_code: Int16 = 0
    error_message: str | None = None
    resource_type: Int8 = 0
    resource_name: str = ""


class AlterConfigsResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResponseResource] = []


API = Api(
    ApiKey.ALTER_CONFIGS, AlterConfigsRequest, AlterConfigsResponse, declared=(0, 2), flexible=2, advertised=(0, 2)
)
