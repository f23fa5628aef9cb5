"""The Producer: `async with Producer(bootstrap_servers=...) as producer: await producer.send("flights", b"...")`.

Names are aiokafka's. Idempotent unless told otherwise: what is acknowledged is stored once, in the order it was sent.
With a `transactional_id`, records and offsets become visible together or not at all:
`async with producer.transaction(): ...`. In a step of a transaction group, together with those of its other members.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import msgspec
from semel_protocol.records import BatchBuilder, record_bytes_max

from semel._config.client import CODEC_OF, ProducerConfig, takes_settings
from semel._consume.commits import Committable, committable
from semel._net.cluster import Cluster
from semel._net.lifecycle import Life
from semel._produce.accumulator import BufferMemory, PartitionQueue
from semel._produce.partitioner import TopicPartitions
from semel._produce.record_batch import Headers, RecordBatch, as_bytes, checked_headers, checked_timestamp
from semel._produce.sender import Sender
from semel._produce.transaction_state import TransactionState
from semel._produce.whole_batch import open_built
from semel._transactions.manager import Transactions
from semel.errors import (
    IllegalOperation,
    IllegalStateError,
    MessageSizeTooLargeError,
    ProducerClosed,
    TransactionAborted,
)
from semel.structs import ConsumerGroupMetadata, GroupStep, PreparedTransaction, RecordMetadata, TopicPartition
from semel.transaction import Transaction

BURST_MS_MAX = 10
"""A caller that sends without ever suspending lets the event loop run this often."""


class Producer:
    """Sends records to topics. `async with` starts and stops it; see `ProducerConfig` for the settings.

    Not for use from several threads; any number of tasks may share one. Records of one task to one partition are
    stored in the order of its `send` calls.
    """

    @takes_settings(ProducerConfig)
    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._cluster = Cluster(config)
        self._life = Life.NEW
        self._topics: dict[str, TopicPartitions] = {}
        self._now_ms = self._cluster.edge.now_ms
        self._key_serializer = config.key_serializer
        self._value_serializer = config.value_serializer
        self._transactions: Transactions | None = None
        self._paused_ms = 0
        self._renew()

    async def start(self) -> None:
        """Reaches the cluster, and takes the transactional_id over if there is one.

        Raises KafkaConnectionError when no bootstrap server answers, and what `init_transactions` raises.
        """
        if self._life is not Life.NEW:
            raise IllegalStateError(f"the producer is {self._life.value}: make a new one")
        self._life = Life.RUNNING
        await self._cluster.start()
        self._cluster.on_change(self._update_topics)
        try:
            await self._open()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Sends what is buffered, at most for delivery_timeout_ms, then closes. Cancelled, it closes at once.

        What could not be stored fails with ProducerClosed. A transaction that is open is aborted; one that is prepared
        is left to its group; one that is being committed is heard out, at most for request_timeout_ms. Harmless when
        already stopped.
        """
        if self._life is Life.STOPPED:
            return
        self._life = Life.STOPPED
        self._topics = {}
        try:
            if self._transactions is not None:
                await self._transactions.close()
            elif self._started is not None:
                await self._started.flush()
        finally:
            if self._started is not None:
                await self._started.close()
            await self._cluster.stop()

    async def __aenter__(self) -> Producer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Buffers a record and returns the future of its place in the log, without waiting for it.

        Waits only while the topic's metadata is not known yet or buffer_memory is used up, at most max_block_ms for
        each. Cancelling `send` leaves nothing behind; cancelling the future does not recall the record.

        Raises KafkaTimeoutError, MessageSizeTooLargeError, ProducerClosed, TypeError for what is not bytes (set a
        serializer), ValueError for a timestamp out of range; with a transactional_id IllegalOperation outside of a
        transaction, TransactionHasFailed in one that failed, ProducerFenced.
        The future raises KafkaTimeoutError after delivery_timeout_ms, or what the broker refused with.
        """
        if self._key_serializer is not None:
            key = self._key_serializer(key)
        if self._value_serializer is not None:
            value = self._value_serializer(value)
        if type(value) is not bytes or headers is not None or (key is not None and type(key) is not bytes):
            key, value, headers = as_bytes("key", key), as_bytes("value", value), checked_headers(headers)
        topic_partitions = self._topics.get(topic)
        if topic_partitions is None:
            topic_partitions = await self._find_topic(topic)
        queue = topic_partitions.choose(key) if partition is None else topic_partitions.queue(partition)
        if timestamp_ms is None:
            timestamp_ms = self._now_ms()
            if not 0 <= timestamp_ms - self._paused_ms < BURST_MS_MAX:
                await self._let_others_run()
        else:
            timestamp_ms = checked_timestamp(timestamp_ms)
        if self._transaction is not None:
            self._transaction.check_open()
        waiting = queue.waiting
        if waiting:
            batch = waiting[-1]
            if not batch.closed:
                future = batch.append(timestamp_ms, key, value, headers or ())
                if future is not None:
                    return future
        moves = partition is None and key is None and topic_partitions.may_move
        return await self._send_in_new_batch(
            topic_partitions if moves else None, queue, timestamp_ms, key, value, headers or ()
        )

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> RecordMetadata:
        """Sends a record and waits until it is stored. Raises what `send` and its future raise."""
        future = await self.send(topic, value, key, partition, timestamp_ms, headers)
        return await future

    async def flush(self) -> None:
        """Waits until everything sent so far is stored or has failed; failures are for their futures to tell."""
        await self._sender.flush()

    async def partitions_for(self, topic: str) -> set[int]:
        """The partitions of a topic. Raises KafkaTimeoutError when it does not appear within max_block_ms."""
        if self._life is not Life.RUNNING:
            raise ProducerClosed(f"the producer is {self._life.value}")
        return {row.partition for row in (await self._cluster.wait_for_topic(topic)).partitions}

    def create_batch(self) -> RecordBatch:
        """An empty batch to fill by hand and send with `send_batch`."""
        return RecordBatch(self._config, self._now_ms)

    async def send_batch(self, batch: RecordBatch, topic: str, *, partition: int) -> asyncio.Future[RecordMetadata]:
        """Buffers a batch filled by hand; the future tells the place of its first record.

        Raises as `send` does, and IllegalOperation for a batch that is empty or was sent before.
        """
        return await self._send_built(batch.hand_over(), topic, partition, batch.first_timestamp_ms)

    async def send_encoded(
        self,
        topic: str,
        partition: int,
        records: bytes | bytearray | memoryview,
        count: int,
        first_timestamp_ms: int,
        max_timestamp_ms: int,
    ) -> asyncio.Future[RecordMetadata]:
        """Buffers the records of a batch that are encoded already; the future tells the place of the first one.

        records: what stands behind the header of an uncompressed batch (KIP-98), with offset deltas 0 to count - 1 and
        timestamps counted from the first one's. They are believed, and compressed as the producer does; leave the
        buffer as it is until the future is done. Raises as `send` does.
        """
        builder = BatchBuilder(CODEC_OF[self._config.compression_type])
        builder.fill(records, count, checked_timestamp(first_timestamp_ms), checked_timestamp(max_timestamp_ms))
        return await self._send_built(builder, topic, partition, first_timestamp_ms)

    # Transactions

    async def init_transactions(self) -> None:
        """Takes the transactional_id over, which `start` has done already: harmless.

        Raises KafkaTimeoutError (max_block_ms), InvalidTransactionTimeout, TransactionalIdAuthorizationFailed.
        """
        await self._transactional.init()

    async def begin_transaction(self) -> None:
        """From here on, what is sent becomes visible with `commit_transaction`. Asks the brokers for nothing.

        Raises IllegalStateError inside a transaction, and when nobody has heard yet what became of the last commit;
        TransactionHasFailed until the failed one is aborted; ProducerFenced.
        """
        await self._transactional.begin()

    async def commit_transaction(self) -> None:
        """Waits until everything sent is stored, and makes it visible. Nothing was sent: nothing happens.

        Raises TransactionHasFailed when it can only be aborted, ProducerFenced (which says who did), and
        KafkaTimeoutError after max_block_ms: then the commit goes on by itself. Call it again to hear the outcome, also
        when it was cancelled; or call `abort_transaction`, which finds out what became of the commit.
        """
        await self._transactional.commit()

    async def abort_transaction(self) -> None:
        """Makes what was sent in this transaction invisible for good; also what is still buffered.

        Raises TransactionWasCommitted when a commit that failed to answer has taken effect, KafkaTimeoutError after
        max_block_ms (call it again to hear the outcome), ProducerFenced (the transaction was aborted for us).
        """
        await self._transactional.abort()

    def transaction(self) -> Transaction:
        """`async with producer.transaction():` begins, and commits at the end, or aborts when an exception leaves."""
        return Transaction(self._transactional)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, Committable], group_id: str | ConsumerGroupMetadata
    ) -> None:
        """Commits positions of a group (of the *next* records to read) with this transaction, or not at all.

        With `consumer.group_metadata()` instead of the group's id the offsets of a consumer that has lost its
        partitions are refused (KIP-447). Waits until the group's coordinator has them.

        Raises CommitFailedError when the group has moved on, KafkaTimeoutError (max_block_ms), ProducerFenced: the
        transaction can only be aborted then. IllegalOperation outside of a transaction, ValueError for a bad offset.
        """
        group = ConsumerGroupMetadata(group_id) if isinstance(group_id, str) else group_id
        if not isinstance(group, ConsumerGroupMetadata) or not group.group_id:
            raise ValueError(f"group_id={group_id!r}: give the group's id, or consumer.group_metadata()")
        positions = {TopicPartition(*partition): committable(at) for partition, at in offsets.items()}
        await self._transactional.send_offsets(positions, group)

    # Transaction groups

    async def join(self, step: GroupStep) -> None:
        """Takes the transactional_id over in this step of its group; also when this producer has ended by an error.

        What is open of an older step is given up, its records fail with TransactionAborted. Connections stay. Raises as
        `start` does, and KafkaConfigurationError for another group's step: it may be tried again.
        """
        config = msgspec.structs.replace(self._config, transaction_group_step=step)
        await self._transactional.leave()
        if self._started is not None:
            self._started.end(TransactionAborted(f"the producer has joined step {step.epoch} of its group"))
            await self._started.close()
        self._config = config
        self._renew()
        await self._open()

    async def prepare_transaction(self) -> PreparedTransaction | None:
        """Waits until everything sent is stored, and makes it the group's to decide: for `TransactionGroup.commit`.

        None when nothing was sent. What remains to do is `abort_transaction`, `join` or `stop`, which all leave the
        decision to the group. Cancelled, it may be called again. Raises TransactionHasFailed when it can only be
        aborted, ProducerFenced when the step is over (which says who has begun another one, and when).
        """
        return await self._transactional.prepare()

    # Inside

    def _renew(self) -> None:
        """Nothing is left of an earlier step."""
        config = self._config
        self._topics = {}
        self._memory = BufferMemory(self._cluster.edge, config.buffer_memory)
        self._started: Sender | None = None
        self._transaction: TransactionState | None = None
        if config.transactional_id is not None:
            self._transaction = TransactionState(config.transactional_id, config.transaction_group_step)

    async def _open(self) -> None:
        self._started = Sender(self._cluster, self._config, self._memory, self._transaction)
        if self._transaction is not None:
            self._transactions = Transactions(self._cluster, self._config, self._started, self._transaction)
            await self._transactions.init()

    @property
    def _transactional(self) -> Transactions:
        if self._transaction is None:
            raise IllegalOperation("this producer has no transactional_id")
        if self._transactions is None or self._life is not Life.RUNNING:
            raise ProducerClosed(f"the producer is {self._life.value}")
        return self._transactions

    @property
    def _sender(self) -> Sender:
        if self._started is None or self._life is not Life.RUNNING:
            raise ProducerClosed(f"the producer is {self._life.value}")
        if self._transaction is not None:
            self._transaction.check_not_ended()
        self._started.check_usable()
        return self._started

    async def _send_in_new_batch(
        self,
        moves: TopicPartitions | None,
        queue: PartitionQueue,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> asyncio.Future[RecordMetadata]:
        """Opens a batch for a record that fits into none; `moves`: in whichever partition is next."""
        size = record_bytes_max(key, value, headers)
        self._check_size(size)
        if queue.open_batch is not None:
            queue.close_batch()
            self._sender.place(queue)
            # A full batch goes out before the next one opens; otherwise a busy caller would keep the loop from sending.
            await asyncio.sleep(0)
        if moves is not None:
            queue = moves.next_sticky()
        reserved = max(size, self._config.max_batch_size)
        if not self._memory.try_reserve(reserved):
            await self._memory.reserve(reserved, self._config.max_block_ms)
        try:
            open_batch = queue.open_batch
            if open_batch is not None:  # opened by another task meanwhile, or by the records of a key
                future = open_batch.append(timestamp_ms, key, value, headers)
                if future is not None:
                    self._memory.release(reserved)
                    return future
            future = self._sender.open_batch(queue, reserved).append(timestamp_ms, key, value, headers)
        except BaseException:
            self._memory.release(reserved)
            raise
        assert future is not None, "the first record of a batch always fits"
        return future

    async def _send_built(
        self, builder: BatchBuilder, topic: str, partition: int, first_timestamp_ms: int
    ) -> asyncio.Future[RecordMetadata]:
        self._check_size(builder.size_bytes)
        queue = (self._topics.get(topic) or await self._find_topic(topic)).queue(partition)
        memory = self._memory
        await memory.reserve(builder.size_bytes, self._config.max_block_ms)
        return open_built(lambda: self._sender, queue, memory, builder, first_timestamp_ms)

    async def _let_others_run(self) -> None:
        await asyncio.sleep(0)
        self._paused_ms = self._now_ms()

    def _check_size(self, size_bytes: int) -> None:
        for name in ("max_request_size", "buffer_memory"):
            if size_bytes > getattr(self._config, name):
                raise MessageSizeTooLargeError(
                    f"a record or batch of up to {size_bytes} bytes is larger than {name}={getattr(self._config, name)}"
                )

    async def _find_topic(self, topic: str) -> TopicPartitions:
        sender = self._sender
        metadata = await self._cluster.wait_for_topic(topic)
        if self._sender is not sender:
            raise TransactionAborted("the producer has joined another step of its group since")
        found = self._topics.get(topic)
        if found is None:
            found = TopicPartitions(sender, self._cluster.edge.rng, self._config.partitioner, topic)
            found.update(metadata)
            self._topics[topic] = found
        return found

    def _update_topics(self) -> None:
        for topic, found in self._topics.items():
            metadata = self._cluster.metadata.topics.get(topic)
            if metadata is not None and metadata.partitions:
                found.update(metadata)
