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

from functools import partial
from typing import Any

from semel_protocol.acls import CLUSTER_NAME, NOT_ASKED, Operation, ResourceType, every_operation
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k03_metadata import (
    ASKED_BY_ID_FROM,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from semel_protocol.schema import ZERO_UUID, Message

from semel_broker.authorization.access import Access
from semel_broker.authorization.administration import Administration, AdministrativeChange, codes_by
from semel_broker.authorization.requirements import (
    REFUSAL_OF,
    CheckedRequest,
    Complete,
    CustomRequirement,
    Requirements,
    Steps,
    VisibleRowsRequirement,
    topic_name,
)
from semel_broker.cluster.image import Image
from semel_broker.cluster.records import NO_LEADER
from semel_broker.cluster.topic_plan import INTERNAL_TOPICS
from semel_broker.context import RequestContext
from semel_broker.handlers.k19_create_topics import creation
from semel_broker.scheduling.turns import Slices
from semel_broker.topics.advertised_brokers import AdvertisedBroker
from semel_broker.topics.topics import Topic

LISTENER_NOT_FOUND_VERSION = 6


async def handle(request: MetadataRequest, ctx: RequestContext) -> MetadataResponse:
    broker = ctx.broker
    if ctx.api_version < ASKED_BY_ID_FROM and _has_ids(request):
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
            topic = await _create(name, ctx, may_create)
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


async def _create(name: str, ctx: RequestContext, may_create: bool) -> Topic:
    topics = ctx.broker.topics
    if may_create and name not in INTERNAL_TOPICS:
        because = {"cause": "auto.create.topics.enable", "client_id": ctx.client_id, "client_host": ctx.client_host}
        return await topics.ensure(name, because)
    return topics.required(name)


# --- rights and audit ----------------------------------------------------------------------------------------


def _check(request: Any, ctx: RequestContext, access: Access) -> Steps:
    """A topic that the request would create needs Create, too. A request for all topics shows those with Describe.
    Authorized operations are those of the principal (KIP-430).

    A refused topic that was asked for by its id is answered without its name.
    """
    complete: list[Complete] = [partial(_with_operations, request, access)]
    everything = request.topics is None or (ctx.api_version == 0 and not request.topics)
    if everything:
        yield 1
        return CheckedRequest(
            request,
            complete=[
                VisibleRowsRequirement(Operation.DESCRIBE, ResourceType.TOPIC, "topics", topic_name).only(access),
                *complete,
            ],
        )
    may_create = request.allow_auto_topic_creation and ctx.broker.config.auto_create_topics_enable
    allowed: list[Any] = []
    rows: list[Any] = []
    for topic in request.topics:
        yield 1
        name = _asked_name(topic, ctx)
        if name is None:
            unknown = MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic.topic_id)
            rows.append(unknown)
            continue
        is_allowed = access.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)
        if is_allowed and may_create and ctx.broker.topics.get(name) is None:
            is_allowed = _may_create(access, name)
        if is_allowed:
            allowed.append(topic)
            continue
        row = MetadataResponseTopic(
            error_code=REFUSAL_OF[ResourceType.TOPIC],
            name=None if _is_asked_by_id(topic, ctx) else topic.name,  # an id tells no name
            topic_id=topic.topic_id,
        )
        rows.append(row)
    if not rows:
        return CheckedRequest(request, complete=complete)

    def with_refused(response: Any) -> Message:
        response.topics = [*response.topics, *rows]
        made: Message = response
        return made

    request.topics = allowed
    return CheckedRequest(
        request, complete=[*complete, with_refused]
    )  # the handler runs: all responses have the brokers


def _is_asked_by_id(topic: Any, ctx: RequestContext) -> bool:
    return ctx.api_version >= ASKED_BY_ID_FROM and topic.topic_id != ZERO_UUID


def _asked_name(topic: Any, ctx: RequestContext) -> str | None:
    """The name of a topic that Metadata is asked for; None: it is asked for by an id that no topic has."""
    if not _is_asked_by_id(topic, ctx):
        return topic.name or ""
    found = ctx.broker.topics.get_by_id(topic.topic_id)
    return None if found is None else found.name


def _with_operations(request: MetadataRequest, access: Access, response: Any) -> Message:
    response.principal = access.principal.name
    if request.include_topic_authorized_operations:
        for topic in response.topics:
            if not topic.error_code:
                topic.topic_authorized_operations = access.operations(ResourceType.TOPIC, topic.name)
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = operations_of_cluster(access)
    made: Message = response
    return made


def operations_of_cluster(access: Access) -> int:
    """The operations that the sender may do on the cluster, as bits. They need Describe on the cluster."""
    return (
        access.operations(ResourceType.CLUSTER)
        if access.allows_quietly(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
        else 0
    )


def _may_create(access: Access, name: str) -> bool:
    """Create on the cluster allows to create any topic; Create on the topic allows that one."""
    return access.allows_quietly(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME) or access.allows(
        Operation.CREATE, ResourceType.TOPIC, name
    )


def _created(request: MetadataRequest, ctx: RequestContext) -> list[AdministrativeChange]:
    """The topics that the request creates because they do not exist."""
    if not request.topics or not request.allow_auto_topic_creation or not ctx.broker.config.auto_create_topics_enable:
        return []
    topics = ctx.broker.topics
    return [creation(row.name) for row in request.topics if row.name and topics.get(row.name) is None]


def _without_creation(request: MetadataRequest) -> None:
    request.allow_auto_topic_creation = False


NEEDS: Requirements = (
    CustomRequirement(
        [
            (Operation.DESCRIBE, ResourceType.TOPIC, "each row"),
            (Operation.CREATE, ResourceType.TOPIC, "a topic that is created; or on the cluster"),
        ],
        _check,
    ),
)
AUDIT = Administration(_created, codes_by("topics", "name"), without_change=_without_creation)
LONG_ANSWER = True
