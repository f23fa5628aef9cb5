"""AlterPartitionReassignments (key 45): move partitions to other brokers. KIP-455, KIP-860 (v1)."""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int16, Int32, Message, since


class AlterPartitionReassignmentsRequestPartition(Message, kw_only=True):
    """`replicas`: None cancels the reassignment in progress."""

    partition_index: Int32
    replicas: list[Int32] | None = None


class AlterPartitionReassignmentsRequestTopic(Message, kw_only=True):
    name: str
    partitions: list[AlterPartitionReassignmentsRequestPartition]


class AlterPartitionReassignmentsRequest(Message, kw_only=True):
    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Annotated[bool, since(1)] = True
    topics: list[AlterPartitionReassignmentsRequestTopic]


class AlterPartitionReassignmentsResponsePartition(Message, kw_only=True):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None


class AlterPartitionReassignmentsResponseTopic(Message, kw_only=True):
    name: str = ""
    partitions: list[AlterPartitionReassignmentsResponsePartition] = []


class AlterPartitionReassignmentsResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[bool, since(1)] = True
    error_code: Int16 = 0
    error_message: str | None = None
    responses: list[AlterPartitionReassignmentsResponseTopic] = []


API = Api(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    declared=(0, 1),
    flexible=0,
    advertised=(0, 1),
)
