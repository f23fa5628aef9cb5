"""Transactions: list, describe, fence, and abort hanging ones (KIP-664)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from semel_protocol.acls import Operation
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from semel_protocol.messages.k27_write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersRequestTopic,
    WriteTxnMarkersResponse,
)
from semel_protocol.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
    DescribeProducersResponse,
    DescribeProducersResponseActiveProducer,
)
from semel_protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseFence,
    DescribeTransactionsResponseTransaction,
)
from semel_protocol.messages.k66_list_transactions import ListTransactionsRequest, ListTransactionsResponse

from semel._admin.types import (
    FencedProducer,
    FenceRecord,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    client_text,
)
from semel._net.calls import CallOutcomes, Calls, grouped, settled
from semel._net.cluster import TRANSACTION
from semel._net.connection import Connection
from semel._net.pool import ConnectionPurpose
from semel._net.retry import Deadline
from semel.errors import InvalidRequestError, error_for
from semel.structs import TopicPartition

FENCING_TIMEOUT_MS = 1
"""The transaction timeout sent with a fencing InitProducerId. No transaction begins with it; the next producer sends
its own.
"""


async def list_transactions(
    calls: Calls, states: Sequence[str], producer_ids: Sequence[int]
) -> list[TransactionListing]:
    """Requests from every broker the transactional ids that it coordinates."""

    async def of_broker(node_id: int) -> list[TransactionListing]:
        async def attempt(deadline: Deadline) -> list[TransactionListing]:
            connection = await calls.cluster.connection(node_id, ConnectionPurpose.CONTROL)
            request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=list(producer_ids))
            answer: ListTransactionsResponse = await calls.request(connection, request, deadline)
            if answer.error_code:
                raise error_for(answer.error_code, f"listing the transactions of broker {node_id}")
            if answer.unknown_state_filters:
                raise InvalidRequestError(f"there is no state {', '.join(answer.unknown_state_filters)}")
            return [
                TransactionListing(row.transactional_id, row.producer_id, row.transaction_state, node_id)
                for row in answer.transaction_states
            ]

        return await calls.retrying(attempt, what="listing transactions")

    brokers = sorted((await calls.cluster.refresh()).brokers)
    answers = await asyncio.gather(*map(of_broker, brokers), return_exceptions=True)
    return sorted(found for listed in settled(dict(zip(brokers, answers, strict=True))).values() for found in listed)


async def describe_transactions(calls: Calls, transactional_ids: Sequence[str]) -> list[TransactionDescription]:
    """Describe all ids of one coordinator in one request."""
    outcomes: CallOutcomes[str, TransactionDescription] = CallOutcomes(
        transactional_ids,
        lambda name: f"describing transactional id {name!r}",
        lambda name: calls.cluster.right(Operation.DESCRIBE, transactional_id=name),
    )
    tries = 0

    async def ask(deadline: Deadline) -> None:
        nonlocal tries
        tries += 1
        coordinators: dict[int, list[str]] = {}
        for name in outcomes.open:
            if tries > 1:
                calls.cluster.forget_coordinator(name, TRANSACTION)
            left_ms = max(deadline.remaining_ms, 1)
            node_id = await calls.cluster.coordinator(name, TRANSACTION, timeout_ms=left_ms)
            coordinators.setdefault(node_id, []).append(name)
        for node_id, names in coordinators.items():
            connection = await calls.cluster.connection(node_id, ConnectionPurpose.CONTROL)
            request = DescribeTransactionsRequest(transactional_ids=names)
            answer: DescribeTransactionsResponse = await calls.request(connection, request, deadline)
            for row in answer.transaction_states:
                if row.error_code:
                    outcomes.refused(row.transactional_id, row.error_code, _why_refused(row))
                else:
                    outcomes.succeeded(row.transactional_id, _description(row, node_id))
        outcomes.check()

    if outcomes.open:
        await calls.retrying(ask, what="describing transactions", outcomes=outcomes)
    found = outcomes.results()
    return [found[name] for name in transactional_ids]


async def describe_producers(
    calls: Calls, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[ProducerState]]:
    outcomes: CallOutcomes[TopicPartition, list[ProducerState]] = CallOutcomes(
        partitions,
        lambda at: f"describing the producers of {at.topic}-{at.partition}",
        lambda at: calls.cluster.right(Operation.READ, topic=at.topic),
    )

    async def attempt(connection: Connection, asked: list[TopicPartition], deadline: Deadline) -> None:
        topics = [
            DescribeProducersRequestTopic(name=topic, partition_indexes=indexes)
            for topic, indexes in grouped(asked).items()
        ]
        answer: DescribeProducersResponse = await calls.request(
            connection, DescribeProducersRequest(topics=topics), deadline
        )
        for topic in answer.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                if row.error_code:
                    outcomes.refused(partition, row.error_code, row.error_message)
                else:
                    outcomes.succeeded(partition, [_producer(each) for each in row.active_producers])

    return await calls.on_leaders(attempt, outcomes, what="describing producers", timeout_ms=None)


async def fence_producers(calls: Calls, transactional_ids: Sequence[str], reason: str) -> dict[str, FencedProducer]:
    """Send InitProducerId as a new producer would: the coordinator bumps the epoch and aborts the open transaction."""

    async def of_id(transactional_id: str) -> FencedProducer:
        what = f"fencing the producer of {transactional_id!r}"

        async def attempt(connection: Connection, deadline: Deadline) -> FencedProducer:
            request = InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=FENCING_TIMEOUT_MS, reason=reason
            )
            answer: InitProducerIdResponse = await calls.request(connection, request, deadline)
            if answer.error_code:
                raise error_for(answer.error_code, what)
            return FencedProducer(answer.producer_id, answer.producer_epoch)

        return await calls.on_coordinator(transactional_id, attempt, what=what, key_type=TRANSACTION)

    names = list(dict.fromkeys(transactional_ids))
    answers = await asyncio.gather(*map(of_id, names), return_exceptions=True)
    return settled(dict(zip(names, answers, strict=True)))


async def abort_transaction(calls: Calls, partition: TopicPartition, producer: ProducerState) -> None:
    outcomes: CallOutcomes[TopicPartition, None] = CallOutcomes(
        [partition],
        lambda at: f"aborting the transaction of producer {producer.producer_id} in {at.topic}-{at.partition}",
    )

    async def attempt(connection: Connection, asked: list[TopicPartition], deadline: Deadline) -> None:
        marker = WriteTxnMarkersRequestMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[
                WriteTxnMarkersRequestTopic(name=topic, partition_indexes=indexes)
                for topic, indexes in grouped(asked).items()
            ],
            coordinator_epoch=max(producer.coordinator_epoch, 0),
        )
        answer: WriteTxnMarkersResponse = await calls.request(
            connection, WriteTxnMarkersRequest(markers=[marker]), deadline
        )
        for row in answer.markers:
            for topic in row.topics:
                for part in topic.partitions:
                    at = TopicPartition(topic.name, part.partition_index)
                    if part.error_code != ErrorCode.NONE:
                        outcomes.refused(at, part.error_code, part.error_message)
                    else:
                        outcomes.succeeded(at, None)

    await calls.on_leaders(attempt, outcomes, what="aborting a transaction", timeout_ms=None)


def _description(row: DescribeTransactionsResponseTransaction, node_id: int) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=row.transactional_id,
        state=row.transaction_state,
        coordinator=node_id,
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        timeout_ms=row.transaction_timeout_ms,
        start_time_ms=None if row.transaction_start_time_ms < 0 else row.transaction_start_time_ms,
        partitions=tuple(
            sorted(TopicPartition(topic.topic, index) for topic in row.topics for index in topic.partitions)
        ),
        owner=client_text(row.client_id, row.client_host),
        last_update_time_ms=None if row.last_update_time_ms < 0 else row.last_update_time_ms,
        fences=tuple(map(_fence, row.fences)),
        group_epoch=row.group_epoch,
    )


def _fence(row: DescribeTransactionsResponseFence) -> FenceRecord:
    return FenceRecord(
        at_ms=row.at_ms,
        reason=row.reason,
        old_producer_id=row.old_producer_id,
        old_epoch=row.old_epoch,
        new_producer_id=row.new_producer_id,
        new_epoch=row.new_epoch,
        by=client_text(row.client_id, row.client_host),
        note=row.note,
        text=row.text,
    )


def _why_refused(row: DescribeTransactionsResponseTransaction) -> str | None:
    """The broker's message; for an expired id also the last entry of its ledger."""
    last = row.fences[-1].text if row.fences else ""
    words = row.error_message or ""
    return ". ".join(part for part in (words, "" if last in words else last) if part) or None


def _producer(row: DescribeProducersResponseActiveProducer) -> ProducerState:
    return ProducerState(
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        last_sequence=row.last_sequence,
        last_timestamp=row.last_timestamp,
        coordinator_epoch=row.coordinator_epoch,
        current_txn_start_offset=None if row.current_txn_start_offset < 0 else row.current_txn_start_offset,
    )
