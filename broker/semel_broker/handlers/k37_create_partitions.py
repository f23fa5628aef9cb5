"""CreatePartitions (key 37): add partitions to topics. `count` is the new total (KIP-195); the new partitions are
empty.

UNKNOWN_TOPIC_OR_PARTITION: no such topic. INVALID_PARTITIONS: not above the present count, or too many.
INVALID_REPLICA_ASSIGNMENT: the manual assignment is not valid. INVALID_REQUEST: a topic given twice.
INVALID_TOPIC_EXCEPTION: an internal topic, whose keys are bound to their partitions. After it, records with a key may
go to another partition than before. THROTTLING_QUOTA_EXCEEDED (from v3 on): the client is above its quota
controller_mutation_rate (KIP-599).
"""

from collections import Counter

from semel_protocol.acls import Operation, ResourceType
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
    CreatePartitionsResponseResult,
)

from semel_broker.authorization.administration import Administration, AdministrativeChange, codes_by, deed_on
from semel_broker.authorization.requirements import Requirements, on_topics
from semel_broker.cluster.topic_plan import INTERNAL_TOPICS
from semel_broker.context import RequestContext
from semel_broker.security.quotas.client_quotas import Mutations, throttle_ms

STRICT_SINCE = 3


async def handle(request: CreatePartitionsRequest, ctx: RequestContext) -> CreatePartitionsResponse:
    """One row per name, in the order of the request."""
    times = Counter(topic.name for topic in request.topics)
    rows: dict[str, CreatePartitionsResponseResult] = {}
    slices = ctx.slices()
    mutations = ctx.mutations(is_strict=ctx.api_version >= STRICT_SINCE)
    for topic in request.topics:
        if slices.is_over():
            await slices.next()
        if topic.name in rows:
            continue
        row = rows[topic.name] = CreatePartitionsResponseResult(name=topic.name)
        try:
            if times[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is given twice; give it once")
            await _grow(topic, request.validate_only, mutations, ctx)
        except KafkaError as error:
            row.error_code, row.error_message = error.code, error.message
    return CreatePartitionsResponse(results=list(rows.values()), throttle_time_ms=throttle_ms(mutations))


async def _grow(
    asked: CreatePartitionsRequestTopic, validate_only: bool, mutations: Mutations | None, ctx: RequestContext
) -> None:
    if asked.name in INTERNAL_TOPICS:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{asked.name} is internal: its keys are bound to partitions"
        )
    assignments = None if asked.assignments is None else [row.broker_ids for row in asked.assignments]
    topics = ctx.broker.topics
    if mutations is not None and not validate_only:
        await topics.add_partitions(asked.name, asked.count, assignments=assignments, validate_only=True)
        mutations.take(asked.count - topics.required(asked.name).partition_count)
    await topics.add_partitions(asked.name, asked.count, assignments=assignments, validate_only=validate_only)


# --- rights and audit ----------------------------------------------------------------------------------------


def _additions(request: CreatePartitionsRequest, ctx: RequestContext) -> list[AdministrativeChange]:
    if request.validate_only:
        return []
    return [
        deed_on(Operation.ALTER, ResourceType.TOPIC, row.name, [f"{row.count} partitions"]) for row in request.topics
    ]


NEEDS: Requirements = (on_topics(Operation.ALTER, CreatePartitionsRequest),)
AUDIT = Administration(_additions, codes_by("results", "name"))
