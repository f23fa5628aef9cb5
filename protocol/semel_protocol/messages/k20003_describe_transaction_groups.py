"""DescribeTransactionGroups (key 20003): the transaction groups of a coordinator. semel's own API.

Each broker answers for the groups that it coordinates, as for ListTransactions. Times are in ms, -1 means none.
"""

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int16, Int32, Int64, Message


class DescribeTransactionGroupsRequest(Message, kw_only=True):
    """`groups`: null for all groups of this coordinator."""

    groups: list[str] | None = None


class DescribeTransactionGroupsResponseMember(Message, kw_only=True):
    """`group_epoch`: the step in which the member was initialised."""

    transactional_id: str = ""
    producer_id: Int64 = -1
    producer_epoch: Int16 = -1
    group_epoch: Int32 = -1
    transaction_state: str = ""
    transaction_start_time_ms: Int64 = -1


class DescribeTransactionGroupsResponseGroup(Message, kw_only=True):
    """`note`: why the last step ended, if its driver did not end it."""

    error_code: Int16 = 0
    error_message: str | None = None
    group: str = ""
    group_epoch: Int32 = -1
    state: str = ""
    owner: str = ""
    client_id: str = ""
    client_host: str = ""
    timeout_ms: Int32 = -1
    begin_time_ms: Int64 = -1
    last_update_time_ms: Int64 = -1
    decided_token: str | None = None
    decided_epoch: Int32 = -1
    note: str = ""
    members: list[DescribeTransactionGroupsResponseMember] = []


class DescribeTransactionGroupsResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    groups: list[DescribeTransactionGroupsResponseGroup] = []


API = Api(
    ApiKey.DESCRIBE_TRANSACTION_GROUPS,
    DescribeTransactionGroupsRequest,
    DescribeTransactionGroupsResponse,
    declared=(0, 0),
    flexible=0,
    advertised=(0, 0),
)
