"""CreateAcls (key 30): add access control entries. KIP-140; v1 pattern types (KIP-290), v3 users as resources."""

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int8, Int16, Int32, Message


class CreateAclsRequestCreation(Message, kw_only=True):
    resource_type: Int8
    resource_name: str
    resource_pattern_type: Int8 = 3
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


class CreateAclsRequest(Message, kw_only=True):
    creations: list[CreateAclsRequestCreation]


class CreateAclsResponseResult(Message, kw_only=True):
    error_code: Int16 = 0
    error_message: str | None = None


class CreateAclsResponse(Message, kw_only=True):
    """A result for each creation, in the order of the request."""

    throttle_time_ms: Int32 = 0
    results: list[CreateAclsResponseResult] = []


API = Api(ApiKey.CREATE_ACLS, CreateAclsRequest, CreateAclsResponse, declared=(1, 3), flexible=2, advertised=(0, 3))
