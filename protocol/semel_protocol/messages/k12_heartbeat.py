"""Heartbeat (key 12): keeps the session of a group member alive. KIP-345 (v3)."""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int16, Int32, Message, since


class HeartbeatRequest(Message, kw_only=True):
    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: Annotated[str | None, since(3)] = None


class HeartbeatResponse(Message, kw_only=True):
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0


API = Api(ApiKey.HEARTBEAT, HeartbeatRequest, HeartbeatResponse, declared=(0, 4), flexible=4, advertised=(0, 4))
