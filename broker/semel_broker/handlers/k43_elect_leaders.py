"""ElectLeaders (key 43): move leadership to the preferred replicas (KIP-183), or elect a leader outside the ISR
(KIP-460).

v0 elects preferred replicas only; v1 adds the election type; v2 is flexible. Type 1 (unclean) elects a replica outside
the ISR if no replica of the ISR is alive. Records that this replica lacks are lost. Only this request does so. Without
a list of partitions all are meant; partitions that need no election are then left out of the answer.

UNKNOWN_TOPIC_OR_PARTITION: no such partition. ELECTION_NOT_NEEDED: the leader is right already.
PREFERRED_LEADER_NOT_AVAILABLE: the preferred replica is not alive or not in sync. ELIGIBLE_LEADERS_NOT_AVAILABLE: no
replica is alive. INVALID_REQUEST: an unknown election type.
"""

from __future__ import annotations

from functools import partial

from semel_protocol.acls import CLUSTER_NAME, Operation, ResourceType
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k43_elect_leaders import (
    PREFERRED,
    UNCLEAN,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersResponsePartition,
    ElectLeadersResponseTopic,
)
from semel_protocol.refusals import refused_row

from semel_broker.authorization.administration import Administration, AdministrativeChange, code_of_first, deed_on
from semel_broker.authorization.requirements import Requirements, on_cluster
from semel_broker.cluster.image import Image, Place
from semel_broker.cluster.operations import Operations
from semel_broker.context import RequestContext
from semel_broker.scheduling.turns import Slices


async def handle(request: ElectLeadersRequest, ctx: RequestContext) -> ElectLeadersResponse:
    """One row per partition asked for, by topic."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"unknown election type {request.election_type}; use 0 (preferred) or 1 (unclean)",
        )
    broker = ctx.broker
    slices = ctx.slices()
    asked = await _asked(request, broker.feed.image, slices)
    there = [place for places in asked.values() for place in places.values() if place is not None]
    operations = Operations(broker.store, broker.feed, broker.log, slices)
    refused = await operations.elect(there, unclean=request.election_type == UNCLEAN)
    results = []
    for topic, places in asked.items():
        row_of = partial(_row, topic, refused=refused, request=request)
        rows = await slices.each(places.items(), row_of)
        if answered := [row for row in rows if row is not None]:
            results.append(ElectLeadersResponseTopic(topic=topic, partition_result=answered))
    return ElectLeadersResponse(replica_election_results=results)


async def _asked(request: ElectLeadersRequest, image: Image, slices: Slices) -> dict[str, dict[int, Place | None]]:
    """The partitions that the request means, by topic and index; None for one that does not exist."""
    asked: dict[str, dict[int, Place | None]] = {}
    if request.topic_partitions is None:
        for view in image.partitions():
            asked.setdefault(view.topic, {})[view.index] = view.place
            if slices.is_over():
                await slices.next()
        return asked
    for row in request.topic_partitions:
        topic = image.topic(row.topic)
        places = asked.setdefault(row.topic, {})
        for index in row.partitions:
            is_there = topic is not None and 0 <= index < len(topic.value.replicas)
            places[index] = (topic.value.topic_id, index) if topic is not None and is_there else None
    return asked


def _row(
    topic: str, asked: tuple[int, Place | None], *, refused: dict[Place, KafkaError], request: ElectLeadersRequest
) -> ElectLeadersResponsePartition | None:
    index, place = asked
    if place is None:
        message = f"there is no partition {index} of topic {topic!r}"
        return refused_row(ElectLeadersResponsePartition, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    error = refused.get(place)
    if error is None:
        return ElectLeadersResponsePartition(partition_id=index)
    if error.code is ErrorCode.ELECTION_NOT_NEEDED and request.topic_partitions is None:
        return None
    return refused_row(ElectLeadersResponsePartition, index, error.code, error.message)


# --- rights and audit ----------------------------------------------------------------------------------------


def _elections(request: ElectLeadersRequest, ctx: RequestContext) -> list[AdministrativeChange]:
    topics = [f"{row.topic}, partitions {row.partitions}" for row in request.topic_partitions or ()]
    return [deed_on(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME, topics or ["leaders of all partitions"])]


NEEDS: Requirements = (on_cluster(Operation.ALTER),)
AUDIT = Administration(_elections, code_of_first)
LONG_ANSWER = True
