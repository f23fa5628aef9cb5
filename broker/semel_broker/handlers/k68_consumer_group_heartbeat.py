"""ConsumerGroupHeartbeat (key 68): a member of the consumer protocol joins, stays or leaves (KIP-848).

The member epoch says which: 0 joins, a positive one stays, -1 leaves, -2 leaves for a while (static members). Answered
once everything that the heartbeat changes is durable. v1 adds regular expressions, which match among the topics that
the member may describe, and makes the client choose its member id.

A connection over which a heartbeat arrives later than one over a newer connection of its member is closed.
"""

from __future__ import annotations

from semel_protocol.acls import Operation, ResourceType
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k68_consumer_group_heartbeat import (
    OWN_MEMBER_ID_FROM,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from semel_protocol.refusals import refused

from semel_broker.authorization.access import Access
from semel_broker.authorization.administration import OWN_GROUP
from semel_broker.authorization.requirements import REFUSAL_OF, CheckedRequest, CustomRequirement, Requirements, Steps
from semel_broker.context import RequestContext
from semel_broker.groups.consumer.model import LEFT_STATIC, TopicIdPartitions, by_topic
from semel_broker.groups.consumer.requests import JOIN, Heartbeat
from semel_broker.handlers.describable import may_describe


async def handle(request: ConsumerGroupHeartbeatRequest, ctx: RequestContext) -> ConsumerGroupHeartbeatResponse:
    try:
        return await _heartbeat(request, ctx)
    except KafkaError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


async def _heartbeat(request: ConsumerGroupHeartbeatRequest, ctx: RequestContext) -> ConsumerGroupHeartbeatResponse:
    _check(request, ctx.api_version)
    groups, rows = ctx.broker.groups, request.topic_partitions
    groups.check_ids(request.group_id, request.member_id, request.instance_id)
    ask = Heartbeat(
        member_id=request.member_id or groups.new_member_id(request.instance_id or ctx.client_id),
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=ctx.client_id,
        client_host=f"/{ctx.client_host}",  # as Java prints an address; tools expect it
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if request.subscribed_topic_names is None else tuple(request.subscribed_topic_names),
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None if rows is None else frozenset((row.topic_id, index) for row in rows for index in row.partitions),
        may_read=may_describe(ctx, ResourceType.TOPIC),
    )
    if ask.epoch == JOIN:
        shard = await groups.shard(request.group_id)
    else:
        shard = await groups.shard_of_known(request.group_id)
    place = await shard.consumers.heartbeat(request.group_id, ask, ctx.connection)
    return ConsumerGroupHeartbeatResponse(
        member_id=place.member_id,
        member_epoch=place.epoch,
        heartbeat_interval_ms=groups.context.heartbeat_interval_ms(request.group_id),
        assignment=None if place.assigned is None else _assignment(place.assigned),
    )


def _check(request: ConsumerGroupHeartbeatRequest, version: int) -> None:
    """Raise INVALID_REQUEST."""
    joins = request.member_epoch == JOIN
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    for is_wrong, why in (
        (_is_blank(request.group_id), "a group needs a name: set group.id"),
        (_is_blank(request.member_id) and (version >= OWN_MEMBER_ID_FROM or not joins), "the member id is missing"),
        (_is_blank(request.instance_id), "the instance id is empty: set group.instance.id, or leave it out"),
        (_is_blank(request.rack_id), "the rack id is empty: set client.rack, or leave it out"),
        (request.member_epoch < LEFT_STATIC, f"there is no member epoch {request.member_epoch}"),
        (request.member_epoch == LEFT_STATIC and request.instance_id is None, "only static members leave for a while"),
        (joins and request.rebalance_timeout_ms < 0, "a member that joins needs a rebalance timeout"),
        (joins and request.topic_partitions != [], "a member that joins owns no partitions, and has to say so"),
        (joins and not subscribes, "a member that joins subscribes to names or to a regular expression"),
    ):
        if is_wrong:
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)


def _is_blank(text: str | None) -> bool:
    """Whether the text is there without a letter."""
    return text is not None and not text.strip()


def _assignment(assigned: TopicIdPartitions) -> ConsumerGroupHeartbeatResponseAssignment:
    row = ConsumerGroupHeartbeatResponseTopicPartitions
    return ConsumerGroupHeartbeatResponseAssignment(
        topic_partitions=[row(topic_id=each, partitions=found) for each, found in by_topic(assigned).items()]
    )


# --- rights and audit ----------------------------------------------------------------------------------------


def _check_rights(request: ConsumerGroupHeartbeatRequest, ctx: RequestContext, access: Access) -> Steps:
    """Read on the group, and Describe on each topic that the member names. A regular expression needs no right: it
    matches among the topics with Describe."""
    yield 1
    if not access.allows(Operation.READ, ResourceType.GROUP, request.group_id):
        why = access.refusal(Operation.READ, ResourceType.GROUP, request.group_id)
        return CheckedRequest(request, refused(request, REFUSAL_OF[ResourceType.GROUP], why))
    for name in request.subscribed_topic_names or ():
        yield 1
        if not access.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
            why = access.refusal(Operation.DESCRIBE, ResourceType.TOPIC, name)
            return CheckedRequest(request, refused(request, REFUSAL_OF[ResourceType.TOPIC], why))
    return CheckedRequest(request)


NEEDS: Requirements = (
    CustomRequirement(
        [
            (Operation.READ, ResourceType.GROUP, ""),
            (Operation.DESCRIBE, ResourceType.TOPIC, "each topic that is named"),
        ],
        _check_rights,
    ),
)
NOT_AUDITED = OWN_GROUP
