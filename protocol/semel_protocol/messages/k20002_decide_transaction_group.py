"""DecideTransactionGroup (key 20002): commit or abort the transactions of one step of a group as one. semel's own.

A commit names the transactions that belong to it; whatever else the step has open is aborted. The token names what was
committed: asked again, the answer is that it was.
"""

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
    """`already_decided`: this token had been committed before, in the step `decided_epoch`."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    already_decided: bool = False
    decided_epoch: Int32 = -1
