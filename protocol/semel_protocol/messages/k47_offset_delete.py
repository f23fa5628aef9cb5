"""OffsetDelete (key 47): deletes committed offsets of a group. KIP-496. Never flexible."""

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int16, Int32, Message


class OffsetDeleteRequestPartition(Message, kw_only=True):
    partition_index: Int32


class OffsetDeleteRequestTopic(Message, kw_only=True):
    name: str
    partitions: list[OffsetDeleteRequestPartition]


class OffsetDeleteRequest(Message, kw_only=True):
    group_id: str
    topics: list[OffsetDeleteRequestTopic]


class OffsetDeleteResponsePartition(Message, kw_only=True):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(Message, kw_only=True):
    name: str = ""
    partitions: list[OffsetDeleteResponsePartition] = []


class OffsetDeleteResponse(Message, kw_only=True):
    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[OffsetDeleteResponseTopic] = []


API = Api(
    ApiKey.OFFSET_DELETE, OffsetDeleteRequest, OffsetDeleteResponse, declared=(0, 0), flexible=None, advertised=(0, 0)
)
