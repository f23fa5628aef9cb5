"""JoinGroup (key 11): a member joins the group and its next rebalance.

KIP-62 (v1), KIP-394 member id (v4), KIP-345 static members (v5), KIP-559 (v7), KIP-800 (v8), KIP-814 (v9).
"""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int16, Int32, Message, nullable, since


class JoinGroupRequestProtocol(Message, kw_only=True):
    name: str
    metadata: bytes


class JoinGroupRequest(Message, kw_only=True):
    group_id: str
    session_timeout_ms: Int32
    rebalance_timeout_ms: Annotated[Int32, since(1)] = -1
    member_id: str
    group_instance_id: Annotated[str | None, since(5)] = None
    protocol_type: str
    protocols: list[JoinGroupRequestProtocol]
    reason: Annotated[str | None, since(8)] = None


class JoinGroupResponseMember(Message, kw_only=True):
    member_id: str = ""
    group_instance_id: Annotated[str | None, since(5)] = None
    metadata: bytes = b""


class JoinGroupResponse(Message, kw_only=True):
    throttle_time_ms: Annotated[Int32, since(2)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[str | None, since(7)] = None
    protocol_name: Annotated[str | None, nullable(7)] = ""
    leader: str = ""
    skip_assignment: Annotated[bool, since(9)] = False
    member_id: str = ""
    members: list[JoinGroupResponseMember] = []


API = Api(ApiKey.JOIN_GROUP, JoinGroupRequest, JoinGroupResponse, declared=(0, 9), flexible=6, advertised=(0, 9))
