"""CreateTopics (key 19): creates each topic on its own; an error of one does not affect the others.

A topic is durable before it is answered. Errors:

- INVALID_TOPIC_EXCEPTION: an illegal name, a name that differs from another only in `.` and `_`, or an internal topic.
- TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_CONFIG.
- INVALID_REPLICA_ASSIGNMENT: the manual assignment is not valid.
- INVALID_REQUEST: a name given twice, or partition or replica counts beside an assignment.

A count of -1 asks for the broker's default (from v4 on in Kafka, KIP-464; here in every version). v5 returns the
settings (KIP-525), v7 the topic id.

A client above its quota controller_mutation_rate gets THROTTLING_QUOTA_EXCEEDED for a topic from v6 on (KIP-599).
Before, the topic is created, and the client is throttled.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from semel_protocol.acls import CLUSTER_NAME, Operation, ResourceType
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
    CreateTopicsResponseConfig,
    CreateTopicsResponseTopic,
)
from semel_protocol.refusals import refused_row
from semel_protocol.schema import Message

from semel_broker.authorization.access import Access
from semel_broker.authorization.administration import Administration, AdministrativeChange, codes_by
from semel_broker.authorization.requirements import REFUSAL_OF, CheckedRequest, CustomRequirement, Requirements, Steps
from semel_broker.cluster.topic_plan import INTERNAL_TOPICS, NewTopic
from semel_broker.config.edits import replaced
from semel_broker.config.topic_configs import describe
from semel_broker.context import RequestContext
from semel_broker.security.quotas.client_quotas import Mutations, throttle_ms

STRICT_SINCE = 6
STEPS = 8
"""Steps of a slice that one topic counts as: all its settings are checked."""


async def handle(request: CreateTopicsRequest, ctx: RequestContext) -> CreateTopicsResponse:
    """One row per name, in the order of the request."""
    times = Counter(topic.name for topic in request.topics)
    rows: dict[str, CreateTopicsResponseTopic] = {}
    slices = ctx.slices()
    mutations = ctx.mutations(is_strict=ctx.api_version >= STRICT_SINCE)
    for topic in request.topics:
        if slices.is_over(STEPS):
            await slices.next()
        if topic.name in rows:
            continue
        try:
            if times[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is given twice; give it once")
            rows[topic.name] = await _create(topic, request.validate_only, mutations, ctx)
        except KafkaError as error:
            rows[topic.name] = refused_row(CreateTopicsResponseTopic, topic, error.code, error.message)
    return CreateTopicsResponse(topics=list(rows.values()), throttle_time_ms=throttle_ms(mutations))


async def _create(
    asked: CreateTopicsRequestTopic, validate_only: bool, mutations: Mutations | None, ctx: RequestContext
) -> CreateTopicsResponseTopic:
    if asked.name in INTERNAL_TOPICS:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{asked.name} is internal: the broker creates it when needed"
        )
    assignments = {row.partition_index: row.broker_ids for row in asked.assignments}
    if len(assignments) != len(asked.assignments):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the assignment gives a partition twice; give it once")
    new = NewTopic(
        name=asked.name,
        partitions=asked.num_partitions,
        replication_factor=asked.replication_factor,
        configs=_configs(asked),
        assignments=assignments,
    )
    if mutations is not None and not validate_only:
        planned = await ctx.broker.topics.create(new, validate_only=True)
        mutations.take(planned.partition_count)
    because = {"cause": "create_topics", "client_id": ctx.client_id, "client_host": ctx.client_host}
    topic = await ctx.broker.topics.create(new, validate_only=validate_only, because=because)
    return CreateTopicsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        num_partitions=topic.partition_count,
        replication_factor=len(topic.record.replicas[0]),
        configs=[
            CreateTopicsResponseConfig(name=row.setting.name, value=row.value, config_source=row.source)
            for row in describe(topic.configs, ctx.broker.config)
        ],
    )


def _configs(asked: CreateTopicsRequestTopic) -> dict[str, str | None]:
    for config in asked.configs:
        if config.value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{config.name} has no value; give one or leave the setting out")
    return replaced([(config.name, config.value) for config in asked.configs])


# --- rights and audit ----------------------------------------------------------------------------------------


def _check(request: CreateTopicsRequest, ctx: RequestContext, access: Access) -> Steps:
    """Create on the cluster, or on each topic. Settings are shown with DescribeConfigs on the topic (KIP-525)."""
    yield 1
    everywhere = access.allows_quietly(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    allowed, rows = [], []
    for topic in request.topics:
        yield 1
        if everywhere or access.allows(Operation.CREATE, ResourceType.TOPIC, topic.name):
            allowed.append(topic)
        else:
            why = access.refusal(Operation.CREATE, ResourceType.TOPIC, topic.name)
            rows.append(refused_row(CreateTopicsResponseTopic, topic, REFUSAL_OF[ResourceType.TOPIC], why))
    request.topics = allowed

    def complete(response: Any) -> Message:
        for topic in response.topics:
            if not topic.error_code and not access.allows_quietly(
                Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name
            ):
                topic.topic_config_error_code = REFUSAL_OF[ResourceType.TOPIC]
                topic.configs, topic.num_partitions, topic.replication_factor = [], -1, -1
        response.topics = [*response.topics, *rows]
        made: Message = response
        return made

    answer = None if allowed or not rows else complete(CreateTopicsResponse())
    return CheckedRequest(request, answer, [complete])


def creation(name: str, changes: Sequence[str] = ()) -> AdministrativeChange:
    """The creation of a topic, which the right on the cluster allows, too."""
    rights = [(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME), (Operation.CREATE, ResourceType.TOPIC, name)]
    return AdministrativeChange(rights, name, Operation.CREATE, ResourceType.TOPIC, name, changes)


def _created(request: CreateTopicsRequest, ctx: RequestContext) -> list[AdministrativeChange]:
    if request.validate_only:
        return []
    return [creation(row.name, [f"{each.name} is set" for each in row.configs]) for row in request.topics]


NEEDS: Requirements = (
    CustomRequirement(
        [(Operation.CREATE, ResourceType.CLUSTER, "or:"), (Operation.CREATE, ResourceType.TOPIC, "each row")], _check
    ),
)
AUDIT = Administration(_created, codes_by("topics", "name"))
