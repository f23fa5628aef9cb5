"""DescribeLogDirs (key 35). KIP-113; error code since v3, sizes of the file system since v4 (KIP-827), cordoned
directories since v5 (KIP-1066).
"""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int16, Int32, Int64, Message, since


class DescribeLogDirsRequestTopic(Message, kw_only=True):
    topic: str
    partitions: list[Int32]


class DescribeLogDirsRequest(Message, kw_only=True):
    topics: list[DescribeLogDirsRequestTopic] | None


class DescribeLogDirsResponsePartition(Message, kw_only=True):
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: bool = False


class DescribeLogDirsResponseTopic(Message, kw_only=True):
    name: str = ""
    partitions: list[DescribeLogDirsResponsePartition] = []


class DescribeLogDirsResponseResult(Message, kw_only=True):
    error_code: Int16 = 0
    log_dir: str = ""
    topics: list[DescribeLogDirsResponseTopic] = []
    total_bytes: Annotated[Int64, since(4)] = -1
    usable_bytes: Annotated[Int64, since(4)] = -1
    is_cordoned: Annotated[bool, since(5)] = False


class DescribeLogDirsResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(3)] = 0
    results: list[DescribeLogDirsResponseResult] = []


API = Api(
    ApiKey.DESCRIBE_LOG_DIRS,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    declared=(1, 5),
    flexible=2,
    advertised=(0, 5),
)
