"""ListGroups (key 16): the groups of a coordinator. KIP-518 state filter (v4), KIP-848 type filter (v5)."""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey, Feature
from semel_protocol.schema import Int16, Int32, Message, since


class ListGroupsRequest(Message, kw_only=True):
    states_filter: Annotated[list[str], since(4)] = []
    types_filter: Annotated[list[str], since(5)] = []


class ListGroupsResponseGroup(Message, kw_only=True):
    group_id: str = ""
    protocol_type: str = ""
    group_state: Annotated[str, since(4)] = ""
    group_type: Annotated[str, since(5)] = ""


class ListGroupsResponse(Message, kw_only=True):
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    groups: list[ListGroupsResponseGroup] = []


API = Api(
    ApiKey.LIST_GROUPS,
    ListGroupsRequest,
    ListGroupsResponse,
    declared=(0, 5),
    flexible=3,
    advertised=(0, 2),
    with_feature={Feature.GROUP_VERSION_1: 5},
)
