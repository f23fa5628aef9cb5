"""EndTxn (key 26): commit or abort. KIP-98, KIP-588 (v2), KIP-890 epoch bump on every end (v5).

The tag 10000 is semel's own.
"""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey, Feature
from semel_protocol.schema import Int16, Int32, Int64, Message, since, tag


class EndTxnRequest(Message, kw_only=True):
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    committed: bool


class EndTxnResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Annotated[Int64, since(5)] = -1
    producer_epoch: Annotated[Int16, since(5)] = -1
    error_message: Annotated[str | None, since(3), tag(10_000)] = None


API = Api(
    ApiKey.END_TXN,
    EndTxnRequest,
    EndTxnResponse,
    declared=(0, 5),
    flexible=3,
    advertised=(0, 1),
    with_feature={Feature.TRANSACTION_VERSION_2: 5},
)
