"""FindCoordinator: who coordinates a group or a transactional id. With one broker: this one, under the address that it
advertises.

v1 adds the key type, v4 asks for several keys at once.
"""

from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k10_find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)

from semel_broker.context import Broker, RequestContext

KEYS_VERSION = 4
GROUP = 0
TRANSACTION = 1


async def handle(request: FindCoordinatorRequest, ctx: RequestContext) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if ctx.api_version >= KEYS_VERSION else [request.key]
    coordinators = [_coordinator(key, request.key_type, ctx.broker) for key in keys]
    if ctx.api_version >= KEYS_VERSION:
        return FindCoordinatorResponse(coordinators=coordinators)
    found = coordinators[0]
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinator(key: str, key_type: int, broker: Broker) -> FindCoordinatorResponseCoordinator:
    if key_type in (GROUP, TRANSACTION):
        return FindCoordinatorResponseCoordinator(key=key, node_id=broker.node_id, host=broker.host, port=broker.port)
    message = f"there is no coordinator for keys of type {key_type}"
    return FindCoordinatorResponseCoordinator(
        key=key, node_id=-1, host="", port=-1, error_code=ErrorCode.INVALID_REQUEST, error_message=message
    )
