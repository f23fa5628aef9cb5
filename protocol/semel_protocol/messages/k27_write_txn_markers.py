"""WriteTxnMarkers (key 27): the coordinator writes markers to partition leaders. KIP-98.

The tag 10000 is semel's own.
"""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int16, Int32, Int64, Message, since, tag


class WriteTxnMarkersRequestTopic(Message, kw_only=True):
    name: str
    partition_indexes: list[Int32]


class WriteTxnMarkersRequestMarker(Message, kw_only=True):
    producer_id: Int64
    producer_epoch: Int16
    transaction_result: bool
    topics: list[WriteTxnMarkersRequestTopic]
    coordinator_epoch: Int32


class WriteTxnMarkersRequest(Message, kw_only=True):
    markers: list[WriteTxnMarkersRequestMarker]


class WriteTxnMarkersResponsePartition(Message, kw_only=True):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, since(1), tag(10_000)] = None


class WriteTxnMarkersResponseTopic(Message, kw_only=True):
    name: str = ""
    partitions: list[WriteTxnMarkersResponsePartition] = []


class WriteTxnMarkersResponseMarker(Message, kw_only=True):
    producer_id: Int64 = 0
    topics: list[WriteTxnMarkersResponseTopic] = []


class WriteTxnMarkersResponse(Message, kw_only=True):
    markers: list[WriteTxnMarkersResponseMarker] = []


API = Api(
    ApiKey.WRITE_TXN_MARKERS,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
    declared=(1, 1),
    flexible=1,
    advertised=(0, 1),
)
