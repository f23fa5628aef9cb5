"""DescribeCluster (key 60). KIP-700, KIP-919 endpoint type (v1), KIP-1073 fenced brokers (v2)."""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int8, Int16, Int32, Int64, Message, since, tag


class DescribeClusterRequest(Message, kw_only=True):
    include_cluster_authorized_operations: bool
    endpoint_type: Annotated[Int8, since(1)] = 1
    include_fenced_brokers: Annotated[bool, since(2)] = False


class DescribeClusterResponseBroker(Message, kw_only=True):
    broker_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
    is_fenced: Annotated[bool, since(2)] = False


class DescribeClusterResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    endpoint_type: Annotated[Int8, since(1)] = 1
    cluster_id: str = ""
    controller_id: Int32 = -1
    brokers: list[DescribeClusterResponseBroker] = []
    cluster_authorized_operations: Int32 = -2147483648
    session_left_ms: Annotated[Int32, tag(10_000)] = -1
    """Of semel, about the broker that answers: how long its session with the cluster's store lasts unless the store
    answers again. 0: it has none; -1: not told, or no store is shared."""
    session_timeout_ms: Annotated[Int32, tag(10_001)] = -1
    disk_hangs_ms: Annotated[Int64, tag(10_002)] = -1
    """Of semel, about the broker that answers: how long its disk has been hanging, so that it refuses writes. -1: it
    does not hang, or the broker does not tell."""
    disk_path: Annotated[str, tag(10_003)] = ""
    """The data directory on the disk that hangs; empty: the client has no Describe on the cluster."""


API = Api(
    ApiKey.DESCRIBE_CLUSTER,
    DescribeClusterRequest,
    DescribeClusterResponse,
    declared=(0, 2),
    flexible=0,
    advertised=(0, 2),
)
