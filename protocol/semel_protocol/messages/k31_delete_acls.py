"""DeleteAcls (key 31): remove access control entries. KIP-140; v1 pattern types (KIP-290), v3 users as resources."""

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int8, Int16, Int32, Message


class DeleteAclsRequestFilter(Message, kw_only=True):
    """Null matches every name, principal or host."""

    resource_type_filter: Int8
    resource_name_filter: str | None
    pattern_type_filter: Int8 = 3
    principal_filter: str | None
    host_filter: str | None
    operation: Int8
    permission_type: Int8


class DeleteAclsRequest(Message, kw_only=True):
    filters: list[DeleteAclsRequestFilter]


class DeleteAclsResponseMatchingAcl(Message, kw_only=True):
    error_code: Int16 = 0
    error_message: str | None = None
    resource_type: Int8 = 0
    resource_name: str = ""
    pattern_type: Int8 = 3
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsResponseFilterResult(Message, kw_only=True):
    error_code: Int16 = 0
    error_message: str | None = None
    matching_acls: list[DeleteAclsResponseMatchingAcl] = []


class DeleteAclsResponse(Message, kw_only=True):
    """A result for each filter, in the order of the request."""

    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsResponseFilterResult] = []


API = Api(ApiKey.DELETE_ACLS, DeleteAclsRequest, DeleteAclsResponse, declared=(1, 3), flexible=2, advertised=(0, 3))
