"""DescribeConfigs (key 32). KIP-133, KIP-226 synonyms (v1), KIP-569 documentation (v3)."""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int8, Int16, Int32, Message, since, until


class DescribeConfigsRequestResource(Message, kw_only=True):
    resource_type: Int8
    resource_name: str
    configuration_keys: list[str] | None


class DescribeConfigsRequest(Message, kw_only=True):
    resources: list[DescribeConfigsRequestResource]
    include_synonyms: Annotated[bool, since(1)] = False
    include_documentation: Annotated[bool, since(3)] = False


class DescribeConfigsResponseSynonym(Message, kw_only=True):
    name: str = ""
    value: str | None = None
    source: Int8 = 0


class DescribeConfigsResponseConfig(Message, kw_only=True):
    name: str = ""
    value: str | None = None
    read_only: bool = False
    is_default: Annotated[bool, until(0)] = False
    config_source: Annotated[Int8, since(1)] = -1
    is_sensitive: bool = False
    synonyms: Annotated[list[DescribeConfigsResponseSynonym], since(1)] = []
    config_type: Annotated[Int8, since(3)] = 0
    documentation: Annotated[str | None, since(3)] = None


class DescribeConfigsResponseResult(Message, kw_only=True):
    error_code: Int16 = 0
    error_message: str | None = None
    resource_type: Int8 = 0
    resource_name: str = ""
    configs: list[DescribeConfigsResponseConfig] = []


class DescribeConfigsResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResponseResult] = []


API = Api(
    ApiKey.DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    declared=(0, 4),
    flexible=4,
    advertised=(0, 4),
)
