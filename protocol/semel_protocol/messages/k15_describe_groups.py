"""DescribeGroups (key 15): state and members of groups. KIP-430 (v3), KIP-345 (v4), KIP-1043 (v6).

The tag 10000 is semel's own.
"""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey, Feature
from semel_protocol.schema import Int16, Int32, Int64, Message, since, tag


class DescribeGroupsRequest(Message, kw_only=True):
    groups: list[str]
    include_authorized_operations: Annotated[bool, since(3)] = False


class DescribeGroupsResponseMember(Message, kw_only=True):
    member_id: str = ""
    group_instance_id: Annotated[str | None, since(4)] = None
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""
    silent_ms: Annotated[Int64, since(5), tag(10_000)] = -1
    """Since the member's last heartbeat or other request that extends its session. -1: not told."""


class DescribeGroupsResponseGroup(Message, kw_only=True):
    error_code: Int16 = 0
    error_message: Annotated[str | None, since(6)] = None
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribeGroupsResponseMember] = []
    authorized_operations: Annotated[Int32, since(3)] = -2147483648


class DescribeGroupsResponse(Message, kw_only=True):
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    groups: list[DescribeGroupsResponseGroup] = []


API = Api(
    ApiKey.DESCRIBE_GROUPS,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    declared=(0, 6),
    flexible=5,
    advertised=(0, 2),
    with_feature={Feature.GROUP_VERSION_1: 6},
)
