"""OffsetCommit (key 8): a group commits offsets.

KIP-211 (v5), KIP-320 (v6), KIP-345 (v7), KIP-848 (v9),
topic ids (v10).
"""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey, Feature
from semel_protocol.schema import ZERO_UUID, Int16, Int32, Int64, Message, Uuid, since, until


class OffsetCommitRequestPartition(Message, kw_only=True):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, since(6)] = -1
    committed_metadata: str | None


class OffsetCommitRequestTopic(Message, kw_only=True):
    name: Annotated[str, until(9)] = ""
    topic_id: Annotated[Uuid, since(10)] = ZERO_UUID
    partitions: list[OffsetCommitRequestPartition]


class OffsetCommitRequest(Message, kw_only=True):
    group_id: str
    generation_id_or_member_epoch: Int32 = -1
    member_id: str
    group_instance_id: Annotated[str | None, since(7)] = None
    retention_time_ms: Annotated[Int64, since(2), until(4)] = -1
    topics: list[OffsetCommitRequestTopic]


class OffsetCommitResponsePartition(Message, kw_only=True):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Message, kw_only=True):
    name: Annotated[str, until(9)] = ""
    topic_id: Annotated[Uuid, since(10)] = ZERO_UUID
    partitions: list[OffsetCommitResponsePartition] = []


class OffsetCommitResponse(Message, kw_only=True):
    throttle_time_ms: Annotated[Int32, since(3)] = 0
    topics: list[OffsetCommitResponseTopic] = []


API = Api(
    ApiKey.OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitResponse,
    declared=(2, 10),
    flexible=8,
    advertised=(0, 7),
    with_feature={Feature.GROUP_VERSION_1: 10},
)
