"""FindCoordinator (key 10): the broker that coordinates a group or a transactional id.

The coordinator is the leader of the partition of the internal topic that holds the records of the key. The internal
topic is created if it is missing. COORDINATOR_NOT_AVAILABLE: the partition has no leader, or the topic cannot be
created. The address is that of the listener that was asked; a broker without this listener is answered with
COORDINATOR_NOT_AVAILABLE, too. v1 adds the key type, v4 asks for several keys at once (KIP-699). v6 adds the keys of
share groups, which this broker does not have: INVALID_REQUEST.
"""

from semel_protocol.acls import Operation, ResourceType
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k10_find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)
from semel_protocol.refusals import refused, refused_row

from semel_broker.authorization.access import Access
from semel_broker.authorization.administration import CHANGES_NOTHING
from semel_broker.authorization.requirements import (
    REFUSAL_OF,
    CheckedRequest,
    CustomRequirement,
    Requirements,
    Steps,
    adding,
)
from semel_broker.config.listeners import Endpoint
from semel_broker.context import RequestContext

KEYS_VERSION = 4
GROUP = 0
TRANSACTION = 1


async def handle(request: FindCoordinatorRequest, ctx: RequestContext) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if ctx.api_version >= KEYS_VERSION else [request.key]
    slices = ctx.slices()
    coordinators = []
    for key in keys:
        coordinators.append(await _row(key, request.key_type, ctx))
        if slices.is_over():
            await slices.next()
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


async def _row(key: str, key_type: int, ctx: RequestContext) -> FindCoordinatorResponseCoordinator:
    try:
        node_id, found = await _coordinator(key, key_type, ctx)
    except KafkaError as error:
        return refused_row(FindCoordinatorResponseCoordinator, key, error.code, error.message)
    return FindCoordinatorResponseCoordinator(key=key, node_id=node_id, host=found.host, port=found.port)


async def _coordinator(key: str, key_type: int, ctx: RequestContext) -> tuple[int, Endpoint]:
    """The broker and its address. Raises COORDINATOR_NOT_AVAILABLE, INVALID_REQUEST."""
    if key_type not in (GROUP, TRANSACTION):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no coordinator for keys of type {key_type}")
    broker = ctx.broker
    shards = broker.groups.shards if key_type == GROUP else broker.transactions.shards
    topic, index = await shards.topic(), await shards.index_of(key)
    image = broker.feed.image
    leader = image.leader(topic.record.topic_id, index)
    stored = image.registration(leader) if leader is not None else None
    if stored is None:
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic.name}-{index}, which holds {key}, has no leader: try again"
        )
    endpoint = stored.value.endpoint(ctx.listener)
    if endpoint is None:
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"broker {stored.value.node_id}, the coordinator of {key}, does not advertise listener {ctx.listener}: "
            "use a listener that all brokers have",
        )
    return stored.value.node_id, endpoint


# --- rights and audit ----------------------------------------------------------------------------------------


def _check(request: FindCoordinatorRequest, ctx: RequestContext, access: Access) -> Steps:
    """Describe on the group or the transactional id, whichever the key is."""
    kind = ResourceType.TRANSACTIONAL_ID if request.key_type else ResourceType.GROUP
    code = REFUSAL_OF[kind]
    if ctx.api_version < KEYS_VERSION:
        yield 1
        if access.allows(Operation.DESCRIBE, kind, request.key):
            return CheckedRequest(request)
        why = access.refusal(Operation.DESCRIBE, kind, request.key)
        return CheckedRequest(request, refused(request, code, why))
    allowed, rows = [], []
    for key in request.coordinator_keys:
        yield 1
        if access.allows(Operation.DESCRIBE, kind, key):
            allowed.append(key)
        else:
            rows.append(refused_row(FindCoordinatorResponseCoordinator, key, code))
    request.coordinator_keys = allowed
    complete = adding("coordinators", rows)
    if not rows:
        return CheckedRequest(request)
    return CheckedRequest(request, None if allowed else complete(FindCoordinatorResponse()), [complete])


NEEDS: Requirements = (
    CustomRequirement(
        [
            (Operation.DESCRIBE, ResourceType.GROUP, "groups"),
            (Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "transactional ids"),
        ],
        _check,
    ),
)
NOT_AUDITED = CHANGES_NOTHING
