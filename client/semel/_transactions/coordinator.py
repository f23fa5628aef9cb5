"""Requests of a transactional producer to its coordinators, InitProducerId to EndTxn, one method each.

Each request is retried, with reconnects and FindCoordinator, until an answer is final. `manager` decides what the
answer means for the transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

from semel_protocol.acls import Operation
from semel_protocol.errors import ErrorCode
from semel_protocol.fields import first_version
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from semel_protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnResponse,
)
from semel_protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from semel_protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from semel_protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from semel_protocol.messages.k20001_begin_transaction_group import BeginTransactionGroupRequest
from semel_protocol.schema import ZERO_UUID, Message

from semel._config.producer import ProducerConfig
from semel._net.calls import grouped
from semel._net.cluster import GROUP, TRANSACTION, Cluster
from semel._net.connection import Connection
from semel._net.retry import FOREVER_MS, Deadline, is_lost_coordinator, is_unsettled
from semel._produce.request import check_serves
from semel._produce.sequences import NO_EPOCH, NO_PRODUCER_ID, TransactionManager
from semel._produce.transaction_state import ErrorEffect, verdict_on
from semel.errors import (
    BrokerResponseError,
    DeletedTopicCommitError,
    KafkaConnectionError,
    KafkaError,
    UnsupportedVersionError,
    error_for,
)
from semel.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

log = logging.getLogger(__name__)

FEATURE = "transaction.version"
RESUME_VERSION_MIN = 3
"""The InitProducerId version that carries the old producer id and epoch (KIP-360)."""
GROUP_METADATA_VERSION_MIN = 3
"""The TxnOffsetCommit version that carries generation and member id (KIP-447)."""
END_TXN_VERSION = {1: 4, 2: 5}
TXN_OFFSET_COMMIT_VERSION = {1: 4, 2: 5}
"""By transaction version (KIP-890): the highest version to use; for transaction version 2 also the lowest."""
TXN_OFFSET_COMMIT_BY_ID_FROM = first_version(TxnOffsetCommitRequestTopic, "topic_id")
"""The TxnOffsetCommit version that names topics by id (KIP-1319)."""
UNKNOWN_ANSWERS = 3
"""A topic id is gone when the group's coordinator has refused it so often in a row. Once, it may only lag behind."""
CONCURRENT_PAUSE_MS = 20
"""The longest pause after CONCURRENT_TRANSACTIONS: the previous transaction usually completes within a few ms."""


class TransactionCoordinator:
    """The coordinators of one transactional id and of the groups whose offsets it commits.

    in_doubt: a request without an answer may have arrived, or may still arrive.
    maybe_done: the same, since the last call of `end` began; also after an answer that is not a final outcome.
    last_error: why the present request is repeated; None after a success.
    """

    def __init__(self, cluster: Cluster, config: ProducerConfig, manager: TransactionManager) -> None:
        assert config.transactional_id is not None
        self._cluster, self._config, self._manager = cluster, config, manager
        self._id = config.transactional_id
        self.in_doubt = False
        self.maybe_done = False
        self.version = 1
        self.last_error: KafkaError | None = None

    async def init_producer_id(self, *, resume: bool, timeout_ms: float) -> None:
        """Obtain a producer id and epoch that fence earlier producers. Open transactions of the id are aborted.

        resume: this producer asks for a new epoch (KIP-360). That fails when another producer has taken the id. In a
        step of a transaction group, it fails once the step is over.
        """
        manager, step = self._manager, self._config.transaction_group_step

        def request(connection: Connection) -> Message:
            if resume and connection.version(InitProducerIdRequest) < RESUME_VERSION_MIN:
                raise UnsupportedVersionError(f"{connection.name} cannot give a running producer a new epoch")
            if step is not None:
                connection.version(BeginTransactionGroupRequest)  # raises NotSemelBrokerError
            return InitProducerIdRequest(
                transactional_id=self._id,
                transaction_timeout_ms=self._config.transaction_timeout_ms,
                producer_id=manager.producer_id if resume else NO_PRODUCER_ID,
                producer_epoch=manager.producer_epoch if resume else NO_EPOCH,
                group_epoch=NO_EPOCH if step is None else step.epoch,
            )

        what = (
            f"initializing transactional_id {self._id!r} with "
            f"transaction_timeout_ms={self._config.transaction_timeout_ms}"
        )
        if step is not None:
            what = f"initializing transactional_id {self._id!r} in step {step.epoch} of its transaction group"
        answer: InitProducerIdResponse = await self._ask(request, what, _error_code, timeout_ms=timeout_ms)
        manager.set_producer_id(answer.producer_id, answer.producer_epoch)
        self.in_doubt = False

    async def add_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Add partitions to the transaction (transaction version 1)."""
        topics = [
            AddPartitionsToTxnRequestTopic(name=topic, partitions=indexes)
            for topic, indexes in grouped(partitions).items()
        ]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._manager.producer_id,
            v3_and_below_producer_epoch=self._manager.producer_epoch,
            v3_and_below_topics=topics,
        )
        what = f"adding partitions to the transaction of {self._id!r}"
        await self._ask(lambda _: request, what, partial(_added, list(partitions)))

    async def add_group(self, group_id: str, *, timeout_ms: float) -> None:
        """Add a group whose offsets will be part of the transaction (transaction version 1)."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=self._manager.producer_id,
            producer_epoch=self._manager.producer_epoch,
            group_id=group_id,
        )
        what = f"adding group {group_id!r} to the transaction of {self._id!r}"
        await self._ask(lambda _: request, what, _error_code, timeout_ms=timeout_ms)

    async def commit_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
        *,
        version: int,
        timeout_ms: float,
    ) -> None:
        """Add offsets of a group to the transaction, at the group's coordinator.

        Raises DeletedTopicCommitError when the topic that they belong to was deleted.
        """
        ids = dict(group.topic_ids)
        topics: dict[tuple[str, bytes], list[TxnOffsetCommitRequestPartition]] = {}
        for partition, at in offsets.items():
            key = partition.topic, ids.get(partition, ZERO_UUID)
            topics.setdefault(key, []).append(_offset_row(partition.partition, at))
        has_ids = all(topic_id != ZERO_UUID for _, topic_id in topics)
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group.group_id,
            producer_id=self._manager.producer_id,
            producer_epoch=self._manager.producer_epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=rows)
                for (name, topic_id), rows in topics.items()
            ],
        )
        names = {topic_id: name for name, topic_id in topics}
        refusals = 0

        def made(connection: Connection) -> Message:
            if version >= 2:
                check_serves(connection, TxnOffsetCommitRequest, TXN_OFFSET_COMMIT_VERSION[version])
            if group.member_id and connection.version(TxnOffsetCommitRequest) < GROUP_METADATA_VERSION_MIN:
                raise UnsupportedVersionError(
                    f"{connection.name} accepts no group metadata with a transaction's offsets: pass the group_id alone"
                )
            return request

        def version_max(connection: Connection) -> int:
            serves_ids = connection.serves(TxnOffsetCommitRequest, TXN_OFFSET_COMMIT_BY_ID_FROM)
            by_id = version >= 2 and has_ids and serves_ids
            return TXN_OFFSET_COMMIT_BY_ID_FROM if by_id else TXN_OFFSET_COMMIT_VERSION[version]

        def codes(answer: TxnOffsetCommitResponse) -> Iterable[int]:
            nonlocal refusals
            found = _offset_codes(offsets, answer, names)
            refusals = refusals + 1 if ErrorCode.UNKNOWN_TOPIC_ID in found else 0
            if refusals >= UNKNOWN_ANSWERS:
                gone = list(offsets)[found.index(ErrorCode.UNKNOWN_TOPIC_ID)]
                raise DeletedTopicCommitError(f"{gone.topic}-{gone.partition} was read from a topic that was deleted")
            return found

        await self._ask(
            made,
            f"committing offsets of group {group.group_id!r} in the transaction of {self._id!r}",
            codes,
            key=(group.group_id, GROUP),
            version_max=version_max,
            timeout_ms=timeout_ms,
        )

    async def end(self, *, commit: bool, version: int) -> bool:
        """Commit or abort; retry until the coordinator gives an outcome. True: the answer carried a new epoch
        (KIP-890).
        """
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._manager.producer_id,
            producer_epoch=self._manager.producer_epoch,
            committed=commit,
        )
        what = f"{'commit' if commit else 'abort'} of the transaction of {self._id!r}"
        self.maybe_done = False
        answer: EndTxnResponse = await self._ask(
            lambda _: request, what, _error_code, version_max=lambda _: END_TXN_VERSION[version]
        )
        if answer.producer_id < 0:
            return False
        self._manager.set_producer_id(answer.producer_id, answer.producer_epoch)
        self.in_doubt = False
        return True

    async def _ask(
        self,
        request: Callable[[Connection], Message],
        what: str,
        codes: Callable[[Any], Iterable[int]],
        *,
        key: tuple[str, int] | None = None,
        version_max: Callable[[Connection], int | None] = lambda connection: None,
        timeout_ms: float = FOREVER_MS,
    ) -> Any:
        """The first answer without an error. Without `timeout_ms` the request is repeated until cancelled.

        Raises the first error that is not RETRY in the table of verdicts, KafkaTimeoutError.
        """
        config = self._config
        name, key_type = key or (self._id, TRANSACTION)

        async def attempt(deadline: Deadline) -> Any:
            left_ms = config.request_timeout_ms if timeout_ms == FOREVER_MS else max(deadline.remaining_ms, 1)
            connection = await self._cluster.coordinator_connection(name, key_type, timeout_ms=left_ms)
            if key_type == TRANSACTION:
                self.version = 2 if connection.feature_level(FEATURE) >= 2 else 1
            message = request(connection)
            answer = await self._answer(
                connection, message, min(config.request_timeout_ms, left_ms), version_max(connection)
            )
            code = next((code for code in codes(answer) if code), 0)
            if not code:
                self.last_error = None
                return answer
            why = getattr(answer, "error_message", None)  # a field of semel's own, which other brokers do not send
            right = self._cluster.right(
                Operation.WRITE, transactional_id=self._id, group=name if key_type == GROUP else None
            )
            raise error_for(code, f"{what}: {why}" if why else what, right)

        def on_error(error: KafkaError) -> None:
            self.last_error = error
            self.maybe_done = self.maybe_done or is_unsettled(error)
            if is_lost_coordinator(error) or not isinstance(error, BrokerResponseError):
                self._cluster.forget_coordinator(name, key_type)
            log.debug("%s: trying again: %s", what, error)

        return await self._cluster.retrying(
            attempt,
            timeout_ms=timeout_ms,
            what=what,
            is_retriable=lambda error: verdict_on(error) is ErrorEffect.RETRY,
            on_error=on_error,
            pause_ms_max=_pause_ms_max,
        )

    async def _answer(
        self, connection: Connection, message: Message, timeout_ms: float, version_max: int | None
    ) -> Any:
        answered = False
        try:
            answer = await connection.request(message, timeout_ms=timeout_ms, version_max=version_max)
            answered = True
            return answer
        finally:
            self.in_doubt = self.in_doubt or not answered
            self.maybe_done = self.maybe_done or not answered


def _pause_ms_max(error: KafkaError) -> float:
    is_concurrent = isinstance(error, BrokerResponseError) and error.code == ErrorCode.CONCURRENT_TRANSACTIONS
    return CONCURRENT_PAUSE_MS if is_concurrent else FOREVER_MS


def _error_code(answer: Any) -> Iterable[int]:
    return (answer.error_code,)


def _added(asked: Collection[TopicPartition], answer: AddPartitionsToTxnResponse) -> Iterable[int]:
    """The codes, the actual reason first: after one refused partition the others are OPERATION_NOT_ATTEMPTED."""
    codes = {
        TopicPartition(topic.name, row.partition_index): row.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    }
    return sorted(_complete(asked, codes), key=lambda code: code == ErrorCode.OPERATION_NOT_ATTEMPTED)


def _offset_codes(
    asked: Collection[TopicPartition], answer: TxnOffsetCommitResponse, names: Mapping[bytes, str]
) -> list[int]:
    """names: of the topic ids that were asked for."""
    codes = {
        TopicPartition(topic.name or names.get(topic.topic_id, ""), row.partition_index): row.error_code
        for topic in answer.topics
        for row in topic.partitions
    }
    return _complete(asked, codes)


def _complete(asked: Collection[TopicPartition], codes: Mapping[TopicPartition, int]) -> list[int]:
    """The code of each requested partition. Raises a retriable error when the answer leaves one out."""
    for partition in asked:
        if partition not in codes:
            raise KafkaConnectionError(f"the coordinator left {partition} out of its answer")
    return [codes[partition] for partition in asked]


def _offset_row(index: int, at: OffsetAndMetadata) -> TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequestPartition(
        partition_index=index, committed_offset=at.offset, committed_metadata=at.metadata
    )
