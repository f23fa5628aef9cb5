"""ApiVersions (key 18): the versions of each API that the broker supports.

KIP-35, KIP-511 client software (v3), KIP-584 features (v3). Responses always use header 0.
"""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int16, Int32, Int64, Message, since, tag


class ApiVersionsRequest(Message, kw_only=True):
    client_software_name: Annotated[str, since(3)] = ""
    client_software_version: Annotated[str, since(3)] = ""


class ApiVersionsResponseApiKey(Message, kw_only=True):
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class ApiVersionsResponseSupportedFeature(Message, kw_only=True):
    name: str = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class ApiVersionsResponseFinalizedFeature(Message, kw_only=True):
    name: str = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


class ApiVersionsResponse(Message, kw_only=True):
    error_code: Int16 = 0
    api_keys: list[ApiVersionsResponseApiKey] = []
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    supported_features: Annotated[list[ApiVersionsResponseSupportedFeature], since(3), tag(0)] = []
    finalized_features_epoch: Annotated[Int64, since(3), tag(1)] = -1
    finalized_features: Annotated[list[ApiVersionsResponseFinalizedFeature], since(3), tag(2)] = []
    zk_migration_ready: Annotated[bool, since(3), tag(3)] = False


API = Api(ApiKey.API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse, declared=(0, 4), flexible=3, advertised=(0, 4))
