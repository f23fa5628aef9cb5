"""DescribeTopicPartitions (key 75). KIP-966."""

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import ZERO_UUID, Int16, Int32, Message, Uuid


class DescribeTopicPartitionsRequestTopic(Message, kw_only=True):
    name: str


class DescribeTopicPartitionsRequestCursor(Message, kw_only=True):
    topic_name: str
    partition_index: Int32


class DescribeTopicPartitionsRequest(Message, kw_only=True):
    topics: list[DescribeTopicPartitionsRequestTopic]
    response_partition_limit: Int32 = 2000
    cursor: DescribeTopicPartitionsRequestCursor | None = None


class DescribeTopicPartitionsResponsePartition(Message, kw_only=True):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    eligible_leader_replicas: list[Int32] | None = None
    last_known_elr: list[Int32] | None = None
    offline_replicas: list[Int32] = []


class DescribeTopicPartitionsResponseTopic(Message, kw_only=True):
    error_code: Int16 = 0
    name: str | None = None
    topic_id: Uuid = ZERO_UUID
    is_internal: bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = []
    topic_authorized_operations: Int32 = -2147483648


class DescribeTopicPartitionsResponseCursor(Message, kw_only=True):
    topic_name: str = ""
    partition_index: Int32 = 0


class DescribeTopicPartitionsResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: DescribeTopicPartitionsResponseCursor | None = None


API = Api(
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    declared=(0, 0),
    flexible=0,
    advertised=(0, 0),
)
