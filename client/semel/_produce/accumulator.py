"""Records that wait to be sent: batches in order, one queue for each partition, within one memory bound.

A queue keeps the order of its partition through every retry. `sent` holds the batches without an outcome, oldest first.
While one of them must be sent again, no newer batch is sent. Once no answer is outstanding, all of them return to the
front of `waiting` in order.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from enum import Enum

import msgspec
from semel_protocol.records import BatchBuilder, decode_batch

from semel._edge import Edge
from semel._net.connection import Connection
from semel._net.reachability import Explain
from semel._produce.counters import TopicCounters
from semel._produce.sequences import SEQUENCE_COUNT, UNSTAMPED, Sequences, Stamp, TransactionManager
from semel.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError
from semel.structs import RecordMetadata, TopicPartition

BATCH_BYTES_MAX = (1 << 31) - 1
Headers = Sequence[tuple[str, bytes | None]]


class BatchState(Enum):
    WAITING = "in its queue, not sent or to be sent again"
    IN_FLIGHT = "sent, no answer yet"
    FAILED = "to be sent again once no older batch is in flight"
    DONE = "its records have their outcome, and it is out of its queue"


NEXT = {
    BatchState.WAITING: (BatchState.IN_FLIGHT, BatchState.DONE),
    BatchState.IN_FLIGHT: (BatchState.FAILED, BatchState.DONE),
    BatchState.FAILED: (BatchState.WAITING, BatchState.DONE),
    BatchState.DONE: (),
}


class Countdown:
    """A future that is done when every counted batch has an outcome."""

    __slots__ = ("future", "left")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[None] = loop.create_future()
        self.left = 0

    def count(self, batch: "Batch") -> None:
        batch.countdowns.append(self)
        self.left += 1

    def batch_done(self) -> None:
        self.left -= 1
        if not self.left and not self.future.done():
            self.future.set_result(None)


class Batch:
    """Records of one partition that are sent together, with a future for each of them."""

    __slots__ = (
        "builder",
        "closed",
        "countdowns",
        "deadline",
        "due",
        "futures",
        "keeps_stamp",
        "maybe_stored",
        "queue",
        "reserved_bytes",
        "stamp",
        "state",
        "timestamps",
    )

    def __init__(self, queue: "PartitionQueue", builder: BatchBuilder, deadline: float, reserved_bytes: int) -> None:
        self.queue, self.builder = queue, builder
        self.deadline, self.reserved_bytes = deadline, reserved_bytes
        self.futures: list[asyncio.Future[RecordMetadata]] = []
        self.timestamps: list[int] = []
        self.state = BatchState.WAITING
        self.closed = False
        self.due = False
        self.stamp: Stamp | None = None
        self.maybe_stored = False
        self.keeps_stamp = False
        """Whether it is older than a batch that was refused for good: sent again, it must be recognised as stored."""
        self.countdowns: list[Countdown] = []

    def append(
        self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> asyncio.Future[RecordMetadata] | None:
        """The future of the record, or None when it does not fit any more."""
        if self.builder.append(timestamp_ms, key, value, headers) is None:
            return None
        future: asyncio.Future[RecordMetadata] = self.queue.loop.create_future()
        self.futures.append(future)
        self.timestamps.append(timestamp_ms)
        return future

    def move(self, state: BatchState) -> None:
        assert state in NEXT[self.state], f"{self.state} -> {state}"
        self.state = state

    def records_stored(self, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> None:
        """Set the results of the futures. base_offset -1: the broker did not give it."""
        if self.futures:  # otherwise the application has got an error already
            self.queue.counters.records_stored += self.builder.record_count
        topic, partition = self.queue.topic, self.queue.partition
        step = 0 if base_offset < 0 else 1
        offset = base_offset
        timestamp_type = 0 if log_append_time_ms < 0 else 1
        for future, timestamp in zip(self.futures, self.timestamps, strict=True):
            if not future.done():
                if timestamp_type:
                    timestamp = log_append_time_ms
                future.set_result(RecordMetadata(topic, partition, offset, timestamp, timestamp_type, log_start_offset))
            offset += step
        self._notify_countdowns()

    def records_failed(self, error: KafkaError, *, reported_elsewhere: bool) -> None:
        """Fail the futures. reported_elsewhere: the error also reaches a caller that ignores the futures."""
        if self.futures:
            self.queue.counters.records_failed += self.builder.record_count
        for future in self.futures:
            if not future.done():
                future.set_exception(error)
                if reported_elsewhere:
                    future.exception()
        self._notify_countdowns()

    def halves(self, codec: int) -> list["Batch"]:
        """The same records and sequences in two batches, for a broker that refused them as too large."""
        assert self.stamp is not None
        count = self.builder.record_count
        middle = count // 2
        records = decode_batch(self.builder.build(*msgspec.structs.astuple(self.stamp)))
        parts = []
        for first, last in ((0, middle), (middle, count)):
            builder = BatchBuilder(codec, BATCH_BYTES_MAX)
            for record in records[first:last]:
                assert builder.append(record.timestamp, record.key, record.value, record.headers) is not None
            reserved = self.reserved_bytes // 2 if first == 0 else self.reserved_bytes - self.reserved_bytes // 2
            part = Batch(self.queue, builder, self.deadline, reserved)
            part.futures, part.timestamps = self.futures[first:last], self.timestamps[first:last]
            part.closed, part.maybe_stored, part.keeps_stamp = True, self.maybe_stored, self.keeps_stamp
            if self.stamp is not UNSTAMPED:
                sequence = (self.stamp.base_sequence + first) % SEQUENCE_COUNT
                part.stamp = Stamp(self.stamp.producer_id, self.stamp.producer_epoch, sequence)
            parts.append(part)
        parts[1].countdowns = self.countdowns
        return parts

    def _notify_countdowns(self) -> None:
        self.futures, self.timestamps = [], []
        countdowns, self.countdowns = self.countdowns, []
        for countdown in countdowns:
            countdown.batch_done()


class PartitionQueue:
    """The batches of one partition, in order. Of connections it knows only the one with its requests in flight."""

    __slots__ = (
        "abandoned",
        "counters",
        "failures",
        "in_flight",
        "in_flight_on",
        "last_error",
        "loop",
        "needs_new_epoch",
        "node_id",
        "partition",
        "paused",
        "sent",
        "sequences",
        "topic",
        "waiting",
    )

    def __init__(
        self, topic: str, partition: int, loop: asyncio.AbstractEventLoop, counters: TopicCounters | None = None
    ) -> None:
        self.topic, self.partition, self.loop = topic, partition, loop
        self.counters = counters or TopicCounters()
        self.waiting: deque[Batch] = deque()
        self.sent: deque[Batch] = deque()
        self.in_flight = 0
        self.in_flight_on: Connection | None = None
        self.sequences = Sequences()
        self.needs_new_epoch = False
        self.abandoned = False
        self.failures = 0
        self.last_error: KafkaError | None = None
        """Why a batch was not stored at the last try; None after a success."""
        self.paused = False
        self.node_id = -1

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def open_batch(self) -> Batch | None:
        """The batch that takes the next record."""
        if self.waiting and not self.waiting[-1].closed:
            return self.waiting[-1]
        return None

    def close_batch(self) -> None:
        """Close the open batch, if any."""
        if self.waiting:
            self.waiting[-1].closed = True

    @property
    def is_due(self) -> bool:
        """Whether the first waiting batch is to be sent now: it is full, or linger_ms has passed."""
        first = self.waiting[0]
        return first.closed or first.due

    def may_send(self, connection: Connection) -> bool:
        """Whether the first waiting batch may be sent on this connection now.

        Batches of a partition are never in flight on two connections. None is sent past a batch that must be sent
        again, or after the first batch of a producer that the partition does not know.
        """
        return (
            bool(self.waiting)
            and not self.paused
            and (not self.needs_new_epoch or self.waiting[0].keeps_stamp)
            and len(self.sent) == self.in_flight
            and (not self.in_flight or (self.in_flight_on is connection and not self.sequences.go_alone))
        )

    def take(self, connection: Connection, manager: TransactionManager | None) -> Batch:
        """Take the first waiting batch, stamp it and mark it as in flight."""
        assert self.may_send(connection)
        batch = self.waiting.popleft()
        batch.closed = True
        if manager is None:
            batch.stamp = UNSTAMPED
        elif batch.stamp is None:
            batch.stamp = manager.stamp(self.sequences, batch.builder.record_count, idle=not self.sent)
        batch.move(BatchState.IN_FLIGHT)
        self.sent.append(batch)
        self.in_flight += 1
        self.in_flight_on = connection
        return batch

    def acknowledged(self, batch: Batch) -> None:
        """The partition has stored the batch, so it knows the producer."""
        self.failures = 0
        self.last_error = None
        self.sequences.is_known = True
        self.resolve(batch)

    def resolve(self, batch: Batch) -> None:
        """Remove a batch that is stored or failed."""
        if batch.state is BatchState.IN_FLIGHT:
            self.in_flight -= 1
        if batch.state is BatchState.WAITING:
            self.waiting.remove(batch)
        else:
            self.sent.remove(batch)
        batch.move(BatchState.DONE)
        self._settle()

    def retry(self, batch: Batch) -> None:
        """Mark a batch in flight to be sent again."""
        batch.move(BatchState.FAILED)
        self.in_flight -= 1
        self.counters.records_retried += batch.builder.record_count
        self._settle()

    def leave(self, connection: Connection) -> None:
        """Close a connection to a former leader that does not answer. Its batches are sent again to the new leader.

        They may be stored already, so only an idempotent producer may do this.
        """
        if self.in_flight and self.in_flight_on is connection:
            connection.close(
                KafkaConnectionError(f"{connection.name} no longer leads {self.name}, and has not answered")
            )

    def is_first_open(self, batch: Batch) -> bool:
        """Whether every older batch of the partition has its outcome."""
        return self.sent[0] is batch

    def broken_by(self, batch: Batch) -> None:
        """Note that a batch is not stored and never will be: the batches numbered after it need a new epoch.

        Older ones without an outcome are settled first. They may be stored, and only their stamps tell the broker so.
        """
        if self.needs_new_epoch:
            return  # an older batch has broken the numbering: what lies between is settled by the new epoch
        self.needs_new_epoch = True
        for older in (*self.sent, *self.waiting):
            if older is batch:
                return
            older.keeps_stamp = True

    @property
    def is_ready_to_rewind(self) -> bool:
        """Whether a new epoch is needed, and no batch has to be settled under the present one."""
        return self.needs_new_epoch and not self.sent and not (self.waiting and self.waiting[0].keeps_stamp)

    def rewind(self, manager: TransactionManager) -> list[Batch] | None:
        """Start a settled queue at sequence 0 of a new epoch; None when a new producer id is needed first.

        Returns the batches that must not be sent under a new epoch. Their outcome, or that of a batch before them, is
        unknown, so a copy may be in the log or still arrive. They stay in `waiting`.
        """
        assert self.is_ready_to_rewind
        if not manager.rewind(self.sequences):
            return None
        self.needs_new_epoch = False
        doubtful = [batch for batch in self.waiting if batch.maybe_stored] if self.abandoned else []
        self.abandoned = False
        for batch in self.waiting:
            batch.stamp = None
            batch.maybe_stored = batch.keeps_stamp = False
        return doubtful

    def replace(self, batch: Batch, parts: list[Batch]) -> None:
        """Replace a batch that was refused as too large by its parts, at the same place with the same sequences."""
        at = self.sent.index(batch)
        batch.move(BatchState.DONE)
        self.counters.batches_split += 1
        self.in_flight -= 1
        del self.sent[at]
        for part in reversed(parts):
            part.state = BatchState.FAILED
            self.sent.insert(at, part)
        self._settle()

    def _settle(self) -> None:
        """Without an answer outstanding, moves the failed batches to the front of `waiting`, in order."""
        if self.in_flight or not self.sent:
            return
        for batch in self.sent:
            batch.move(BatchState.WAITING)
        self.waiting.extendleft(reversed(self.sent))
        self.sent.clear()


class BufferMemory:
    """A bound on buffered bytes. Waiters are served in order. explain: adds the errors of brokers to a timeout."""

    def __init__(self, edge: Edge, bytes_max: int, explain: Explain = lambda text, waited_ms: text) -> None:
        self._edge, self._explain = edge, explain
        self.bytes_max = bytes_max
        self.free_bytes = bytes_max
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    def try_reserve(self, size_bytes: int) -> bool:
        """Reserve the bytes now, unless they are not free or an earlier caller waits."""
        if self._waiters or size_bytes > self.free_bytes:
            return False
        self.free_bytes -= size_bytes
        return True

    @property
    def waiters(self) -> int:
        """The number of callers that wait for memory."""
        return len(self._waiters)

    async def reserve(self, size_bytes: int, timeout_ms: float) -> None:
        """Reserve the bytes; wait until others release theirs. Raises KafkaTimeoutError after timeout_ms."""
        if self.try_reserve(size_bytes):
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((size_bytes, waiter))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await waiter
        except BaseException as error:
            self._give_up(size_bytes, waiter)
            if isinstance(error, TimeoutError):
                raise KafkaTimeoutError(
                    self._explain(
                        f"buffer_memory={self.bytes_max} stayed full for {timeout_ms:.0f} ms: records arrive faster "
                        "than the brokers store them; raise buffer_memory, or send fewer records",
                        timeout_ms,
                    )
                ) from None
            raise

    def shrink(self, batch: Batch, size_bytes: int) -> None:
        """Release the memory that a closed batch does not need."""
        spare = batch.reserved_bytes - size_bytes
        if spare > 0:
            batch.reserved_bytes = size_bytes
            self.release(spare)

    def release(self, size_bytes: int) -> None:
        """Release bytes and give them to the callers that wait."""
        self.free_bytes += size_bytes
        assert self.free_bytes <= self.bytes_max
        while self._waiters and self._waiters[0][0] <= self.free_bytes:
            wanted, waiter = self._waiters.popleft()
            if not waiter.done():
                self.free_bytes -= wanted
                waiter.set_result(None)

    def fail_waiters(self, error: KafkaError) -> None:
        """Fail the callers that wait: no more bytes will be released."""
        waiters, self._waiters = self._waiters, deque()
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)

    def _give_up(self, size_bytes: int, waiter: asyncio.Future[None]) -> None:
        if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
            self.release(size_bytes)  # the bytes were granted at the same moment
        else:
            self._waiters = deque(entry for entry in self._waiters if entry[1] is not waiter)
            self.release(0)  # waiters behind it may fit now
