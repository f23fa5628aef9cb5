"""ListPartitionReassignments (key 46): the reassignments in progress. KIP-455."""

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int16, Int32, Message


class ListPartitionReassignmentsRequestTopic(Message, kw_only=True):
    name: str
    partition_indexes: list[Int32]


class ListPartitionReassignmentsRequest(Message, kw_only=True):
    """`topics`: None for all topics."""

    timeout_ms: Int32 = 60000
    topics: list[ListPartitionReassignmentsRequestTopic] | None = None


class ListPartitionReassignmentsResponsePartition(Message, kw_only=True):
    """`replicas`: all current replicas, including those being added and those to be removed."""

    partition_index: Int32 = 0
    replicas: list[Int32] = []
    adding_replicas: list[Int32] = []
    removing_replicas: list[Int32] = []


class ListPartitionReassignmentsResponseTopic(Message, kw_only=True):
    name: str = ""
    partitions: list[ListPartitionReassignmentsResponsePartition] = []


class ListPartitionReassignmentsResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    topics: list[ListPartitionReassignmentsResponseTopic] = []


API = Api(
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    declared=(0, 0),
    flexible=0,
    advertised=(0, 0),
)
