"""ListOffsets (key 2): offsets by timestamp, and the ends of a log.

KIP-79 (v1), KIP-98 (v2), KIP-320 (v4), KIP-734 max timestamp (v7), KIP-405 earliest local offset (v8), KIP-1005 latest
tiered offset (v9), KIP-1075 timeout (v10), KIP-1023 earliest offset that is not tiered yet (v11).
"""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int8, Int16, Int32, Int64, Message, since


class ListOffsetsRequestPartition(Message, kw_only=True):
    partition_index: Int32
    current_leader_epoch: Annotated[Int32, since(4)] = -1
    timestamp: Int64


class ListOffsetsRequestTopic(Message, kw_only=True):
    name: str
    partitions: list[ListOffsetsRequestPartition]


class ListOffsetsRequest(Message, kw_only=True):
    replica_id: Int32
    isolation_level: Annotated[Int8, since(2)] = 0
    topics: list[ListOffsetsRequestTopic]
    timeout_ms: Annotated[Int32, since(10)] = 0


class ListOffsetsResponsePartition(Message, kw_only=True):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, since(4)] = -1


class ListOffsetsResponseTopic(Message, kw_only=True):
    name: str = ""
    partitions: list[ListOffsetsResponsePartition] = []


class ListOffsetsResponse(Message, kw_only=True):
    throttle_time_ms: Annotated[Int32, since(2)] = 0
    topics: list[ListOffsetsResponseTopic] = []


API = Api(
    ApiKey.LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse, declared=(1, 11), flexible=6, advertised=(0, 11)
)
