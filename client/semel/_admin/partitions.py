"""Offsets of partitions by time or at their ends, and deletion of records."""

from __future__ import annotations

from collections.abc import Mapping

from semel_protocol.acls import Operation
from semel_protocol.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from semel_protocol.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    DeleteRecordsResponse,
)

from semel._admin.types import RecordsToDelete
from semel._net.calls import CallOutcomes, Calls, grouped, wire_ms
from semel._net.connection import Connection
from semel._net.retry import Deadline
from semel.structs import OffsetAndTimestamp, TopicPartition


async def list_offsets(
    calls: Calls, wanted: Mapping[TopicPartition, int], read_committed: bool, timeout_ms: float | None
) -> dict[TopicPartition, OffsetAndTimestamp]:
    outcomes: CallOutcomes[TopicPartition, OffsetAndTimestamp] = CallOutcomes(
        wanted,
        lambda at: f"offset of {at.topic}-{at.partition}",
        lambda at: calls.cluster.right(Operation.DESCRIBE, topic=at.topic),
    )

    async def attempt(connection: Connection, partitions: list[TopicPartition], deadline: Deadline) -> None:
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=1 if read_committed else 0,
            topics=[
                ListOffsetsRequestTopic(name=topic, partitions=[_wanted(wanted, topic, index) for index in indexes])
                for topic, indexes in grouped(partitions).items()
            ],
        )
        answer: ListOffsetsResponse = await calls.request(connection, request, deadline)
        for topic in answer.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                if row.error_code:
                    outcomes.refused(partition, row.error_code)
                else:
                    outcomes.succeeded(partition, OffsetAndTimestamp(row.offset, row.timestamp))

    return await calls.on_leaders(attempt, outcomes, what="listing offsets", timeout_ms=timeout_ms)


async def delete_records(
    calls: Calls, records: Mapping[TopicPartition, RecordsToDelete | int], timeout_ms: float | None
) -> dict[TopicPartition, int]:
    before = {
        partition: asked.before_offset if isinstance(asked, RecordsToDelete) else asked
        for partition, asked in records.items()
    }
    outcomes: CallOutcomes[TopicPartition, int] = CallOutcomes(
        before,
        lambda at: f"deleting records of {at.topic}-{at.partition} before {before[at]}",
        lambda at: calls.cluster.right(Operation.DELETE, topic=at.topic),
    )

    async def attempt(connection: Connection, partitions: list[TopicPartition], deadline: Deadline) -> None:
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsRequestTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsRequestPartition(
                            partition_index=index, offset=before[TopicPartition(topic, index)]
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in grouped(partitions).items()
            ],
            timeout_ms=wire_ms(deadline),
        )
        answer: DeleteRecordsResponse = await calls.request(connection, request, deadline)
        for topic in answer.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                if row.error_code:
                    outcomes.refused(partition, row.error_code)
                else:
                    outcomes.succeeded(partition, row.low_watermark)

    return await calls.on_leaders(attempt, outcomes, what="deleting records", timeout_ms=timeout_ms)


def _wanted(wanted: Mapping[TopicPartition, int], topic: str, index: int) -> ListOffsetsRequestPartition:
    return ListOffsetsRequestPartition(partition_index=index, timestamp=wanted[TopicPartition(topic, index)])
