"""Metadata (key 3): the brokers, the topics and who leads their partitions.

Served: v0 to v5. All topics: an empty list in v0, null from v1 on (from then an empty list means none). A topic that
does not exist is created when both the request (v4+; older ones always) and `auto.create.topics.enable` allow it,
otherwise it is answered with UNKNOWN_TOPIC_OR_PARTITION; an illegal name with INVALID_TOPIC_EXCEPTION.
"""

from __future__ import annotations

from semel_protocol.errors import KafkaError
from semel_protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

from semel_broker.context import Broker, RequestContext
from semel_broker.topic_plan import INTERNAL_TOPICS
from semel_broker.topics import Topic


async def handle(request: MetadataRequest, ctx: RequestContext) -> MetadataResponse:
    broker = ctx.broker
    may_create = request.allow_auto_topic_creation and broker.config.auto_create_topics_enable
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=broker.node_id, host=broker.host, port=broker.port)],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=[await _describe(name, broker, may_create) for name in _names(request, ctx)],
    )


def _names(request: MetadataRequest, ctx: RequestContext) -> list[str]:
    """The topics asked for, each once."""
    if request.topics is None or (ctx.api_version == 0 and not request.topics):
        return ctx.broker.topics.names()
    return list(dict.fromkeys(topic.name or "" for topic in request.topics))


async def _describe(name: str, broker: Broker, may_create: bool) -> MetadataResponseTopic:
    topic = broker.topics.get(name)
    if topic is None:
        try:
            topic = await _create(name, broker, may_create)
        except KafkaError as error:
            return MetadataResponseTopic(error_code=error.code, name=name)
    leader = [broker.node_id]
    return MetadataResponseTopic(
        name=name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                partition_index=index, leader_id=broker.node_id, leader_epoch=0, replica_nodes=leader, isr_nodes=leader
            )
            for index in range(topic.partition_count)
        ],
    )


async def _create(name: str, broker: Broker, may_create: bool) -> Topic:
    if may_create and name not in INTERNAL_TOPICS:
        return await broker.topics.ensure(name)
    return broker.topics.required(name)
