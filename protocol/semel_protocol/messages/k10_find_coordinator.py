"""FindCoordinator (key 10): which broker coordinates a group or a transactional id.

KIP-98 (v1), KIP-699 batches (v4), KIP-890 (v5), KIP-932 keys of share groups (v6).
"""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int8, Int16, Int32, Message, on_error, since, until


class FindCoordinatorRequest(Message, kw_only=True):
    key: Annotated[str, until(3)] = ""
    key_type: Annotated[Int8, since(1)] = 0
    coordinator_keys: Annotated[list[str], since(4)] = []


class FindCoordinatorResponseCoordinator(Message, kw_only=True):
    key: str = ""
    node_id: Annotated[Int32, on_error(-1)] = 0
    host: str = ""
    port: Annotated[Int32, on_error(-1)] = 0
    error_code: Int16 = 0
    error_message: str | None = None


class FindCoordinatorResponse(Message, kw_only=True):
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Annotated[Int16, until(3)] = 0
    error_message: Annotated[str | None, since(1), until(3)] = None
    node_id: Annotated[Int32, until(3), on_error(-1)] = 0
    host: Annotated[str, until(3)] = ""
    port: Annotated[Int32, until(3), on_error(-1)] = 0
    coordinators: Annotated[list[FindCoordinatorResponseCoordinator], since(4)] = []


API = Api(
    ApiKey.FIND_COORDINATOR,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    declared=(0, 6),
    flexible=3,
    advertised=(0, 6),
)
