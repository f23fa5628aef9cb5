"""ListConfigResources (key 74): names of resources with settings. KIP-1000 (v0, client metrics), KIP-1142 (v1)."""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int8, Int16, Int32, Message, since


class ListConfigResourcesRequest(Message, kw_only=True):
    resource_types: Annotated[list[Int8], since(1)] = []


class ListConfigResourcesResponseConfigResource(Message, kw_only=True):
    resource_name: str = ""
    resource_type: Annotated[Int8, since(1)] = 16


class ListConfigResourcesResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ListConfigResourcesResponseConfigResource] = []


API = Api(
    ApiKey.LIST_CONFIG_RESOURCES,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    declared=(0, 1),
    flexible=0,
    advertised=(0, 1),
)
