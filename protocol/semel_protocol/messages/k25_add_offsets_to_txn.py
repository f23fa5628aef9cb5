"""AddOffsetsToTxn (key 25): adds the offsets of a group to a transaction. KIP-98, KIP-588 (v2), KIP-890 (v4).

The tag 10000 is semel's own.
"""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int16, Int32, Int64, Message, since, tag


class AddOffsetsToTxnRequest(Message, kw_only=True):
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    group_id: str


class AddOffsetsToTxnResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, since(3), tag(10_000)] = None


API = Api(
    ApiKey.ADD_OFFSETS_TO_TXN,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    declared=(0, 4),
    flexible=3,
    advertised=(0, 4),
)
