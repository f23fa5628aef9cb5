"""Aborts hanging transactions, which are open in a partition and have no coordinator (KIP-664), for an operator.

A transaction hangs only if no coordinator knows it. So this broker asks all coordinators, and refuses if one of them
does not answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from semel_protocol.api_key import ApiKey
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from semel_protocol.messages.k66_list_transactions import ListTransactionsRequest, ListTransactionsResponse
from semel_storage.internal_topics import TRANSACTION_STATE

from semel_broker.partitions.partition import Partition
from semel_broker.topics.topics import Topics
from semel_broker.txn.markers.channel import Destination, Leaders, Marker
from semel_broker.txn.markers.peer_calls import (
    DESCRIBE_VERSION,
    LIST_VERSION,
    PeerCalls,
)
from semel_broker.txn.model.identity import ClientName, ProducerIdentity
from semel_broker.txn.model.metadata import BETWEEN, TopicPartition, TransactionMetadata, TransactionState
from semel_broker.world import Logger

BUSY = [state.label for state in TransactionState if state not in BETWEEN and state is not TransactionState.DEAD]


class PeerCoordinators:
    """The coordinators on other brokers. `timeout_ms`: how long a call to each may take."""

    def __init__(self, topics: Topics, leaders: Leaders, peers: PeerCalls, node_id: int, timeout_ms: int) -> None:
        self._topics = topics
        self._leaders = leaders
        self._peers = peers
        self._node_id = node_id
        self._timeout_ms = timeout_ms

    async def check(self, producer_id: int, partition: TopicPartition) -> None:
        """Raise INVALID_TXN_STATE if one of them coordinates what the producer has open there, and
        COORDINATOR_NOT_AVAILABLE if one of them cannot be asked."""
        for node in self._nodes():
            try:
                listing: ListTransactionsResponse = await self._peers.call(
                    node,
                    ApiKey.LIST_TRANSACTIONS,
                    LIST_VERSION,
                    ListTransactionsRequest(state_filters=BUSY, producer_id_filters=[producer_id]),
                    self._timeout_ms,
                )
                ids = [row.transactional_id for row in listing.transaction_states if row.producer_id == producer_id]
                described: DescribeTransactionsResponse = await self._peers.call(
                    node,
                    ApiKey.DESCRIBE_TRANSACTIONS,
                    DESCRIBE_VERSION,
                    DescribeTransactionsRequest(transactional_ids=ids),
                    self._timeout_ms,
                )
            except (KafkaError, OSError) as error:
                raise _unknown(node, str(error)) from error
            if listing.error_code or any(row.error_code for row in described.transaction_states):
                raise _unknown(node, "it cannot say")
            for row in described.transaction_states:
                if row.producer_id == producer_id and partition in (
                    (topic.topic, index) for topic in row.topics for index in topic.partitions
                ):
                    raise not_hanging(row.transactional_id, row.transaction_state)

    def _nodes(self) -> list[int]:
        topic = self._topics.get(TRANSACTION_STATE)
        nodes: dict[int, None] = {}
        for index in range(topic.partition_count if topic is not None else 0):
            node = self._leaders.of((TRANSACTION_STATE, index))
            if node is None:
                raise KafkaError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    f"{TRANSACTION_STATE}-{index} has no leader, so its coordinator cannot be asked: try again",
                )
            nodes[node] = None
        nodes.pop(self._node_id, None)
        return sorted(nodes)


class Hanging:
    """Aborts transactions in partitions that this broker leads."""

    def __init__(self, log: Logger, others: PeerCoordinators) -> None:
        self._log = log
        self._others = others

    async def abort(
        self,
        producer: ProducerIdentity,
        partition: Partition,
        coordinator_epoch: int,
        by: ClientName,
        known: Iterable[TransactionMetadata],
        destination: Destination,
    ) -> None:
        """Write the marker, unless a coordinator knows the transaction. `known`: the transactions that this broker
        coordinates.

        Raises INVALID_TXN_STATE if there is none, or it has a coordinator; 6, 15, 47, 52.
        """
        place = partition.topic, partition.index
        holder = next((txn for txn in known if txn.holds(producer.producer_id, place)), None)
        if holder is not None:
            raise not_hanging(holder.transactional_id, holder.state.label)
        await self._others.check(producer.producer_id, place)
        partition.check_leading()
        if partition.open_transaction(producer.producer_id) is None:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"producer id {producer.producer_id} has none open here")
        marker = Marker(producer, commit=False, coordinator_epoch=max(coordinator_epoch, 0))
        answer = destination.write([(marker, place)])
        (code,) = answer if isinstance(answer, list) else await answer
        if code:
            raise KafkaError(code, f"the marker of {producer} is refused by the partition")
        self._log.info("hanging_transaction_aborted", partition=list(place), producer=str(producer), by=str(by))


def not_hanging(transactional_id: str, state: str) -> KafkaError:
    """The error for a transaction that has a coordinator."""
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE,
        f"this transaction is not hanging: {transactional_id} is in {state}; "
        "have its producer end it, or fence it by its transactional.id",
    )


def _unknown(node: int, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        f"broker {node} may coordinate the transaction, and cannot be asked ({why}): try again",
    )
