"""CreatePartitions (key 37): grow topics. KIP-195."""

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int16, Int32, Message


class CreatePartitionsRequestAssignment(Message, kw_only=True):
    broker_ids: list[Int32]


class CreatePartitionsRequestTopic(Message, kw_only=True):
    name: str
    count: Int32
    assignments: list[CreatePartitionsRequestAssignment] | None


class CreatePartitionsRequest(Message, kw_only=True):
    topics: list[CreatePartitionsRequestTopic]
    timeout_ms: Int32
    validate_only: bool


class CreatePartitionsResponseResult(Message, kw_only=True):
    name: str = ""
    error_code: Int16 = 0
    error_message: str | None = None


class CreatePartitionsResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsResponseResult] = []


API = Api(
    ApiKey.CREATE_PARTITIONS,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    declared=(0, 3),
    flexible=2,
    advertised=(0, 3),
)
