"""ForgetTransactionGroup (key 20004): forgets a transaction group and its members. semel's own API.

For a group whose name is used once. Its last step is decided, and the driver has learned the outcome. The request goes
to the coordinator of the group. A repeated request, or one for an unknown group, succeeds.
"""

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int16, Int32, Message


class ForgetTransactionGroupRequest(Message, kw_only=True):
    """`group_epoch`: the last step. If a newer step has begun, nothing is forgotten."""

    group: str
    group_epoch: Int32


class ForgetTransactionGroupResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None


API = Api(
    ApiKey.FORGET_TRANSACTION_GROUP,
    ForgetTransactionGroupRequest,
    ForgetTransactionGroupResponse,
    declared=(0, 0),
    flexible=0,
    advertised=(0, 0),
)
