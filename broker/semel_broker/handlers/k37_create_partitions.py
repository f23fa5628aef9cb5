"""CreatePartitions (key 37): grow topics. `count` is the new total (KIP-195); the new partitions begin empty.

3 unknown topic; 37 not more than there are, or too many; 39 bad manual assignment; 42 named twice; 17 one of the
broker's own topics, whose keys are bound to their partition. Records with a key may go to another partition than
before: that is the nature of growing.
"""

from collections import Counter

from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
    CreatePartitionsResponseResult,
)

from semel_broker.cluster.topic_plan import INTERNAL_TOPICS
from semel_broker.context import RequestContext


async def handle(request: CreatePartitionsRequest, ctx: RequestContext) -> CreatePartitionsResponse:
    """One row per name, in the order of the request."""
    times = Counter(topic.name for topic in request.topics)
    rows: dict[str, CreatePartitionsResponseResult] = {}
    slices = ctx.slices()
    for topic in request.topics:
        if slices.is_over():
            await slices.next()
        if topic.name in rows:
            continue
        row = rows[topic.name] = CreatePartitionsResponseResult(name=topic.name)
        try:
            if times[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is named twice in one request")
            await _grow(topic, request.validate_only, ctx)
        except KafkaError as error:
            row.error_code, row.error_message = error.code, error.message
    return CreatePartitionsResponse(results=list(rows.values()))


async def _grow(asked: CreatePartitionsRequestTopic, validate_only: bool, ctx: RequestContext) -> None:
    if asked.name in INTERNAL_TOPICS:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{asked.name} cannot grow: its keys are bound to partitions"
        )
    assignments = None if asked.assignments is None else [row.broker_ids for row in asked.assignments]
    await ctx.broker.topics.add_partitions(
        asked.name, asked.count, assignments=assignments, validate_only=validate_only
    )
