"""The Producer: `async with Producer(bootstrap_servers=...) as producer: await producer.send("flights", b"...")`.

Names are aiokafka's. Idempotent unless told otherwise: what is acknowledged is stored once, in the order it was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum
from types import TracebackType
from typing import Any

from semel_protocol.records import BatchBuilder, record_bytes_max

from semel._accumulator import BufferMemory, PartitionQueue
from semel._cluster import Cluster
from semel._config import CODEC_OF, ProducerConfig, takes_settings
from semel._partitioner import TopicPartitions
from semel._sender import Sender
from semel.errors import IllegalOperation, IllegalStateError, MessageSizeTooLargeError, ProducerClosed
from semel.structs import RecordMetadata

Headers = Sequence[tuple[str, bytes | None]]


TIMESTAMP_MAX = (1 << 63) - 1
BURST_MS_MAX = 10
"""A caller that sends without ever suspending lets the event loop run this often."""


class State(Enum):
    NEW = "made, not started"
    RUNNING = "started"
    STOPPED = "stopped, or being stopped"


class Producer:
    """Sends records to topics. `async with` starts and stops it; see `ProducerConfig` for the settings.

    Not for use from several threads; any number of tasks may share one. Records of one task to one partition are
    stored in the order of its `send` calls.
    """

    @takes_settings(ProducerConfig)
    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._cluster = Cluster(config)
        self._memory = BufferMemory(self._cluster.edge, config.buffer_memory)
        self._state = State.NEW
        self._topics: dict[str, TopicPartitions] = {}
        self._now_ms = self._cluster.edge.now_ms
        self._key_serializer = config.key_serializer
        self._value_serializer = config.value_serializer
        self._started: Sender | None = None
        self._paused_ms = 0

    async def start(self) -> None:
        """Reaches the cluster. Raises KafkaConnectionError when no bootstrap server answers."""
        if self._state is not State.NEW:
            raise IllegalStateError(f"the producer is {self._state.value}: make a new one")
        self._state = State.RUNNING
        await self._cluster.start()
        self._started = Sender(self._cluster, self._config, self._memory)
        self._cluster.on_change(self._update_topics)

    async def stop(self) -> None:
        """Sends what is buffered, at most for delivery_timeout_ms, then closes. Cancelled, it closes at once.

        What could not be stored fails with ProducerClosed. Harmless when already stopped.
        """
        if self._state is State.STOPPED:
            return
        self._state = State.STOPPED
        self._topics = {}
        try:
            if self._started is not None:
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
        serializer), ValueError for a timestamp out of range.
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
        if self._state is not State.RUNNING:
            raise ProducerClosed(f"the producer is {self._state.value}")
        return {row.partition for row in (await self._cluster.wait_for_topic(topic)).partitions}

    def create_batch(self) -> RecordBatch:
        """An empty batch to fill by hand and send with `send_batch`."""
        return RecordBatch(self._config, self._now_ms)

    async def send_batch(self, batch: RecordBatch, topic: str, *, partition: int) -> asyncio.Future[RecordMetadata]:
        """Buffers a batch filled by hand; the future tells the place of its first record.

        Raises as `send` does, and IllegalOperation for a batch that is empty or was sent before.
        """
        builder = batch.hand_over()
        self._check_size(builder.size_bytes)
        queue = (self._topics.get(topic) or await self._find_topic(topic)).queue(partition)
        await self._memory.reserve(builder.size_bytes, self._config.max_block_ms)
        reserved = builder.size_bytes
        try:
            opened = self._sender.open_batch(queue, reserved, builder)
        except BaseException:
            self._memory.release(reserved)
            raise
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        opened.futures.append(future)
        opened.timestamps.append(batch.first_timestamp_ms)
        opened.closed = True
        self._sender.place(queue)
        return future

    # Inside

    @property
    def _sender(self) -> Sender:
        if self._started is None or self._state is not State.RUNNING:
            raise ProducerClosed(f"the producer is {self._state.value}")
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
        found = self._topics.get(topic)
        if found is None:
            assert self._sender is sender
            found = TopicPartitions(sender, self._cluster.edge.rng, self._config.partitioner, topic)
            found.update(metadata)
            self._topics[topic] = found
        return found

    def _update_topics(self) -> None:
        for topic, found in self._topics.items():
            metadata = self._cluster.metadata.topics.get(topic)
            if metadata is not None and metadata.partitions:
                found.update(metadata)


class RecordBatch:
    """A batch filled by hand (aiokafka: BatchBuilder)."""

    def __init__(self, config: ProducerConfig, now_ms: Callable[[], int]) -> None:
        self._config, self._now_ms = config, now_ms
        self._builder = BatchBuilder(CODEC_OF[config.compression_type], config.max_batch_size)
        self._closed = self._handed_over = False
        self.first_timestamp_ms = -1

    def append(
        self, *, timestamp: int | None = None, key: Any = None, value: Any = None, headers: Headers = ()
    ) -> int | None:
        """The record's position in the batch, or None when it does not fit any more or the batch is closed."""
        if self._closed:
            return None
        config = self._config
        timestamp = self._now_ms() if timestamp is None else checked_timestamp(timestamp)
        key_bytes = as_bytes("key", config.key_serializer(key) if config.key_serializer else key)
        value_bytes = as_bytes("value", config.value_serializer(value) if config.value_serializer else value)
        position = self._builder.append(timestamp, key_bytes, value_bytes, checked_headers(headers) or ())
        if position == 0:
            self.first_timestamp_ms = timestamp
        return position

    def close(self) -> None:
        """No more records."""
        self._closed = True

    def closed(self) -> bool:
        return self._closed

    def size(self) -> int:
        """Bytes so far, uncompressed."""
        return self._builder.size_bytes

    def record_count(self) -> int:
        return self._builder.record_count

    def hand_over(self) -> BatchBuilder:
        """The batch for the producer to send, once. Raises IllegalOperation."""
        if self._handed_over or not self._builder.record_count:
            raise IllegalOperation("the batch was sent already" if self._handed_over else "the batch is empty")
        self._closed = self._handed_over = True
        return self._builder


def as_bytes(what: str, given: Any) -> bytes | None:
    """Bytes as they are, other buffers copied. Raises TypeError."""
    if given is None or type(given) is bytes:
        return given
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    raise TypeError(f"{what} is {type(given).__name__}, not bytes: encode it, or set {what}_serializer")


def checked_timestamp(given: int) -> int:
    """Milliseconds since the epoch as they are. Raises TypeError, ValueError."""
    if not isinstance(given, int):
        raise TypeError(f"timestamp {given!r} is {type(given).__name__}, not int: give milliseconds since the epoch")
    if not 0 <= given <= TIMESTAMP_MAX:
        raise ValueError(f"timestamp {given} is out of range: give milliseconds since the epoch")
    return given


def checked_headers(given: Headers | None) -> Headers | None:
    """Headers as they are. Raises TypeError."""
    for header in given or ():
        name, value = header
        if not isinstance(name, str) or not isinstance(value, (bytes, type(None))):
            raise TypeError(f"header {header!r} is not (str, bytes or None)")
    return given
