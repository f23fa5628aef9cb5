"""DeleteTopics (key 20): the topics are deleted when answered; their files are removed afterwards.

v1 to v5 take names, v6 names or ids (KIP-516). A name given twice is answered once. UNKNOWN_TOPIC_OR_PARTITION: no
topic of this name. UNKNOWN_TOPIC_ID: no topic of this id. INVALID_REQUEST: neither or both are given.
INVALID_TOPIC_EXCEPTION: an internal topic. POLICY_VIOLATION: delete.topic.enable is false.
THROTTLING_QUOTA_EXCEEDED (from v5 on): the client is above its quota controller_mutation_rate (KIP-599).
"""

from typing import Any

from semel_protocol.acls import Operation, ResourceType
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k20_delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsRequestTopic,
    DeleteTopicsResponse,
    DeleteTopicsResponseTopic,
)
from semel_protocol.refusals import refused_row
from semel_protocol.schema import ZERO_UUID

from semel_broker.authorization.access import Access
from semel_broker.authorization.administration import Administration, AdministrativeChange, Codes, deed_on
from semel_broker.authorization.requirements import (
    REFUSAL_OF,
    UNKNOWN_ID,
    CheckedRequest,
    CustomRequirement,
    Requirements,
    Steps,
    adding,
)
from semel_broker.cluster.topic_plan import INTERNAL_TOPICS
from semel_broker.context import RequestContext
from semel_broker.security.quotas.client_quotas import Mutations, throttle_ms

STRICT_SINCE = 5


async def handle(request: DeleteTopicsRequest, ctx: RequestContext) -> DeleteTopicsResponse:
    """One row per name or id, in the order of the request."""
    asked = [DeleteTopicsRequestTopic(name=name, topic_id=ZERO_UUID) for name in request.topic_names]
    rows: dict[tuple[str | None, bytes], DeleteTopicsResponseTopic] = {}
    slices = ctx.slices()
    mutations = ctx.mutations(is_strict=ctx.api_version >= STRICT_SINCE)
    for topic in (*asked, *request.topics):
        if slices.is_over():
            await slices.next()
        key = (topic.name, topic.topic_id)
        if key not in rows:
            rows[key] = await _delete(topic, mutations, ctx)
    return DeleteTopicsResponse(responses=list(rows.values()), throttle_time_ms=throttle_ms(mutations))


async def _delete(
    asked: DeleteTopicsRequestTopic, mutations: Mutations | None, ctx: RequestContext
) -> DeleteTopicsResponseTopic:
    row = DeleteTopicsResponseTopic(name=asked.name, topic_id=asked.topic_id)
    topics = ctx.broker.topics
    try:
        name = _name_of(asked, ctx)
        if name in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is internal: it cannot be deleted")
        if not ctx.broker.config.delete_topic_enable:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "topics cannot be deleted: delete.topic.enable is false")
        topic = await topics.find(name)
        row.topic_id = topic.topic_id
        if mutations is not None:
            mutations.take(topic.partition_count)
        await topics.delete(name, topic_id=topic.topic_id if asked.name is None else None)
        row.name = name
    except KafkaError as error:
        row.error_code, row.error_message = error.code, error.message
    return row


def _name_of(asked: DeleteTopicsRequestTopic, ctx: RequestContext) -> str:
    if asked.name is not None and asked.topic_id != ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "give a topic's name or its id, not both")
    if asked.name is not None:
        return asked.name
    if asked.topic_id == ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "neither a topic's name nor its id is given; give one of them")
    return ctx.broker.topics.required_by_id(asked.topic_id).name


# --- rights and audit ----------------------------------------------------------------------------------------


def _check(request: Any, ctx: RequestContext, access: Access) -> Steps:
    """Delete on each topic. An id of a topic that the principal may not describe is refused without its name."""
    code = REFUSAL_OF[ResourceType.TOPIC]
    names, topics, rows = [], [], []
    for name in request.topic_names:
        yield 1
        if access.allows(Operation.DELETE, ResourceType.TOPIC, name):
            names.append(name)
        else:
            rows.append(DeleteTopicsResponseTopic(name=name, error_code=code))
    for asked in request.topics:
        yield 1
        if asked.name is None and asked.topic_id == ZERO_UUID:
            topics.append(asked)  # it names nothing: the handler refuses it
            continue
        name = asked.name if asked.name is not None else ctx.broker.topics.name_of(asked.topic_id)
        if name is None:
            rows.append(refused_row(DeleteTopicsResponseTopic, asked, ErrorCode.UNKNOWN_TOPIC_ID, UNKNOWN_ID))
            continue
        if access.allows(Operation.DELETE, ResourceType.TOPIC, name):
            topics.append(asked)
            continue
        shown = (
            asked.name
            if asked.name is not None or access.allows_quietly(Operation.DESCRIBE, ResourceType.TOPIC, name)
            else None
        )
        rows.append(DeleteTopicsResponseTopic(name=shown, topic_id=asked.topic_id, error_code=code))
    if not rows:
        return CheckedRequest(request)
    request.topic_names, request.topics = names, topics
    complete = adding("responses", rows)
    left = names or topics
    return CheckedRequest(request, None if left else complete(DeleteTopicsResponse()), [complete])


def _deletions(request: DeleteTopicsRequest, ctx: RequestContext) -> list[AdministrativeChange]:
    deeds = [deed_on(Operation.DELETE, ResourceType.TOPIC, name) for name in request.topic_names]
    for row in request.topics:
        found = ctx.broker.topics.get_by_id(row.topic_id) if row.topic_id != ZERO_UUID else None
        name = row.name if row.name is not None else (found.name if found is not None else None)
        if name is not None:
            deeds.append(
                deed_on(Operation.DELETE, ResourceType.TOPIC, name, key=name if row.name is not None else row.topic_id)
            )
    return deeds


def _codes(response: Any, deeds: list[AdministrativeChange]) -> Codes:
    by_name: Codes = {row.name: row.error_code for row in response.responses}
    return by_name | {row.topic_id: row.error_code for row in response.responses if row.topic_id != ZERO_UUID}


NEEDS: Requirements = (CustomRequirement([(Operation.DELETE, ResourceType.TOPIC, "each row")], _check),)
AUDIT = Administration(_deletions, _codes)
