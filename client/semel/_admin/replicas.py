"""Leader elections, reassignments and sizes of replicas (KIP-455, KIP-460, KIP-113)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k35_describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsRequestTopic,
    DescribeLogDirsResponse,
    DescribeLogDirsResponseResult,
)
from semel_protocol.messages.k43_elect_leaders import (
    PREFERRED,
    UNCLEAN,
    ElectLeadersRequest,
    ElectLeadersRequestTopic,
    ElectLeadersResponse,
)
from semel_protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestPartition,
    AlterPartitionReassignmentsRequestTopic,
    AlterPartitionReassignmentsResponse,
)
from semel_protocol.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequestTopic,
    ListPartitionReassignmentsResponse,
)

from semel._admin.types import LogDirDescription, PartitionReassignment, ReplicaSize
from semel._net.calls import CallOutcomes, Calls, grouped, settled, wire_ms
from semel._net.connection import Connection
from semel._net.pool import ConnectionPurpose
from semel._net.retry import Deadline
from semel.errors import UnsupportedVersionError, error_for
from semel.structs import TopicPartition


async def elect_leaders(
    calls: Calls, partitions: Iterable[TopicPartition] | None, preferred: bool, timeout_ms: float | None
) -> list[TopicPartition]:
    outcomes: CallOutcomes[TopicPartition, bool] = CallOutcomes(
        partitions, lambda at: f"electing a leader of {at.topic}-{at.partition}"
    )

    async def attempt(connection: Connection, deadline: Deadline) -> None:
        if not preferred and not connection.serves(ElectLeadersRequest, 1):
            raise UnsupportedVersionError(f"electing leaders: {connection.name} elects preferred leaders only")
        topics = [ElectLeadersRequestTopic(topic=topic, partitions=at) for topic, at in grouped(outcomes.open).items()]
        request = ElectLeadersRequest(
            election_type=PREFERRED if preferred else UNCLEAN,
            topic_partitions=None if outcomes.of_all else topics,
            timeout_ms=wire_ms(deadline),
        )
        answer: ElectLeadersResponse = await calls.request(connection, request, deadline)
        if answer.error_code:
            raise error_for(answer.error_code, "electing leaders")
        for topic in answer.replica_election_results:
            for row in topic.partition_result:
                at = TopicPartition(topic.topic, row.partition_id)
                outcomes.add(at)
                if row.error_code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                    outcomes.succeeded(at, row.error_code == ErrorCode.NONE)
                else:
                    outcomes.refused(at, row.error_code, row.error_message)

    found = await calls.on_controller(attempt, outcomes, what="electing leaders", timeout_ms=timeout_ms)
    return [at for at, is_new in found.items() if is_new]


async def alter_partition_reassignments(
    calls: Calls, targets: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: float | None
) -> None:
    outcomes: CallOutcomes[TopicPartition, None] = CallOutcomes(targets, lambda at: _moving(at, targets[at]))

    async def attempt(connection: Connection, deadline: Deadline) -> None:
        topics = [
            AlterPartitionReassignmentsRequestTopic(
                name=topic, partitions=[_target(targets, topic, index) for index in indexes]
            )
            for topic, indexes in grouped(outcomes.open).items()
        ]
        request = AlterPartitionReassignmentsRequest(timeout_ms=wire_ms(deadline), topics=topics)
        answer: AlterPartitionReassignmentsResponse = await calls.request(connection, request, deadline)
        if answer.error_code:
            raise error_for(answer.error_code, ": ".join(filter(None, ("moving partitions", answer.error_message))))
        for topic in answer.responses:
            for row in topic.partitions:
                at = TopicPartition(topic.name, row.partition_index)
                if row.error_code:
                    outcomes.refused(at, row.error_code, row.error_message)
                else:
                    outcomes.succeeded(at, None)

    await calls.on_controller(attempt, outcomes, what="moving partitions", timeout_ms=timeout_ms)


async def list_partition_reassignments(
    calls: Calls, partitions: Iterable[TopicPartition] | None, timeout_ms: float | None
) -> dict[TopicPartition, PartitionReassignment]:
    what = "listing the moves of partitions"
    asked = None if partitions is None else grouped(dict.fromkeys(partitions))

    async def attempt(deadline: Deadline) -> dict[TopicPartition, PartitionReassignment]:
        topics = None
        if asked is not None:
            topics = [
                ListPartitionReassignmentsRequestTopic(name=name, partition_indexes=indexes)
                for name, indexes in asked.items()
            ]
        connection = await calls.cluster.controller_connection()
        request = ListPartitionReassignmentsRequest(timeout_ms=wire_ms(deadline), topics=topics)
        answer: ListPartitionReassignmentsResponse = await calls.request(connection, request, deadline)
        if answer.error_code:
            raise error_for(answer.error_code, ": ".join(filter(None, (what, answer.error_message))))
        return {
            TopicPartition(topic.name, row.partition_index): PartitionReassignment(
                tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
            )
            for topic in answer.topics
            for row in topic.partitions
        }

    found = await calls.retrying(attempt, what=what, timeout_ms=timeout_ms) if asked is None or asked else {}
    return dict(sorted(found.items()))


async def describe_log_dirs(
    calls: Calls, node_ids: Iterable[int], partitions: Iterable[TopicPartition] | None, timeout_ms: float | None
) -> dict[int, list[LogDirDescription]]:
    asked = list(dict.fromkeys(node_ids))
    topics = None
    if partitions is not None:
        topics = [
            DescribeLogDirsRequestTopic(topic=name, partitions=indexes)
            for name, indexes in grouped(dict.fromkeys(partitions)).items()
        ]

    async def of_node(node_id: int) -> list[LogDirDescription]:
        what = f"describing the data directories of broker {node_id}"

        async def attempt(deadline: Deadline) -> list[LogDirDescription]:
            connection = await calls.cluster.connection(node_id, ConnectionPurpose.CONTROL)
            answer: DescribeLogDirsResponse = await calls.request(
                connection, DescribeLogDirsRequest(topics=topics), deadline
            )
            code = answer.error_code or next((row.error_code for row in answer.results if row.error_code), 0)
            if code:
                raise error_for(code, what)
            return [_log_dir(row) for row in answer.results]

        return await calls.retrying(attempt, what=what, timeout_ms=timeout_ms)

    answers = await asyncio.gather(*map(of_node, asked), return_exceptions=True)
    return settled(dict(zip(asked, answers, strict=True)))


def _log_dir(row: DescribeLogDirsResponseResult) -> LogDirDescription:
    return LogDirDescription(
        row.log_dir,
        {
            TopicPartition(topic.name, each.partition_index): ReplicaSize(
                each.partition_size, each.offset_lag, each.is_future_key
            )
            for topic in row.topics
            for each in topic.partitions
        },
        None if row.total_bytes < 0 else row.total_bytes,
        None if row.usable_bytes < 0 else row.usable_bytes,
    )


def _target(
    targets: Mapping[TopicPartition, Sequence[int] | None], topic: str, index: int
) -> AlterPartitionReassignmentsRequestPartition:
    ids = targets[TopicPartition(topic, index)]
    return AlterPartitionReassignmentsRequestPartition(
        partition_index=index, replicas=None if ids is None else list(ids)
    )


def _moving(at: TopicPartition, ids: Sequence[int] | None) -> str:
    if ids is None:
        return f"cancelling the move of {at.topic}-{at.partition}"
    return f"moving {at.topic}-{at.partition} to brokers {', '.join(map(str, ids))}"
