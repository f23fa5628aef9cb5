"""InitProducerId (key 22): a producer id and epoch. KIP-98, KIP-360 (v3), KIP-588 (v4), KIP-890 (v5), KIP-939
two-phase commit (v6). Tags from 10000 on are semel's own."""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey, Feature
from semel_protocol.schema import Int16, Int32, Int64, Message, since, tag


class InitProducerIdRequest(Message, kw_only=True):
    transactional_id: str | None
    transaction_timeout_ms: Int32
    producer_id: Annotated[Int64, since(3)] = -1
    producer_epoch: Annotated[Int16, since(3)] = -1
    enable2_pc: Annotated[bool, since(6)] = False
    keep_prepared_txn: Annotated[bool, since(6)] = False
    reason: Annotated[str, since(2), tag(10_000)] = ""
    group_epoch: Annotated[Int32, since(2), tag(10_001)] = -1


class InitProducerIdResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
    ongoing_txn_producer_id: Annotated[Int64, since(6)] = -1
    ongoing_txn_producer_epoch: Annotated[Int16, since(6)] = -1
    error_message: Annotated[str | None, since(2), tag(10_000)] = None


API = Api(
    ApiKey.INIT_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
    declared=(0, 6),
    flexible=2,
    advertised=(0, 4),
    with_feature={Feature.TRANSACTION_VERSION_2: 5, Feature.TWO_PHASE_COMMIT: 6},
)
