"""BeginTransactionGroup (key 20001): begins the next step of a transaction group. semel's own API.

The transactions of a step commit or abort together. The request goes to the coordinator of the group: FindCoordinator
for the transactional id `<group>/`. Open transactions of earlier steps are aborted and fenced. The group epoch counts
steps; -1 means none.
"""

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int16, Int32, Message


class BeginTransactionGroupRequest(Message, kw_only=True):
    """`owner`: a description of the driver, shown to fenced members. `timeout_ms`: of the transactions of the step."""

    group: str
    owner: str = ""
    timeout_ms: Int32


class BeginTransactionGroupResponse(Message, kw_only=True):
    """`decided_token`, `decided_epoch`: the last committed step; null and -1 if there is none."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    group_epoch: Int32 = -1
    decided_token: str | None = None
    decided_epoch: Int32 = -1


API = Api(
    ApiKey.BEGIN_TRANSACTION_GROUP,
    BeginTransactionGroupRequest,
    BeginTransactionGroupResponse,
    declared=(0, 0),
    flexible=0,
    advertised=(0, 0),
)
