"""DescribeTransactionGroups (key 20003): the groups that a broker coordinates, their steps and members. semel's own.

Every broker answers for its own share, as it does to ListTransactions. Times in ms, -1 where there is none.
"""

from semel_protocol.schema import Int16, Int32, Int64, Message


class DescribeTransactionGroupsRequest(Message, kw_only=True):
    """`groups`: null for all that there are here."""

    groups: list[str] | None = None


class DescribeTransactionGroupsResponseMember(Message, kw_only=True):
    """`group_epoch`: the step under which it was initialised."""

    transactional_id: str = ""
    producer_id: Int64 = -1
    producer_epoch: Int16 = -1
    group_epoch: Int32 = -1
    transaction_state: str = ""
    transaction_start_time_ms: Int64 = -1


class DescribeTransactionGroupsResponseGroup(Message, kw_only=True):
    """`note`: how the last step ended, where that was not its driver's doing."""

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
