"""DeleteGroups (key 42). KIP-229."""

from semel_protocol.schema import Int16, Int32, Message


class DeleteGroupsRequest(Message, kw_only=True):
    groups_names: list[str]


class DeleteGroupsResponseResult(Message, kw_only=True):
    group_id: str = ""
    error_code: Int16 = 0


class DeleteGroupsResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    results: list[DeleteGroupsResponseResult] = []
