"""Topics and the cluster: create, delete, add partitions, list, describe, check brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from semel_protocol.acls import Operation
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k03_metadata import MetadataRequest
from semel_protocol.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestAssignment,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from semel_protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from semel_protocol.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestAssignment,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
)
from semel_protocol.messages.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse

from semel._admin.types import BrokerStatus, ClusterDescription, NewPartitions, NewTopic
from semel._net.calls import CallOutcomes, Calls, wire_ms
from semel._net.connection import Connection
from semel._net.pool import ConnectionPurpose
from semel._net.retry import Deadline
from semel.errors import KafkaConfigurationError, KafkaError
from semel.structs import Metadata, TopicMetadata


async def create_topics(
    calls: Calls, topics: Sequence[NewTopic], timeout_ms: float | None, validate_only: bool
) -> dict[str, None]:
    rows = {topic.name: _new_topic(topic) for topic in topics}
    if len(rows) != len(topics):
        raise KafkaConfigurationError("create_topics names a topic twice")
    outcomes: CallOutcomes[str, None] = CallOutcomes(rows, lambda name: f"creating topic {name!r}")

    async def attempt(connection: Connection, deadline: Deadline) -> None:
        request = CreateTopicsRequest(
            topics=[rows[name] for name in outcomes.open], timeout_ms=wire_ms(deadline), validate_only=validate_only
        )
        answer: CreateTopicsResponse = await calls.request(connection, request, deadline)
        for row in answer.topics:
            _note(outcomes, row.name, row.error_code, row.error_message)

    return await calls.on_controller(attempt, outcomes, what="creating topics", timeout_ms=timeout_ms)


async def delete_topics(calls: Calls, topics: Sequence[str], timeout_ms: float | None) -> dict[str, None]:
    outcomes: CallOutcomes[str, None] = CallOutcomes(
        topics,
        lambda name: f"deleting topic {name!r}",
        lambda name: calls.cluster.right(Operation.DELETE, topic=name),
    )

    async def attempt(connection: Connection, deadline: Deadline) -> None:
        request = DeleteTopicsRequest(topic_names=list(outcomes.open), timeout_ms=wire_ms(deadline))
        answer: DeleteTopicsResponse = await calls.request(connection, request, deadline)
        for row in answer.responses:
            _note(outcomes, row.name or "", row.error_code, row.error_message)

    return await calls.on_controller(attempt, outcomes, what="deleting topics", timeout_ms=timeout_ms)


async def create_partitions(
    calls: Calls, topics: Mapping[str, NewPartitions], timeout_ms: float | None, validate_only: bool
) -> None:
    outcomes: CallOutcomes[str, None] = CallOutcomes(topics, lambda name: f"adding partitions to topic {name!r}")

    async def attempt(connection: Connection, deadline: Deadline) -> None:
        request = CreatePartitionsRequest(
            topics=[_grown(name, topics[name]) for name in outcomes.open],
            timeout_ms=wire_ms(deadline),
            validate_only=validate_only,
        )
        answer: CreatePartitionsResponse = await calls.request(connection, request, deadline)
        for row in answer.results:
            _note(outcomes, row.name, row.error_code, row.error_message)

    await calls.on_controller(attempt, outcomes, what="adding partitions", timeout_ms=timeout_ms)


async def list_topics(calls: Calls) -> list[str]:
    metadata = await calls.retrying(lambda deadline: calls.metadata(None, deadline), what="listing topics")
    return sorted(metadata.topics)


async def describe_topics(calls: Calls, topics: Sequence[str] | None) -> list[TopicMetadata]:
    if topics is None:
        metadata = await calls.retrying(lambda deadline: calls.metadata(None, deadline), what="describing topics")
        return [metadata.topics[name] for name in sorted(metadata.topics)]
    outcomes: CallOutcomes[str, TopicMetadata] = CallOutcomes(
        topics,
        lambda name: f"describing topic {name!r}",
        lambda name: calls.cluster.right(Operation.DESCRIBE, topic=name),
    )

    async def attempt(deadline: Deadline) -> None:
        metadata = await calls.metadata(outcomes.open, deadline)
        for name in list(outcomes.open):
            code = metadata.errors.get(name, ErrorCode.NONE)
            if code == ErrorCode.NONE and name in metadata.topics:
                outcomes.succeeded(name, metadata.topics[name])
            else:
                outcomes.refused(name, code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        outcomes.check()

    if outcomes.open:
        await calls.retrying(attempt, what="describing topics")
    found = calls.results(outcomes)
    return [found[name] for name in topics]


async def describe_cluster(calls: Calls) -> ClusterDescription:
    async def attempt(deadline: Deadline) -> Metadata:
        return await calls.metadata((), deadline)

    metadata = await calls.retrying(attempt, what="describing the cluster")
    return ClusterDescription(metadata.cluster_id, metadata.controller_id, metadata.brokers)


async def check_brokers(calls: Calls, node_ids: Iterable[int], timeout_ms: float) -> dict[int, BrokerStatus]:
    """Ask all brokers at once, each for at most `timeout_ms`, connecting included."""
    asked = list(node_ids)
    answers = await asyncio.gather(*[_check_broker(calls, node_id, timeout_ms) for node_id in asked])
    return dict(zip(asked, answers, strict=True))


async def _check_broker(calls: Calls, node_id: int, timeout_ms: float) -> BrokerStatus:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            connection = await calls.cluster.connection(node_id, ConnectionPurpose.CONTROL)
            if not connection.serves(DescribeClusterRequest):
                # A broker of another make: any broker answers Metadata.
                await connection.request(MetadataRequest(topics=[]), timeout_ms=timeout_ms)
                return BrokerStatus()
            answer: DescribeClusterResponse = await connection.request(request, timeout_ms=timeout_ms)
    except TimeoutError:
        return BrokerStatus(f"no answer within {timeout_ms:.0f} ms")
    except KafkaError as error:
        return BrokerStatus(error.message)
    has_session, does_hang = answer.session_timeout_ms >= 0, answer.disk_hangs_ms >= 0
    return BrokerStatus(
        session_left_ms=answer.session_left_ms if has_session else None,
        session_timeout_ms=answer.session_timeout_ms if has_session else None,
        disk_hangs_ms=answer.disk_hangs_ms if does_hang else None,
        disk_path=answer.disk_path,
    )


def _new_topic(topic: NewTopic) -> CreateTopicsRequestTopic:
    if topic.replica_assignments and (topic.num_partitions, topic.replication_factor) != (-1, -1):
        raise KafkaConfigurationError(
            f"topic {topic.name!r}: give num_partitions and replication_factor, or replica_assignments, not both"
        )
    return CreateTopicsRequestTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            CreateTopicsRequestAssignment(partition_index=index, broker_ids=list(ids))
            for index, ids in (topic.replica_assignments or {}).items()
        ],
        configs=[
            CreateTopicsRequestConfig(name=name, value=value) for name, value in (topic.topic_configs or {}).items()
        ],
    )


def _grown(name: str, new: NewPartitions) -> CreatePartitionsRequestTopic:
    assignments = new.new_assignments
    return CreatePartitionsRequestTopic(
        name=name,
        count=new.total_count,
        assignments=None
        if assignments is None
        else [CreatePartitionsRequestAssignment(broker_ids=list(ids)) for ids in assignments],
    )


def _note(outcomes: CallOutcomes[str, None], name: str, code: int, message: str | None) -> None:
    if code:
        outcomes.refused(name, code, message)
    else:
        outcomes.succeeded(name, None)
