"""DescribeProducers (key 61): active producers of partitions. KIP-664."""

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int16, Int32, Int64, Message


class DescribeProducersRequestTopic(Message, kw_only=True):
    name: str
    partition_indexes: list[Int32]


class DescribeProducersRequest(Message, kw_only=True):
    topics: list[DescribeProducersRequestTopic]


class DescribeProducersResponseActiveProducer(Message, kw_only=True):
    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


class DescribeProducersResponsePartition(Message, kw_only=True):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    active_producers: list[DescribeProducersResponseActiveProducer] = []


class DescribeProducersResponseTopic(Message, kw_only=True):
    name: str = ""
    partitions: list[DescribeProducersResponsePartition] = []


class DescribeProducersResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    topics: list[DescribeProducersResponseTopic] = []


API = Api(
    ApiKey.DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    DescribeProducersResponse,
    declared=(0, 0),
    flexible=0,
    advertised=(0, 0),
)
