"""DecideTransactionGroup (key 20002): commits or aborts one step of a transaction group. semel's own API.

A commit lists the transactions to commit; other open transactions of the step are aborted. The token identifies the
commit: a repeated request with the same token gets the answer that it is committed already.
"""

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int16, Int32, Int64, Message


class DecideTransactionGroupRequestTransaction(Message, kw_only=True):
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16


class DecideTransactionGroupRequest(Message, kw_only=True):
    group: str
    group_epoch: Int32
    token: str
    committed: bool
    transactions: list[DecideTransactionGroupRequestTransaction] = []


class DecideTransactionGroupResponse(Message, kw_only=True):
    """`already_decided`: an earlier request committed this token, in the step `decided_epoch`."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    already_decided: bool = False
    decided_epoch: Int32 = -1


API = Api(
    ApiKey.DECIDE_TRANSACTION_GROUP,
    DecideTransactionGroupRequest,
    DecideTransactionGroupResponse,
    declared=(0, 0),
    flexible=0,
    advertised=(0, 0),
)
