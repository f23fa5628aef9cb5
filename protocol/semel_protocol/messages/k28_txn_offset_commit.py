"""TxnOffsetCommit (key 28): commits offsets as part of a transaction.

KIP-98, KIP-447 group metadata (v3), KIP-890 (v4, v5), KIP-1319 topic ids (v6).
"""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey, Feature
from semel_protocol.schema import ZERO_UUID, Int16, Int32, Int64, Message, Uuid, since, until


class TxnOffsetCommitRequestPartition(Message, kw_only=True):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, since(2)] = -1
    committed_metadata: str | None


class TxnOffsetCommitRequestTopic(Message, kw_only=True):
    name: Annotated[str, until(5)] = ""
    topic_id: Annotated[Uuid, since(6)] = ZERO_UUID
    partitions: list[TxnOffsetCommitRequestPartition]


class TxnOffsetCommitRequest(Message, kw_only=True):
    transactional_id: str
    group_id: str
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Annotated[Int32, since(3)] = -1
    member_id: Annotated[str, since(3)] = ""
    group_instance_id: Annotated[str | None, since(3)] = None
    topics: list[TxnOffsetCommitRequestTopic]


class TxnOffsetCommitResponsePartition(Message, kw_only=True):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(Message, kw_only=True):
    name: Annotated[str, until(5)] = ""
    topic_id: Annotated[Uuid, since(6)] = ZERO_UUID
    partitions: list[TxnOffsetCommitResponsePartition] = []


class TxnOffsetCommitResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = []


API = Api(
    ApiKey.TXN_OFFSET_COMMIT,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    declared=(0, 6),
    flexible=3,
    advertised=(0, 3),
    with_feature={Feature.TRANSACTION_VERSION_2: 6},
)
