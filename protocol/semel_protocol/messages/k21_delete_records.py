"""DeleteRecords (key 21): move the log start offset up. KIP-107."""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int16, Int32, Int64, Message, on_error


class DeleteRecordsRequestPartition(Message, kw_only=True):
    partition_index: Int32
    offset: Int64


class DeleteRecordsRequestTopic(Message, kw_only=True):
    name: str
    partitions: list[DeleteRecordsRequestPartition]


class DeleteRecordsRequest(Message, kw_only=True):
    topics: list[DeleteRecordsRequestTopic]
    timeout_ms: Int32


class DeleteRecordsResponsePartition(Message, kw_only=True):
    partition_index: Int32 = 0
    low_watermark: Annotated[Int64, on_error(-1)] = 0
    error_code: Int16 = 0


class DeleteRecordsResponseTopic(Message, kw_only=True):
    name: str = ""
    partitions: list[DeleteRecordsResponsePartition] = []


class DeleteRecordsResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsResponseTopic] = []


API = Api(
    ApiKey.DELETE_RECORDS, DeleteRecordsRequest, DeleteRecordsResponse, declared=(0, 2), flexible=2, advertised=(0, 2)
)
