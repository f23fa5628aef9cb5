"""Metadata (key 3): the brokers, the topics, and the leaders of their partitions.

Served: v0 to v13. Topics have ids from v10 on, and can be asked for by id from v12 on: UNKNOWN_TOPIC_ID if there is no
such topic (KIP-516). v8 adds authorized operations (KIP-430); those of the cluster are in v8 to v10. v13 adds an error
of the whole response (KIP-1102), which is always NONE. An empty list asks for all topics in v0. From v1 on null asks
for all, and an empty list for none. A missing topic is created if both the request (v4 and later; older ones always)
and `auto.create.topics.enable` allow it. Otherwise the answer is UNKNOWN_TOPIC_OR_PARTITION, or
INVALID_TOPIC_EXCEPTION for an illegal name. A partition without a leader has leader -1 and LEADER_NOT_AVAILABLE.

Addresses are those of the listener that was asked. A broker without this listener is left out; a partition that it
leads has leader -1 and LISTENER_NOT_FOUND, before v6 LEADER_NOT_AVAILABLE (KIP-226).
"""

from __future__ import annotations

from semel_protocol.acls import NOT_ASKED, ResourceType, every_operation
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from semel_protocol.schema import ZERO_UUID

from semel_broker.cluster.image import Image
from semel_broker.cluster.records import NO_LEADER
from semel_broker.cluster.topic_plan import INTERNAL_TOPICS
from semel_broker.context import Broker, RequestContext
from semel_broker.scheduling.turns import Slices
from semel_broker.topics.advertised_brokers import AdvertisedBroker
from semel_broker.topics.topics import Topic

LISTENER_NOT_FOUND_VERSION = 6
ASKED_BY_ID_VERSION = 12


async def handle(request: MetadataRequest, ctx: RequestContext) -> MetadataResponse:
    broker = ctx.broker
    if ctx.api_version < ASKED_BY_ID_VERSION and _has_ids(request):
        return _refused(request)
    may_create = request.allow_auto_topic_creation and broker.config.auto_create_topics_enable
    slices = ctx.slices()
    topics = []
    for asked in _asked(request, ctx):
        topics.append(topic := await _describe(asked, ctx, may_create, slices))
        if request.include_topic_authorized_operations and not topic.error_code:
            topic.topic_authorized_operations = every_operation(ResourceType.TOPIC)
        if slices.is_over():
            await slices.next()
    image = broker.feed.image
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
            for each in broker.advertised_brokers.with_recent(ctx.listener) or this_broker(ctx)
        ],
        cluster_id=broker.cluster_id,
        controller_id=controller_of(image),
        topics=topics,
        cluster_authorized_operations=every_operation(ResourceType.CLUSTER)
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


def _has_ids(request: MetadataRequest) -> bool:
    return any(topic.topic_id != ZERO_UUID or topic.name is None for topic in request.topics or ())


def _refused(request: MetadataRequest) -> MetadataResponse:
    """Topics are asked for by name before v12."""
    rows = [
        MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id)
        for topic in request.topics or ()
    ]
    return MetadataResponse(topics=rows)


def this_broker(ctx: RequestContext) -> list[AdvertisedBroker]:
    """The broker that answers, unless the listener is not advertised. It is named also when all sessions have ended
    because the store was away: a client that gets an empty list drops the brokers that it knows, and has none to ask
    again."""
    broker, endpoint = ctx.broker, ctx.broker.endpoints.get(ctx.listener)
    if endpoint is None:
        return []
    return [AdvertisedBroker(broker.node_id, endpoint.host, endpoint.port, broker.config.broker_rack or None)]


def controller_of(image: Image) -> int:
    """The id of the controller, -1 while there is none. Any broker accepts changes."""
    controller = image.controller
    return controller.value.node_id if controller is not None and image.is_admitted(controller.value.node_id) else -1


def _asked(request: MetadataRequest, ctx: RequestContext) -> list[str | bytes]:
    """The names and ids of the topics asked for, each once."""
    if request.topics is None or (ctx.api_version == 0 and not request.topics):
        return list[str | bytes](ctx.broker.topics.names())
    asked: dict[str | bytes, None] = {}
    for topic in request.topics:
        asked[topic.topic_id if topic.topic_id != ZERO_UUID else topic.name or ""] = None
    return list(asked)


async def _describe(asked: str | bytes, ctx: RequestContext, may_create: bool, slices: Slices) -> MetadataResponseTopic:
    broker = ctx.broker
    if isinstance(asked, bytes):
        found = broker.topics.get_by_id(asked)
        if found is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked)
        name = found.name
    else:
        name = asked
    topic = broker.topics.get(name)
    if topic is None:
        try:
            topic = await _create(name, broker, may_create)
        except KafkaError as error:
            return MetadataResponseTopic(error_code=error.code, name=name)
    described = MetadataResponseTopic(name=name, topic_id=topic.topic_id, is_internal=topic.is_internal)
    try:
        described.partitions = await partition_rows(topic, range(topic.partition_count), ctx, slices)
    except KafkaError as error:
        if isinstance(asked, bytes):
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked)
        return MetadataResponseTopic(error_code=error.code, name=name)
    return described


async def partition_rows(
    topic: Topic, indexes: range, ctx: RequestContext, slices: Slices
) -> list[MetadataResponsePartition]:
    """Partitions with their leaders. Raises UNKNOWN_TOPIC_OR_PARTITION if the topic is deleted between two slices."""
    rows = []
    for index in indexes:
        rows.append(partition_row(topic, index, ctx))
        if slices.is_over():
            await slices.next()
            if ctx.broker.topics.get_by_id(topic.topic_id) is not topic:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name!r} has just been deleted")
    return rows


def partition_row(topic: Topic, index: int, ctx: RequestContext) -> MetadataResponsePartition:
    """A partition with its leader, as the listener of the request shows it."""
    broker = ctx.broker
    image = broker.feed.image
    view = broker.topics.view(topic.name, index)
    leader = image.leader(*view.place)
    here = topic.opened.get(index)
    if leader == broker.node_id and here is not None and not here.is_leading:
        leader = None  # this broker's session has expired, so its image may be out of date
    epoch = view.state.leader_epoch if here is None or not here.is_leading else here.leader_epoch
    error = ErrorCode.LEADER_NOT_AVAILABLE if leader is None else ErrorCode.NONE
    stored = None if leader is None else image.registration(leader)
    if stored is not None and stored.value.endpoint(ctx.listener) is None:
        leader = None
        has_code = ctx.api_version >= LISTENER_NOT_FOUND_VERSION
        error = ErrorCode.LISTENER_NOT_FOUND if has_code else ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=NO_LEADER if leader is None else leader,
        leader_epoch=epoch,
        replica_nodes=list(view.replicas),
        isr_nodes=view.state.isr,
        offline_replicas=[
            node_id
            for node_id in view.replicas
            if not image.is_admitted(node_id) or image.is_offline(node_id, view.place)
        ],
    )


async def _create(name: str, broker: Broker, may_create: bool) -> Topic:
    if may_create and name not in INTERNAL_TOPICS:
        return await broker.topics.ensure(name)
    return broker.topics.required(name)
