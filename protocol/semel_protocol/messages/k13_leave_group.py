"""LeaveGroup (key 13): removes members from a group. KIP-345 batches (v3), KIP-800 reasons (v5)."""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int16, Int32, Message, since, until


class LeaveGroupRequestMember(Message, kw_only=True):
    member_id: str
    group_instance_id: str | None = None
    reason: Annotated[str | None, since(5)] = None


class LeaveGroupRequest(Message, kw_only=True):
    group_id: str
    member_id: Annotated[str, until(2)] = ""
    members: Annotated[list[LeaveGroupRequestMember], since(3)] = []


class LeaveGroupResponseMember(Message, kw_only=True):
    member_id: str = ""
    group_instance_id: str | None = None
    error_code: Int16 = 0


class LeaveGroupResponse(Message, kw_only=True):
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    members: Annotated[list[LeaveGroupResponseMember], since(3)] = []


API = Api(ApiKey.LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse, declared=(0, 5), flexible=4, advertised=(0, 5))
