"""OffsetForLeaderEpoch (key 23): where an epoch ended. KIP-101, KIP-279, KIP-320."""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int16, Int32, Int64, Message, since


class OffsetForLeaderEpochRequestPartition(Message, kw_only=True):
    partition: Int32
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32


class OffsetForLeaderEpochRequestTopic(Message, kw_only=True):
    topic: str
    partitions: list[OffsetForLeaderEpochRequestPartition]


class OffsetForLeaderEpochRequest(Message, kw_only=True):
    replica_id: Annotated[Int32, since(3)] = -2
    topics: list[OffsetForLeaderEpochRequestTopic]


class OffsetForLeaderEpochResponsePartition(Message, kw_only=True):
    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


class OffsetForLeaderEpochResponseTopic(Message, kw_only=True):
    topic: str = ""
    partitions: list[OffsetForLeaderEpochResponsePartition] = []


class OffsetForLeaderEpochResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderEpochResponseTopic] = []


API = Api(
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    declared=(2, 4),
    flexible=4,
    advertised=(0, 4),
)
