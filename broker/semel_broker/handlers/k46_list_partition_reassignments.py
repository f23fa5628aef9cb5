"""ListPartitionReassignments (key 46): the partitions whose reassignment is in progress (KIP-455).

Other partitions are left out, also missing ones. `replicas` lists all replicas that a partition has during the move. A
reassignment that another broker has answered before is listed: an operator's tool takes a missing one for completed.
REQUEST_TIMED_OUT: the cluster's store cannot be reached.
"""

from __future__ import annotations

from semel_protocol.acls import Operation
from semel_protocol.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsResponsePartition,
    ListPartitionReassignmentsResponseTopic,
)

from semel_broker.authorization.administration import CHANGES_NOTHING
from semel_broker.authorization.requirements import Requirements, on_cluster
from semel_broker.cluster import reassignments
from semel_broker.cluster.writes import catch_up
from semel_broker.context import RequestContext


async def handle(request: ListPartitionReassignmentsRequest, ctx: RequestContext) -> ListPartitionReassignmentsResponse:
    """By topic and index."""
    await catch_up(ctx.broker.feed)
    asked = None if request.topics is None else {topic.name: set(topic.partition_indexes) for topic in request.topics}
    rows: dict[str, list[ListPartitionReassignmentsResponsePartition]] = {}
    for view in ctx.broker.feed.image.reassignments():
        if asked is None or view.index in asked.get(view.topic, ()):
            row = ListPartitionReassignmentsResponsePartition(
                partition_index=view.index,
                replicas=list(view.replicas),
                adding_replicas=reassignments.adding(view),
                removing_replicas=reassignments.removing(view),
            )
            rows.setdefault(view.topic, []).append(row)
    topics = [ListPartitionReassignmentsResponseTopic(name=name, partitions=found) for name, found in rows.items()]
    return ListPartitionReassignmentsResponse(topics=topics)


NEEDS: Requirements = (on_cluster(Operation.DESCRIBE),)
NOT_AUDITED = CHANGES_NOTHING
LONG_ANSWER = True
