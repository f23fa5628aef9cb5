"""DescribeAcls (key 29): access control lists by filter. KIP-140; v1 pattern types (KIP-290), v3 users as resources."""

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int8, Int16, Int32, Message


class DescribeAclsRequest(Message, kw_only=True):
    """A filter; null matches every name, principal or host."""

    resource_type_filter: Int8
    resource_name_filter: str | None
    pattern_type_filter: Int8 = 3
    principal_filter: str | None
    host_filter: str | None
    operation: Int8
    permission_type: Int8


class DescribeAclsResponseAclDescription(Message, kw_only=True):
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DescribeAclsResponseResource(Message, kw_only=True):
    resource_type: Int8 = 0
    resource_name: str = ""
    pattern_type: Int8 = 3
    acls: list[DescribeAclsResponseAclDescription] = []


class DescribeAclsResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    resources: list[DescribeAclsResponseResource] = []


API = Api(
    ApiKey.DESCRIBE_ACLS, DescribeAclsRequest, DescribeAclsResponse, declared=(1, 3), flexible=2, advertised=(0, 3)
)
