"""The Sender: builds Produce requests from waiting batches and applies the answers.

One method (`run`) looks at every broker with data to send and a free request. It groups the first batch of each ready
partition into one request. It runs when a batch opens or fills, when an answer arrives, and when a timer is due. There
is no task for a record, batch or request.

With linger_ms=0 full batches are pipelined. A batch with room waits until no request is in flight to its broker, so
records gather during one round trip.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from semel_protocol.backoff import Backoff
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k00_produce import (
    ProduceResponse,
    ProduceResponsePartition,
)
from semel_protocol.records import BatchBuilder

from semel._config.client import CODEC_OF
from semel._config.producer import ProducerConfig
from semel._net.cluster import Cluster
from semel._net.connection import Connection
from semel._net.leader_watch import LeaderWatch
from semel._net.pool import ConnectionPurpose
from semel._net.retry import LOGIN_REFUSED
from semel._net.signal import Signal
from semel._produce.accumulator import Batch, BatchState, BufferMemory, Countdown, Headers, PartitionQueue
from semel._produce.counters import ProducerCounters
from semel._produce.linger import Linger
from semel._produce.node import NO_LEADER, LeaderQueue, any_batch_unreachable
from semel._produce.outcomes import BatchOutcomes
from semel._produce.producer_id import ProducerIdSource
from semel._produce.request import produce_request, produce_version_max
from semel._produce.sequences import TransactionManager
from semel._produce.transaction_state import TransactionState
from semel.errors import KafkaError, ProducerClosed, TransactionAborted
from semel.structs import RecordMetadata

log = logging.getLogger(__name__)

NOT_ANSWERED = ProduceResponsePartition(error_code=ErrorCode.REQUEST_TIMED_OUT)
"""Stands for a partition that a broker leaves out of its answer."""
LEAVING_GRACE_MS = 2_000
"""How long to wait for answers of a replaced leader. Later batches of the partition wait as well."""


class Sender:
    """Sends the batches of one producer. It needs no start: it runs whenever there is something to do, until `close`.

    manager: the producer's id and sequences, None without idempotence.
    transaction: the state of a transactional producer, which gets its producer id from its coordinator.
    enrol: called when partitions must be added to the transaction first.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        memory: BufferMemory,
        counters: ProducerCounters,
        transaction: TransactionState | None = None,
    ) -> None:
        self._counters = counters
        self.fatal: KafkaError | None = None
        self.manager = TransactionManager() if config.enable_idempotence else None
        self.enrol: Callable[[], None] = lambda: None
        self._transaction = transaction
        self._cluster, self._config, self._memory = cluster, config, memory
        self._edge, self._loop = cluster.edge, asyncio.get_running_loop()
        self._outcomes = BatchOutcomes(cluster, config, memory, self.manager, transaction)
        self._identity: ProducerIdSource | None = None
        if self.manager is not None and transaction is None:
            self._identity = ProducerIdSource(cluster, config, self.manager, found=self.wake, failed=self.end)
        self._answers = Signal()
        self._codec, self._acks = CODEC_OF[config.compression_type], config.required_acks
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._open: dict[PartitionQueue, None] = {}
        self._nodes: dict[int, LeaderQueue] = {}
        self._linger = Linger(self._loop, config.linger_ms, self._lingered)
        self._scheduled: asyncio.Handle | None = None
        self._expiry: asyncio.TimerHandle | None = None
        missed = partial(any_batch_unreachable, self._nodes)
        self._leader_watch = LeaderWatch(self._edge, config.retry_backoff_ms, missed, cluster.request_refresh)
        cluster.on_change(self._rebind)

    # Calls of the producer

    def queue(self, topic: str, partition: int) -> PartitionQueue:
        """The queue of a partition. It lives as long as the producer."""
        found = self._queues.get((topic, partition))
        if found is None:
            found = self._queues[topic, partition] = PartitionQueue(
                topic, partition, self._loop, self._counters.topic(topic)
            )
            found.node_id = self._cluster.metadata.leader(topic, partition)
        return found

    def open_batch(
        self, queue: PartitionQueue, reserved_bytes: int, record: tuple[int, bytes | None, bytes | None, Headers]
    ) -> asyncio.Future[RecordMetadata]:
        """Put a new batch with this record at the end of the queue. Its memory is reserved already.

        record: as the arguments of `Batch.append`. An exception leaves no batch behind.
        """
        batch = self._new_batch(queue, BatchBuilder(self._codec, self._config.max_batch_size), reserved_bytes)
        future = batch.append(*record)
        assert future is not None, "the first record of a batch always fits"
        self._enqueue(batch)
        return future

    def add_built(
        self, queue: PartitionQueue, builder: BatchBuilder, first_timestamp_ms: int
    ) -> asyncio.Future[RecordMetadata]:
        """Put a batch that is built already at the end of the queue. The future is the place of its first record."""
        batch = self._new_batch(queue, builder, builder.size_bytes)
        future: asyncio.Future[RecordMetadata] = self._loop.create_future()
        batch.futures.append(future)
        batch.timestamps.append(first_timestamp_ms)
        batch.closed = True
        self._enqueue(batch)
        return future

    def _new_batch(self, queue: PartitionQueue, builder: BatchBuilder, reserved_bytes: int) -> Batch:
        """A batch that is in no queue yet. Raises when the producer takes no records now."""
        if self._transaction is not None:
            self._transaction.check_open()
        self.check_usable()
        if self._queues.get((queue.topic, queue.partition)) is not queue:
            raise TransactionAborted("the producer has joined another step of its group; send the record again")
        deadline = self._edge.monotonic() + self._config.delivery_timeout_ms / 1000
        return Batch(queue, builder, deadline, reserved_bytes)

    def _enqueue(self, batch: Batch) -> None:
        queue = batch.queue
        queue.close_batch()
        queue.waiting.append(batch)
        self._open[queue] = None
        if self._expiry is None:
            self._expiry = self._loop.call_later(self._config.delivery_timeout_ms / 1000, self._on_expiry)
        self._linger.add(batch)
        self.place(queue)

    def place(self, queue: PartitionQueue) -> None:
        """The queue has changed: lists it at its node and runs soon."""
        if not queue.waiting or queue.paused:
            return
        node = self._node(queue.node_id)
        node.place(queue)
        if node.is_unreachable:
            self._leader_watch.leader_missing()
        self.wake()

    async def flush(self) -> None:
        """Wait until every record sent so far is stored or has failed."""
        await self.flushed()

    def flushed(self) -> asyncio.Future[None]:
        """Send waiting batches without delay. The future is done when every record sent so far is stored or has
        failed.
        """
        countdown = Countdown(self._loop)
        for queue in self._open_queues():
            for batch in (*queue.sent, *queue.waiting):
                batch.due = True
                if batch.futures:
                    countdown.count(batch)
            self.place(queue)
        if not countdown.left:
            countdown.future.set_result(None)
        self.run()
        return countdown.future

    def check_usable(self) -> None:
        """Raise ProducerClosed, with the cause, when this producer has ended."""
        if self.fatal is not None:
            raise ProducerClosed(f"the producer has ended: {self.fatal.message}") from self.fatal

    async def close(self) -> None:
        """As `cut`. Waits until the task has ended."""
        if tasks := self.cut():
            await asyncio.wait(tasks)

    def cut(self) -> list[asyncio.Task[None]]:
        """Fail every record that is not stored, and stop. Returns a task that is cancelled and ends soon."""
        self.end(ProducerClosed("the producer was stopped before the record was stored"))
        self._cluster.off_change(self._rebind)
        for queue in self._queues.values():
            queue.sent.clear()
            queue.waiting.clear()
        return [] if self._identity is None else self._identity.cut()

    @property
    def pending_records(self) -> int:
        """The number of records without an outcome."""
        return sum(len(batch.futures) for queue in self._queues.values() for batch in (*queue.sent, *queue.waiting))

    def drop_waiting(self, error: KafkaError, node_id: int | None = None) -> None:
        """Fail every record that is not in flight; with `node_id`, those for this broker only."""
        for queue in self._open_queues():
            if node_id not in (None, queue.node_id):
                continue
            for batch in [batch for batch in (*queue.sent, *queue.waiting) if batch.state is not BatchState.IN_FLIGHT]:
                self._outcomes.failed(batch, error)

    async def wait_for_answers(self) -> None:
        """Wait until no answer is outstanding."""
        while any(node.in_flight for node in self._nodes.values()):
            await self._answers.wait()

    # The loop

    def wake(self) -> None:
        """Run soon: something has changed."""
        if self._scheduled is None:
            self._scheduled = self._loop.call_soon(self.run)

    def run(self) -> None:
        """Send what can be sent now."""
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
        self._guarded(self._pump)

    def _guarded(self, step: Callable[[], None]) -> None:
        if self.fatal is not None:
            return
        try:
            step()
        except Exception as error:
            # A bug in this client. No task awaits this call, so every record's future must get the error.
            log.exception("the Sender of %s failed", self._config.client_id)
            self.end(ProducerClosed(f"the Sender failed: {type(error).__name__}: {error}"))

    def _pump(self) -> None:
        if self._transaction is not None and self._transaction.cause is not None:
            self.drop_waiting(self._transaction.failure())
        if self.manager is not None and not self.manager.has_producer_id:
            if self._identity is not None:
                self._identity.obtain()
            return
        for node in list(self._nodes.values()):
            if not node.in_flight and node.partial and self._config.linger_ms <= 0:
                node.send_partial()
            if node.ready and node.node_id != NO_LEADER:
                self._pump_node(node)
        if self._transaction is not None and self._transaction.wanted:
            self.enrol()

    def _pump_node(self, node: LeaderQueue) -> None:
        connection = self._cluster.pool.live(node.node_id, ConnectionPurpose.DATA)
        if connection is None:
            self._connect(node)
            return
        limit = self._config.max_in_flight_requests_per_connection
        while node.ready and node.in_flight < limit and not connection.closed:
            if not connection.writable:
                self._send_when_writable(node, connection)
                return
            batches = self._gather(node, connection)
            if not batches:
                return
            self._send(node, connection, batches)

    def _gather(self, node: LeaderQueue, connection: Connection) -> list[Batch]:
        """The batches of the next request: the first of each ready partition, up to max_request_size."""
        batches: list[Batch] = []
        if self.manager is not None and not self.manager.has_producer_id:
            return batches
        size = 0
        for queue in list(node.ready):
            if queue.is_ready_to_rewind and not self._outcomes.rewind(queue):
                self.wake()  # to ask for a new producer id
                return batches
            if not queue.waiting:
                del node.ready[queue]
                continue
            if not queue.may_send(connection):
                continue
            if self._transaction is not None and not self._transaction.admits(queue.topic_partition):
                continue
            size += queue.waiting[0].builder.size_bytes
            if batches and size > self._config.max_request_size:
                break
            del node.ready[queue]
            batches.append(queue.take(connection, self.manager))
            self.place(queue)
        return batches

    def _send(self, node: LeaderQueue, connection: Connection, batches: list[Batch]) -> None:
        records = self._built(node, batches)
        batches = list(records)
        if not batches:
            return
        request = produce_request(records, self._config, self._transaction)
        try:
            version_max = produce_version_max(connection, self._config, self._transaction)
            if self._acks == 0:
                connection.send_unanswered(request)
                _count(batches)
                for batch in batches:
                    self._outcomes.stored(batch, -1, -1, -1)
                return
            answer = connection.send(request, timeout_ms=self._config.request_timeout_ms, version_max=version_max)
        except KafkaError as error:
            self._unanswered(node, batches, error, sent=False)
            return
        _count(batches)
        node.in_flight += 1
        answer.add_done_callback(partial(self._answered, node, batches))

    def _built(self, node: LeaderQueue, batches: list[Batch]) -> dict[Batch, bytes]:
        """The bytes of the batches, compressed. A batch that cannot be built fails alone, for example one of
        `send_encoded` whose buffer was released meanwhile.
        """
        built: dict[Batch, bytes] = {}
        for batch in batches:
            stamp = batch.stamp
            assert stamp is not None
            try:
                built[batch] = batch.builder.build(
                    stamp.producer_id, stamp.producer_epoch, stamp.base_sequence, self._transaction is not None
                )
            except Exception as error:
                failure = KafkaError(f"cannot build a batch for {batch.queue.name}: {type(error).__name__}: {error}")
                failure.__cause__ = error
                self._outcomes.failed(batch, failure)
            else:
                self._memory.shrink(batch, len(built[batch]))
        failed = [batch for batch in batches if batch not in built]
        self._settle(node, failed, [False] * len(failed))
        return built

    def _answered(self, node: LeaderQueue, batches: list[Batch], answer: asyncio.Future[ProduceResponse]) -> None:
        node.in_flight -= 1
        answer.exception()  # marks it as retrieved, also when the producer has ended
        self._guarded(partial(self._apply, node, batches, answer))
        self._answers.notify()
        self.run()

    def _apply(self, node: LeaderQueue, batches: list[Batch], answer: asyncio.Future[ProduceResponse]) -> None:
        error = answer.exception()
        if error is not None:
            assert isinstance(error, KafkaError), error
            self._unanswered(node, batches, error, sent=True)
        else:
            response = answer.result()
            for each in response.node_endpoints:
                self._cluster.pool.set_address(each.node_id, each.host, each.port)
            rows = {(topic.name, row.index): row for topic in response.responses for row in topic.partition_responses}
            apply = self._outcomes.apply
            self._settle(
                node,
                batches,
                [apply(batch, rows.get((batch.queue.topic, batch.queue.partition), NOT_ANSWERED)) for batch in batches],
            )

    def _unanswered(self, node: LeaderQueue, batches: list[Batch], error: KafkaError, *, sent: bool) -> None:
        self._cluster.request_refresh()
        self._settle(node, batches, [self._outcomes.lost(batch, error, sent=sent) for batch in batches])

    def _settle(self, node: LeaderQueue, batches: list[Batch], again: list[bool]) -> None:
        """Pause the queues of failed batches. A queue whose new leader is known by now gets no pause (KIP-951)."""
        failed = [batch.queue for batch, must_retry in zip(batches, again, strict=True) if must_retry]
        self._pause([queue for queue in failed if queue.node_id == node.node_id])
        for batch in batches:
            if batch.queue.waiting:
                self.place(batch.queue)

    def _pause(self, queues: list[PartitionQueue]) -> None:
        """Pause partitions for retry_backoff_ms, longer after every failure in a row."""
        if not queues:
            return
        for queue in queues:
            queue.paused = True
            queue.failures += 1
            self._node(queue.node_id).remove(queue)
        backoff = Backoff(self._edge.rng, self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        backoff.failures = min(queue.failures for queue in queues) - 1
        self._loop.call_later(backoff.next_ms() / 1000, self._resume, queues)

    def _resume(self, queues: list[PartitionQueue]) -> None:
        for queue in queues:
            queue.paused = False
            self.place(queue)

    # Timers, connections, leaders

    def _lingered(self, batch: Batch) -> None:
        batch.due = True
        self.place(batch.queue)

    def _on_expiry(self) -> None:
        self._expiry = None
        self._guarded(self._expire)

    def _expire(self) -> None:
        """Fail what is not stored within delivery_timeout_ms."""
        now = self._edge.monotonic()
        deadlines = []
        for queue in self._open_queues():
            deadline = self._outcomes.expire(queue, now)
            if deadline is not None:
                deadlines.append(deadline)
            self.place(queue)
        if deadlines:
            self._expiry = self._loop.call_later(min(deadlines) - now, self._on_expiry)

    def _connect(self, node: LeaderQueue) -> None:
        if node.connecting is None:
            node.is_unreachable = True
            self._leader_watch.leader_missing()
            self._pump_after(node, self._cluster.pool.connecting(node.node_id, ConnectionPurpose.DATA))

    def _send_when_writable(self, node: LeaderQueue, connection: Connection) -> None:
        if node.connecting is None:
            self._pump_after(node, self._loop.create_task(self._drained(connection), name=f"drain {node.node_id}"))

    def _pump_after(self, node: LeaderQueue, task: asyncio.Task[Connection]) -> None:
        node.connecting = task
        task.add_done_callback(partial(self._connected, node))

    def _connected(self, node: LeaderQueue, attempt: asyncio.Task[Connection]) -> None:
        node.connecting = None
        if not attempt.cancelled():
            error = attempt.exception()
            node.is_unreachable = error is not None
            if isinstance(error, LOGIN_REFUSED):
                self.drop_waiting(error, node.node_id)
            if node.is_unreachable:
                self._cluster.request_refresh()
            else:
                self._leader_watch.leader_reached()
            self.run()

    async def _drained(self, connection: Connection) -> Connection:
        await connection.drained()
        return connection

    def _open_queues(self) -> list[PartitionQueue]:
        """The queues that hold a batch. The cost does not grow with the number of partitions ever used."""
        self._open = {queue: None for queue in self._open if queue.waiting or queue.sent}
        return list(self._open)

    def _node(self, node_id: int) -> LeaderQueue:
        node = self._nodes.get(node_id)
        if node is None:
            node = self._nodes[node_id] = LeaderQueue(node_id)
        return node

    def _rebind(self) -> None:
        """New metadata: moves every queue to the current leader of its partition."""
        for queue in self._queues.values():
            leader = self._cluster.metadata.leader(queue.topic, queue.partition)
            if leader != queue.node_id:
                self._node(queue.node_id).remove(queue)
                queue.node_id = leader
                queue.paused = queue.paused and leader == NO_LEADER
                if queue.in_flight and leader != NO_LEADER and self.manager is not None:
                    assert queue.in_flight_on is not None
                    self._loop.call_later(LEAVING_GRACE_MS / 1000, queue.leave, queue.in_flight_on)
            self.place(queue)

    def end(self, error: KafkaError) -> None:
        """End the producer: nothing more is sent, and every record that is not stored fails with `error`."""
        if self.fatal is not None:
            return
        self.fatal = error
        self._linger.close()
        self._leader_watch.close()
        if self._expiry is not None:
            self._expiry.cancel()
        for queue in self._queues.values():
            for batch in (*queue.sent, *queue.waiting):
                batch.closed = True
                batch.records_failed(error, reported_elsewhere=self._transaction is not None)
        self._memory.fail_waiters(error)


def _count(batches: list[Batch]) -> None:
    """Count the batches of a request that was sent."""
    for batch in batches:
        counters = batch.queue.counters
        counters.records_sent += batch.builder.record_count
        counters.batches_sent += 1
        counters.bytes_sent += batch.reserved_bytes
