"""The Producer: sends records to topics, idempotently by default, and in transactions with a `transactional_id`.

    async with Producer(bootstrap_servers="localhost:9092") as producer:
        await producer.send_and_wait("flights", b"...")

Names are those of aiokafka. An idempotent producer stores each acknowledged record once, in the order of the `send`
calls (KIP-98). With a `transactional_id`, records and committed offsets become visible together or not at all (`async
with producer.transaction(): ...`). In a step of a transaction group, the transactions of all members commit together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack

import msgspec
from semel_protocol.acls import Operation
from semel_protocol.records import BatchBuilder, record_bytes_max

from semel._config.arguments import argument, checked, text, whole
from semel._config.client import CODEC_OF, describe_settings
from semel._config.producer import ProducerConfig
from semel._config.settings import INT32_MAX, made, named_only
from semel._consume.commits import Committable, committable
from semel._net.cluster import Cluster
from semel._net.lifecycle import ClientState, Lifecycle
from semel._produce.accumulator import BufferMemory, Headers, PartitionQueue
from semel._produce.counters import ProducerCounters
from semel._produce.metrics import producer_metrics
from semel._produce.partitioner import TopicQueues
from semel._produce.record_batch import (
    GivenHeaders,
    RecordBatch,
    as_buffer,
    as_bytes,
    checked_headers,
    checked_timestamp,
)
from semel._produce.sender import Sender
from semel._produce.transaction_state import TransactionState
from semel._transactions.manager import ProducerTransactions
from semel._type_variables import UNCHANGED, K_contra, K_in, V_contra, V_in
from semel.errors import (
    IllegalOperation,
    MessageSizeTooLargeError,
    ProducerClosed,
    ProducerNotStarted,
    TransactionAborted,
)
from semel.structs import ConsumerGroupMetadata, GroupStep, PreparedTransaction, RecordMetadata, TopicPartition
from semel.transaction import Transaction

if TYPE_CHECKING:
    from semel._config.producer import ProducerKeywords

BURST_MS_MAX = 10
"""The event loop runs at least this often while one task calls `send` and never suspends."""


class Producer(Generic[K_contra, V_contra]):
    """Sends records to topics. `async with` starts and stops it. `Producer[K, V]` takes keys K and values V.

    async with Producer(bootstrap_servers="localhost:9092", linger_ms=5) as producer:
        stored = await producer.send_and_wait("flights", b"UA 1545", key=b"JFK")
        print(stored.partition, stored.offset)

    `help(Producer.__init__)` lists the settings, and docs/client-settings.md.

    Any number of tasks of one event loop may share a producer. It must not be used from several threads. Records of one
    task for one partition are stored in the order of its `send` calls.
    """

    @named_only
    def __init__(
        self: Producer[K_in, V_in],
        *,
        key_serializer: Callable[[K_in], bytes | None] | None = UNCHANGED,  # type: ignore[assignment]
        value_serializer: Callable[[V_in], bytes | None] | None = UNCHANGED,  # type: ignore[assignment]
        **settings: Unpack[ProducerKeywords],
    ) -> None:
        given = {**settings, "key_serializer": key_serializer, "value_serializer": value_serializer}
        config = self._config = made(ProducerConfig, given)
        self._cluster = Cluster(config)
        self._counters = ProducerCounters(self._cluster.edge.monotonic)
        self._life = Lifecycle(self, "producer", config.client_id, parts=self, stopped=ProducerClosed)
        self._topics: dict[str, TopicQueues] = {}
        self._now_ms = self._cluster.edge.now_ms
        self._key_serializer = config.key_serializer
        self._value_serializer = config.value_serializer
        self._transactions: ProducerTransactions | None = None
        self._paused_ms = 0
        self._renew()

    describe_settings(__init__, ProducerConfig)

    async def start(self) -> None:
        """Connect to the cluster. With a transactional_id, also initialises it, as `init_transactions` does.

        Raises KafkaConnectionError when no bootstrap server answers, and what `init_transactions` raises.
        """
        await self._life.start()

    async def _open(self) -> None:
        await self._cluster.start()
        self._cluster.on_change(self._update_topics)
        await self._begin_step()

    async def stop(self) -> None:
        """Send the buffered records, for at most delivery_timeout_ms, then close. Another call waits for the first.

        The futures of records that are not stored raise ProducerClosed. An open transaction is aborted. A prepared
        transaction is left to the driver of its group. A commit or abort in progress is awaited for at most
        request_timeout_ms.

        If this call is cancelled, all of this continues without the caller for at most a second.
        """
        self._topics = {}
        await self._life.stop()

    async def _close(self) -> None:
        if self._transactions is not None:
            await self._transactions.close()
        elif self._started is not None:
            await self._started.flush()

    async def _last_words(self) -> None:
        """The coordinator aborts an open transaction after transaction_timeout_ms."""

    def _hurry(self) -> None:
        """Records and the end of a transaction may still be stored."""

    def _cut(self) -> list[asyncio.Task[Any]]:
        tasks: list[asyncio.Task[Any]] = [] if self._transactions is None else self._transactions.cut()
        if self._started is not None:
            tasks += self._started.cut()
        return [*tasks, *self._cluster.cut()]

    def _losses(self) -> str:
        count = 0 if self._started is None else self._started.pending_records
        return f"{count} {'record was' if count == 1 else 'records were'} not stored" if count else ""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def send(
        self,
        topic: str,
        value: V_contra = None,  # type: ignore[assignment]
        key: K_contra = None,  # type: ignore[assignment]
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: GivenHeaders | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Buffers a record and returns the future of its RecordMetadata, without waiting for the broker.

        Waits only for the topic's metadata and for free buffer_memory, each for at most max_block_ms. Cancelling `send`
        leaves nothing behind. Cancelling the future does not recall the record.

        value, key: what the serializers take; without serializers bytes, or None for null. Records of one key go to one
        partition.
        partition: its number, from 0. None lets the partitioner choose.
        timestamp_ms: milliseconds since the epoch; None is the current time.
        headers: an iterable of pairs of a name and bytes or None, in the order in which readers get them.

        Raises KafkaTimeoutError, MessageSizeTooLargeError, ProducerClosed, InvalidTopicError, TypeError for a key or
        value that is not bytes (set a serializer) and other arguments of a wrong type, ValueError for a timestamp out
        of range, and what a serializer or the partitioner raises. With a transactional_id also IllegalOperation
        outside of a transaction, TransactionHasFailed when the transaction can only be aborted, and ProducerFenced.
        The future raises KafkaTimeoutError after delivery_timeout_ms, or the exception of the broker's error code.
        """
        key_bytes: Any = key if self._key_serializer is None else self._key_serializer(key)
        value_bytes: Any = value if self._value_serializer is None else self._value_serializer(value)
        if (
            type(value_bytes) is not bytes
            or headers is not None
            or (key_bytes is not None and type(key_bytes) is not bytes)
        ):
            key_bytes = as_bytes("key", key_bytes, self._key_serializer)
            value_bytes = as_bytes("value", value_bytes, self._value_serializer)
            headers = checked_headers(headers)
        if type(topic) is not str:
            topic = text("topic", topic)
        topic_partitions = self._topics.get(topic)
        if topic_partitions is None:
            topic_partitions = await self._find_topic(topic)
        queue = topic_partitions.choose(key_bytes) if partition is None else topic_partitions.queue(partition)
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
                future = batch.append(timestamp_ms, key_bytes, value_bytes, headers or ())
                if future is not None:
                    return future
        moves = partition is None and key_bytes is None and topic_partitions.may_move
        return await self._send_in_new_batch(
            topic_partitions if moves else None, queue, timestamp_ms, key_bytes, value_bytes, headers or ()
        )

    async def send_and_wait(
        self,
        topic: str,
        value: V_contra = None,  # type: ignore[assignment]
        key: K_contra = None,  # type: ignore[assignment]
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: GivenHeaders | None = None,
    ) -> RecordMetadata:
        """Send a record and wait until it is stored. Arguments are those of `send`; raises what it and its future
        raise.
        """
        future = await self.send(topic, value, key, partition, timestamp_ms, headers)
        return await future

    async def flush(self) -> None:
        """Wait until every record sent so far is stored or has failed. Failures are raised by the futures only."""
        await self._sender.flush()

    @checked
    async def partitions_for(self, topic: str) -> set[int]:
        """The partition numbers of a topic. Raises KafkaTimeoutError when the topic does not appear within
        max_block_ms.
        """
        if not self._life.is_running:
            raise self._not_running()
        found = await self._cluster.wait_for_topic(topic, operation=Operation.WRITE)
        return {row.partition for row in found.partitions}

    def metrics(self) -> dict[str, dict[str, float]]:
        """A snapshot of this producer's counters: group -> name -> number. Names are those of Kafka's Java client.

        The groups are `producer-metrics` and `producer-topic-metrics.<topic>`. Totals count from the creation of the
        producer. A rate is the difference of two snapshots. docs/client-metrics.md lists all names. Works at any time,
        also before `start` and after `stop`.
        """
        return producer_metrics(
            self._cluster, self._memory, self._counters, is_transactional=self._transaction is not None
        )

    def create_batch(self) -> RecordBatch[K_contra, V_contra]:
        """An empty batch for `send_batch`. The caller fills it with `append`. Raises ProducerClosed after `stop`."""
        self._life.check_not_stopped()
        return RecordBatch(self._config, self._now_ms)

    @checked
    async def send_batch(
        self, batch: RecordBatch[Any, Any], topic: str, *, partition: int | None
    ) -> asyncio.Future[RecordMetadata]:
        """Buffers a batch that the caller has filled. The future is the RecordMetadata of its first record.

        batch: made by `create_batch`; it can be sent once. partition: its number, from 0; None lets the partitioner
        choose one for a record without key.

        Raises as `send`, and IllegalOperation for a batch that is empty or was sent before.
        """
        builder = batch.hand_over()
        try:
            return await self._send_built(builder, topic, partition, batch.first_timestamp_ms)
        except BaseException:
            batch.take_back()
            raise

    @checked
    async def send_encoded(
        self,
        topic: str,
        partition: int | None,
        records: bytes | bytearray | memoryview,
        count: int,
        first_timestamp_ms: int,
        max_timestamp_ms: int,
    ) -> asyncio.Future[RecordMetadata]:
        """Buffers records that are already encoded. The future is the RecordMetadata of the first one.

        partition: its number, from 0; None lets the partitioner choose one for the whole batch, as for a record without
        a key. count: the number of records.
        records: the bytes after the header of an uncompressed batch (KIP-98), with offset deltas 0 to count - 1 and
        timestamp deltas from the first timestamp. The records are not checked: wrong ones hold back the partition until
        delivery_timeout_ms. They are compressed with
        `compression_type`. The buffer must not change until the future is done.
        first_timestamp_ms, max_timestamp_ms: milliseconds since the epoch.

        Raises as `send`.
        """
        builder = BatchBuilder(CODEC_OF[self._config.compression_type])
        builder.fill(
            as_buffer("records", records),
            whole("count", count, 1, INT32_MAX),
            checked_timestamp(first_timestamp_ms, "first_timestamp_ms"),
            checked_timestamp(max_timestamp_ms, "max_timestamp_ms"),
        )
        return await self._send_built(builder, topic, partition, first_timestamp_ms)

    # Transactions

    async def init_transactions(self) -> None:
        """Initialise the transactional_id: fence older producers with it and abort their open transaction. `start`
        does this, so the call has no effect.

        Raises KafkaTimeoutError (max_block_ms), InvalidTransactionTimeout, TransactionalIdAuthorizationFailed.
        """
        await self._transactional.init()

    async def begin_transaction(self) -> None:
        """Begin a transaction. Records sent from here on become visible with `commit_transaction`. Sends no request,
        except for a new producer epoch where one is needed.

        Raises IllegalStateError inside a transaction, or while the outcome of the last commit is not known;
        TransactionHasFailed until the failed transaction is aborted; ProducerFenced.
        """
        await self._transactional.begin()

    async def commit_transaction(self) -> None:
        """Wait until every record is stored, then commit the transaction. A transaction without records sends no
        request.

        Raises TransactionHasFailed when the transaction can only be aborted, ProducerFenced (its message names the
        other producer), and KafkaTimeoutError after max_block_ms. After a timeout or a cancellation the commit
        continues. To learn the outcome, call `commit_transaction` again, or call `abort_transaction`, which aborts
        unless the commit has taken effect.
        """
        await self._transactional.commit()

    async def abort_transaction(self) -> None:
        """Abort the transaction. Its records, buffered ones included, never become visible to read_committed
        consumers.

        Raises TransactionWasCommitted when an earlier commit without an answer has taken effect, KafkaTimeoutError
        after max_block_ms (call it again to learn the outcome), ProducerFenced (the coordinator has aborted the
        transaction).
        """
        await self._transactional.abort()

    def transaction(self) -> Transaction:
        """A context manager: begins a transaction, commits it at the end, aborts it when the block raises.

        async with producer.transaction():
            await producer.send("flights", b"...")
            await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        """
        return Transaction(self._transactional)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, Committable], group_id: str | ConsumerGroupMetadata
    ) -> None:
        """Commit offsets of a consumer group with this transaction. Waits until the group's coordinator has stored
        them.

        offsets: for each partition the offset of the *next* record to read.
        group_id: the group's id, or `consumer.group_metadata()`. With the metadata, the coordinator refuses the offsets
        of a consumer that has lost its partitions (KIP-447).

        Raises CommitFailedError when the group has rebalanced, KafkaTimeoutError (max_block_ms), ProducerFenced; after
        these the transaction can only be aborted. Raises IllegalOperation outside of a transaction, ValueError for a
        negative offset.
        """
        transactions = self._transactional
        transactions.check_open()
        places = argument("offsets", offsets, Mapping[TopicPartition, Committable])
        given = argument("group_id", group_id, str | ConsumerGroupMetadata | None)
        group = ConsumerGroupMetadata(given) if isinstance(given, str) else given
        if group is None or not group.group_id:
            raise ValueError(f"group_id={group_id!r}: give the group's id, or consumer.group_metadata()")
        positions = {partition: committable(at) for partition, at in places.items()}
        await transactions.send_offsets(positions, group)

    # Transaction groups

    @checked
    async def join(self, step: GroupStep) -> None:
        """Initialise the transactional_id for this step of its transaction group. Also works after this producer has
        ended by an error.

        step: what `TransactionGroup.begin` returned.
        The open transaction of an older step is given up; the futures of its records raise TransactionAborted.
        Connections stay open. Raises as `start`, and KafkaConfigurationError for a step of another group. The call may
        be repeated after an error.
        """
        transactions = self._transactional
        config = msgspec.structs.replace(self._config, transaction_group_step=step)
        await transactions.leave()
        if self._started is not None:
            self._started.end(TransactionAborted(f"the producer has joined step {step.epoch} of its group"))
            await self._started.close()
        self._config = config
        self._renew()
        await self._begin_step()

    async def prepare_transaction(self) -> PreparedTransaction | None:
        """Wait until every record is stored and leave the decision to the driver: the result is for
        `TransactionGroup.commit`.

        None when nothing was sent. After it, call `abort_transaction`, `join` or `stop`; the decision stays with the
        group. After a cancellation it may be called again. Raises TransactionHasFailed when the transaction can only be
        aborted, ProducerFenced when the step is over (its message says who began the next step, and when).
        """
        return await self._transactional.prepare()

    # Inside

    def _renew(self) -> None:
        """Create the state of a new step; nothing of an earlier step remains."""
        config = self._config
        self._topics = {}
        self._memory = BufferMemory(self._cluster.edge, config.buffer_memory, self._cluster.explained)
        self._started: Sender | None = None
        self._transaction: TransactionState | None = None
        if config.transactional_id is not None:
            self._transaction = TransactionState(config.transactional_id, config.transaction_group_step)

    async def _begin_step(self) -> None:
        self._started = Sender(self._cluster, self._config, self._memory, self._counters, self._transaction)
        if self._transaction is not None:
            self._transactions = ProducerTransactions(
                self._cluster, self._config, self._started, self._transaction, self._counters.transactions
            )
            await self._transactions.init()

    @property
    def _transactional(self) -> ProducerTransactions:
        if self._transaction is None:
            raise IllegalOperation("this producer has no transactional_id")
        if self._transactions is None or not self._life.is_running:
            raise self._not_running()
        return self._transactions

    def _not_running(self) -> ProducerClosed:
        kind = ProducerNotStarted if self._life.state is ClientState.NEW else ProducerClosed
        return kind(f"the producer is {self._life.state.value}")

    @property
    def _sender(self) -> Sender:
        if self._started is None or not self._life.is_running:
            raise self._not_running()
        if self._transaction is not None:
            self._transaction.check_not_ended()
        self._started.check_usable()
        return self._started

    async def _send_in_new_batch(
        self,
        moves: TopicQueues | None,
        queue: PartitionQueue,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> asyncio.Future[RecordMetadata]:
        """Open a batch for a record that fits into no open one. moves: not None when the record may go to any
        partition.
        """
        size = record_bytes_max(key, value, headers)
        self._check_size(size)
        if queue.open_batch is not None:
            queue.close_batch()
            self._sender.place(queue)
            # Let the loop send the full batch before the next one opens; a busy task would keep it from sending.
            await asyncio.sleep(0)
        if moves is not None:
            queue = moves.next_sticky()
        reserved = max(size, self._config.max_batch_size)
        if not self._memory.try_reserve(reserved):
            await self._memory.reserve(reserved, self._config.max_block_ms)
        try:
            open_batch = queue.open_batch
            if open_batch is not None:  # opened by another task meanwhile, or by records with a key
                future = open_batch.append(timestamp_ms, key, value, headers)
                if future is not None:
                    self._memory.release(reserved)
                    return future
            return self._sender.open_batch(queue, reserved, (timestamp_ms, key, value, headers))
        except BaseException:
            self._memory.release(reserved)
            raise

    async def _send_built(
        self, builder: BatchBuilder, topic: str, partition: int | None, first_timestamp_ms: int
    ) -> asyncio.Future[RecordMetadata]:
        self._check_size(builder.size_bytes)
        found = self._topics.get(topic) or await self._find_topic(topic)
        queue = found.choose_for_batch() if partition is None else found.queue(partition)
        memory, reserved = self._memory, builder.size_bytes
        await memory.reserve(reserved, self._config.max_block_ms)
        try:
            return self._sender.add_built(queue, builder, first_timestamp_ms)
        except BaseException:
            memory.release(reserved)
            raise

    async def _let_others_run(self) -> None:
        await asyncio.sleep(0)
        self._paused_ms = self._now_ms()

    def _check_size(self, size_bytes: int) -> None:
        for name in ("max_request_size", "buffer_memory"):
            if size_bytes > getattr(self._config, name):
                raise MessageSizeTooLargeError(
                    f"a record or batch of up to {size_bytes} bytes is larger than {name}={getattr(self._config, name)}"
                )

    async def _find_topic(self, topic: str) -> TopicQueues:
        sender = self._sender
        metadata = await self._cluster.wait_for_topic(text("topic", topic), operation=Operation.WRITE)
        if self._sender is not sender:
            raise TransactionAborted("the producer has joined another step of its group; send the record again")
        found = self._topics.get(topic)
        if found is None:
            found = TopicQueues(sender, self._cluster.edge.rng, self._config.partitioner, topic)
            found.update(metadata)
            self._topics[topic] = found
        return found

    def _update_topics(self) -> None:
        for topic, found in self._topics.items():
            metadata = self._cluster.metadata.topics.get(topic)
            if metadata is not None and metadata.partitions:
                found.update(metadata)
