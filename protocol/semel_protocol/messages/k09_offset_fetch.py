"""OffsetFetch (key 9): reads the committed offsets of groups.

KIP-447 require_stable (v7), KIP-709 several groups (v8), KIP-848 (v9), topic ids (v10).
"""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey, Feature
from semel_protocol.schema import ZERO_UUID, Int16, Int32, Int64, Message, Uuid, nullable, on_error, since, until


class OffsetFetchRequestTopic(Message, kw_only=True):
    name: Annotated[str, until(9)] = ""
    topic_id: Annotated[Uuid, since(10)] = ZERO_UUID
    partition_indexes: list[Int32]


class OffsetFetchRequestGroup(Message, kw_only=True):
    group_id: str
    member_id: Annotated[str | None, since(9)] = None
    member_epoch: Annotated[Int32, since(9)] = -1
    topics: list[OffsetFetchRequestTopic] | None


class OffsetFetchRequest(Message, kw_only=True):
    group_id: Annotated[str, since(1), until(7)] = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, since(1), until(7), nullable(2)] = []
    groups: Annotated[list[OffsetFetchRequestGroup], since(8)] = []
    require_stable: Annotated[bool, since(7)] = False


class OffsetFetchResponsePartition(Message, kw_only=True):
    partition_index: Int32 = 0
    committed_offset: Annotated[Int64, on_error(-1)] = 0
    committed_leader_epoch: Annotated[Int32, since(5)] = -1
    metadata: Annotated[str | None, on_error("")] = None
    error_code: Int16 = 0


class OffsetFetchResponseTopic(Message, kw_only=True):
    name: Annotated[str, until(9)] = ""
    topic_id: Annotated[Uuid, since(10)] = ZERO_UUID
    partitions: list[OffsetFetchResponsePartition] = []


class OffsetFetchResponseGroup(Message, kw_only=True):
    group_id: str = ""
    topics: list[OffsetFetchResponseTopic] = []
    error_code: Int16 = 0


class OffsetFetchResponse(Message, kw_only=True):
    throttle_time_ms: Annotated[Int32, since(3)] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], since(1), until(7)] = []
    error_code: Annotated[Int16, since(2), until(7)] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], since(8)] = []


API = Api(
    ApiKey.OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchResponse,
    declared=(1, 10),
    flexible=6,
    advertised=(0, 7),
    with_feature={Feature.GROUP_VERSION_1: 10},
)
