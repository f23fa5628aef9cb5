"""SyncGroup (key 14): the group leader sends assignments, each member receives its own. KIP-345 (v3), KIP-559 (v5)."""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int16, Int32, Message, since


class SyncGroupRequestAssignment(Message, kw_only=True):
    member_id: str
    assignment: bytes


class SyncGroupRequest(Message, kw_only=True):
    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: Annotated[str | None, since(3)] = None
    protocol_type: Annotated[str | None, since(5)] = None
    protocol_name: Annotated[str | None, since(5)] = None
    assignments: list[SyncGroupRequestAssignment]


class SyncGroupResponse(Message, kw_only=True):
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[str | None, since(5)] = None
    protocol_name: Annotated[str | None, since(5)] = None
    assignment: bytes = b""


API = Api(ApiKey.SYNC_GROUP, SyncGroupRequest, SyncGroupResponse, declared=(0, 5), flexible=4, advertised=(0, 5))
