"""AlterPartitionReassignments (key 45): move partitions to other brokers, or cancel that (KIP-455).

The controller completes a reassignment. v1 can forbid a change of the number of replicas (KIP-860). A partition whose
reassignment is in progress gets a new target.

UNKNOWN_TOPIC_OR_PARTITION: no such partition. INVALID_REPLICA_ASSIGNMENT: invalid replicas, or the reassignment cannot
be cancelled. INVALID_REPLICATION_FACTOR: a number of replicas that is not allowed. NO_REASSIGNMENT_IN_PROGRESS: there
is none to cancel. INVALID_REQUEST: a partition given twice. REQUEST_TIMED_OUT: the cluster's store cannot be reached.
"""

from __future__ import annotations

from collections import Counter

from semel_protocol.acls import CLUSTER_NAME, Operation, ResourceType
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestTopic,
    AlterPartitionReassignmentsResponse,
    AlterPartitionReassignmentsResponsePartition,
    AlterPartitionReassignmentsResponseTopic,
)

from semel_broker.authorization.administration import Administration, AdministrativeChange, code_of_first, deed_on
from semel_broker.authorization.requirements import Requirements, on_cluster
from semel_broker.cluster.operations import Operations
from semel_broker.context import RequestContext
from semel_broker.scheduling.turns import Slices


async def handle(
    request: AlterPartitionReassignmentsRequest, ctx: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """One row per partition, in the order of the request."""
    slices = ctx.slices()
    operations = Operations(ctx.broker.store, ctx.broker.feed, ctx.broker.log, slices)
    responses = []
    for topic in request.topics:
        responses.append(await _alter(topic, operations, request.allow_replication_factor_change, slices))
        if slices.is_over():
            await slices.next()
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, responses=responses
    )


async def _alter(
    topic: AlterPartitionReassignmentsRequestTopic, operations: Operations, may_change_factor: bool, slices: Slices
) -> AlterPartitionReassignmentsResponseTopic:
    times = Counter(row.partition_index for row in topic.partitions)
    targets = {row.partition_index: row.replicas for row in topic.partitions if times[row.partition_index] == 1}
    twice = KafkaError(ErrorCode.INVALID_REQUEST, "the partition is given twice; give it once")
    refused = {index: twice for index, count in times.items() if count > 1}
    try:
        refused |= await operations.reassign(topic.name, targets, may_change_factor=may_change_factor)
    except KafkaError as error:
        refused |= dict.fromkeys(targets, error)
    rows = []
    for index in times:
        row = AlterPartitionReassignmentsResponsePartition(partition_index=index)
        if (refusal := refused.get(index)) is not None:
            row.error_code, row.error_message = refusal.code, refusal.message
        rows.append(row)
        if slices.is_over():
            await slices.next()
    return AlterPartitionReassignmentsResponseTopic(name=topic.name, partitions=rows)


# --- rights and audit ----------------------------------------------------------------------------------------


def _moves(request: AlterPartitionReassignmentsRequest, ctx: RequestContext) -> list[AdministrativeChange]:
    changes = [
        f"{row.name}, partition {each.partition_index}: "
        + ("its move is cancelled" if each.replicas is None else f"replicas {each.replicas}")
        for row in request.topics
        for each in row.partitions
    ]
    return [deed_on(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME, changes)]


NEEDS: Requirements = (on_cluster(Operation.ALTER),)
AUDIT = Administration(_moves, code_of_first)
LONG_ANSWER = True
