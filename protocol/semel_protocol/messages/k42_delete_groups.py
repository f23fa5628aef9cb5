"""DeleteGroups (key 42). KIP-229; an error has a message since v3."""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int16, Int32, Message, since


class DeleteGroupsRequest(Message, kw_only=True):
    groups_names: list[str]


class DeleteGroupsResponseResult(Message, kw_only=True):
    group_id: str = ""
    error_code: Int16 = 0
    error_message: Annotated[str | None, since(3)] = None


class DeleteGroupsResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    results: list[DeleteGroupsResponseResult] = []


API = Api(
    ApiKey.DELETE_GROUPS, DeleteGroupsRequest, DeleteGroupsResponse, declared=(0, 3), flexible=2, advertised=(0, 3)
)
