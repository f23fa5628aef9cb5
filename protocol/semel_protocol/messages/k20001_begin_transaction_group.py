"""BeginTransactionGroup (key 20001): the next step of a group of transactions that commit as one. semel's own.

To the coordinator of the group (FindCoordinator for the transactional id `<group>/`). Everything that the group has
open is aborted and fenced. Epochs of a group count its steps; -1 where there is none.
"""

from semel_protocol.schema import Int16, Int32, Message


class BeginTransactionGroupRequest(Message, kw_only=True):
    """`owner`: who begins it, in words, for those who are fenced. `timeout_ms`: of the step's transactions."""

    group: str
    owner: str = ""
    timeout_ms: Int32


class BeginTransactionGroupResponse(Message, kw_only=True):
    """`decided_token`, `decided_epoch`: the last step that was committed; null and -1 if none was."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    group_epoch: Int32 = -1
    decided_token: str | None = None
    decided_epoch: Int32 = -1
