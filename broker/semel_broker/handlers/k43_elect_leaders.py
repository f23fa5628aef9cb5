"""ElectLeaders (key 43): leaders back to the preferred replicas (KIP-183), or somebody where nobody leads (KIP-460).

v0 preferred only; v1 adds the type; v2 flexible. Type 1, unclean, elects one from outside the ISR where nobody of it is
there: what that one does not have is lost. Nothing but this request ever does so.

3 no such partition; 84 it is led so already; 80 the preferred replica is not there or not in sync; 83 no replica is
there; 42 a type that is none. Without a list of partitions all are meant, and those that need nothing are left out.
"""

from __future__ import annotations

from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k43_elect_leaders import (
    PREFERRED,
    UNCLEAN,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersResponsePartition,
    ElectLeadersResponseTopic,
)

from semel_broker.cluster.image import Image, Place
from semel_broker.cluster.operations import Operations
from semel_broker.context import RequestContext


async def handle(request: ElectLeadersRequest, ctx: RequestContext) -> ElectLeadersResponse:
    """A row for each partition asked for, by topic."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"election type {request.election_type}: 0 preferred, 1 unclean")
    broker = ctx.broker
    image = broker.feed.image
    asked = _asked(request, image)
    there = [place for places in asked.values() for place in places.values() if place is not None]
    operations = Operations(broker.store, broker.feed, broker.log)
    refused = await operations.elect(there, unclean=request.election_type == UNCLEAN)
    rows = {
        topic: [row for index, place in places.items() if (row := _row(topic, index, place, refused, request))]
        for topic, places in asked.items()
    }
    return ElectLeadersResponse(
        replica_election_results=[
            ElectLeadersResponseTopic(topic=topic, partition_result=results)
            for topic, results in rows.items()
            if results
        ]
    )


def _asked(request: ElectLeadersRequest, image: Image) -> dict[str, dict[int, Place | None]]:
    """By topic and index the partitions that are meant; None for one that is not there."""
    asked: dict[str, dict[int, Place | None]] = {}
    if request.topic_partitions is None:
        for view in image.partitions():
            asked.setdefault(view.topic, {})[view.index] = view.place
        return asked
    for row in request.topic_partitions:
        topic = image.topic(row.topic)
        places = asked.setdefault(row.topic, {})
        for index in row.partitions:
            is_there = topic is not None and 0 <= index < len(topic.value.replicas)
            places[index] = (topic.value.topic_id, index) if topic is not None and is_there else None
    return asked


def _row(
    topic: str, index: int, place: Place | None, refused: dict[Place, KafkaError], request: ElectLeadersRequest
) -> ElectLeadersResponsePartition | None:
    if place is None:
        what = f"there is no partition {index} of topic {topic!r}"
        return ElectLeadersResponsePartition(
            partition_id=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message=what
        )
    error = refused.get(place)
    if error is None:
        return ElectLeadersResponsePartition(partition_id=index)
    if error.code is ErrorCode.ELECTION_NOT_NEEDED and request.topic_partitions is None:
        return None
    return ElectLeadersResponsePartition(partition_id=index, error_code=error.code, error_message=error.message)
