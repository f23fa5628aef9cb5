"""Fetches an offset range of one partition. Each fetch is sent while the caller processes the one before.

The range belongs to the topic id of the first answer (KIP-516). If the topic is deleted and created again after that,
its offsets mean other records, and the range ends with an error.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

import msgspec
from semel_protocol.acls import Operation
from semel_protocol.backoff import Backoff
from semel_protocol.batch import HEADER_BYTES, BatchHeader, CorruptBatch, crc_ok, read_header
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from semel_protocol.schema import ZERO_UUID

from semel._config.consumer import ConsumerConfig
from semel._consume.fetch_session import BY_ID_FROM
from semel._group.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Offsets
from semel._net.cluster import ANSWER_TIMEOUT_MS, Cluster
from semel._net.pool import ConnectionPurpose
from semel._net.retry import Deadline
from semel._subscription.fetch_buffer import Chunk
from semel.errors import (
    CorruptRecordException,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    error_for,
)
from semel.structs import TopicPartition

log = logging.getLogger(__name__)

EMPTY_ANSWERS = 2
"""An empty range is final after this many answers of a leader that has all of the range."""
UNKNOWN_ANSWERS = 8
"""An unknown partition is final after this many answers, over some seconds."""


class CommittedBatches(msgspec.Struct, frozen=True):
    """Stored batches of one partition, in order: (header, position in `data` where the batch begins).

    next_offset: every offset below it is covered, by these batches or by left out ones.
    """

    topic_partition: TopicPartition
    data: bytes
    batches: list[tuple[BatchHeader, int]]
    next_offset: int


class RangeFetch:
    """The batches from `start` up to `end` of a partition: call `next` until it returns None, then `close`."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        offsets: Offsets,
        partition: TopicPartition,
        start: int,
        end: int,
    ) -> None:
        self._cluster, self._config, self._offsets = cluster, config, offsets
        self._partition, self._at, self._end = partition, start, end
        self._name = f"{partition.topic}-{partition.partition}"
        self.fetching: asyncio.Task[CommittedBatches] | None = None
        """The fetch in progress, or one with a result that `next` has not returned yet."""
        self._closed = False
        self._topic_id = ZERO_UUID
        cluster.want([partition.topic])

    async def next(self) -> CommittedBatches | None:
        """The batches of the next fetch, possibly none; None at the end. Raises as `BatchReader.read`."""
        if self._at >= self._end:
            return None
        if self._closed:
            raise IllegalStateError("the reader is stopped")
        fetching = self.fetching = self.fetching or self._fetch_soon()
        await asyncio.wait((fetching,))
        if fetching.cancelled():
            raise IllegalStateError("the reader is stopped")
        fetched = fetching.result()
        self._at = fetched.next_offset
        self.fetching = self._fetch_soon() if self._at < self._end else None
        return fetched

    def close(self) -> None:
        """Drop the fetch in progress; a call that waits for it raises IllegalStateError."""
        self._closed = True
        if self.fetching is not None and not self.fetching.cancel() and not self.fetching.cancelled():
            self.fetching.exception()  # marks it as retrieved

    def _fetch_soon(self) -> asyncio.Task[CommittedBatches]:
        return asyncio.create_task(self._fetch(self._at), name=f"fetch {self._name}")

    async def _fetch(self, at: int) -> CommittedBatches:
        """Fetch from `at` until there is progress."""
        config = self._config
        backoff = Backoff(self._cluster.edge.rng, config.retry_backoff_ms, config.retry_backoff_max_ms)
        deadline = Deadline(self._cluster.edge, config.default_api_timeout_ms)
        empty_answers = unknown_answers = 0
        while True:
            try:
                row = await self._ask(at, deadline)
                if row.records and (found := self._batches(row, at)) is not None:
                    return found
                stable = row.last_stable_offset if config.read_committed else row.high_watermark
                empty_answers = empty_answers + 1 if stable >= self._end else 0
                if empty_answers >= EMPTY_ANSWERS:  # compacted away
                    return CommittedBatches(self._partition, b"", [], self._end)
                reason = (
                    f"no records from offset {at} to {self._end} yet: {self._name} is readable up to offset {stable}"
                )
                pause_ms = 0.0
                backoff.reset()
            except KafkaError as error:
                is_unknown = isinstance(error, (UnknownTopicIdError, UnknownTopicOrPartitionError))
                unknown_answers = unknown_answers + 1 if is_unknown else 0
                if unknown_answers >= UNKNOWN_ANSWERS:
                    raise
                if isinstance(error, OffsetOutOfRangeError):
                    await self._check_in_range(at)
                elif not error.retriable or isinstance(error, CorruptRecordException):
                    raise
                log.info("fetch from %s failed, trying again: %s", self._name, error)
                self._cluster.request_refresh()
                reason, pause_ms = str(error), backoff.next_ms()
            if pause_ms >= deadline.remaining_ms:
                waited_ms = config.default_api_timeout_ms
                raise self._cluster.timed_out(f"{waited_ms} ms without progress: {reason}", waited_ms)
            await asyncio.sleep(pause_ms / 1000)

    async def _ask(self, at: int, deadline: Deadline) -> FetchResponsePartition:
        """One Fetch of the partition. Raises KafkaError."""
        config, (topic, index) = self._config, self._partition
        leader = self._cluster.metadata.leader(topic, index)
        if leader < 0:
            code = self._cluster.metadata.errors.get(topic, 0)
            self._cluster.request_refresh()
            right = self._cluster.right(Operation.READ, topic=topic)
            raise error_for(code or ErrorCode.LEADER_NOT_AVAILABLE, self._name, right)
        if not self._cluster.metadata.describes(topic, self._topic_id):
            self._cluster.request_refresh()
            raise error_for(ErrorCode.UNKNOWN_TOPIC_ID, self._name)
        topic_id = self._cluster.metadata.topic_id(topic)
        request = FetchRequest(
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            isolation_level=1 if config.read_committed else 0,
            topics=[
                FetchRequestTopic(
                    topic=topic,
                    topic_id=topic_id,
                    partitions=[
                        FetchRequestPartition(
                            partition=index,
                            current_leader_epoch=self._cluster.metadata.leader_epoch(topic, index),
                            fetch_offset=at,
                            partition_max_bytes=config.max_partition_fetch_bytes,
                        )
                    ],
                )
            ],
            rack_id=config.client_rack,
        )
        connection = await self._cluster.connection(leader, ConnectionPurpose.FETCH)
        timeout_ms = min(config.request_timeout_ms, max(deadline.remaining_ms, ANSWER_TIMEOUT_MS))
        is_by_id = topic_id != ZERO_UUID and connection.serves(FetchRequest, BY_ID_FROM)
        answer: FetchResponse = await connection.request(
            request, timeout_ms=timeout_ms, version_max=BY_ID_FROM if is_by_id else None
        )
        if answer.error_code:
            raise error_for(answer.error_code, f"fetch from {self._name}")
        for rows in answer.responses:
            for row in rows.partitions:
                is_topic = rows.topic_id == topic_id if is_by_id else rows.topic == topic
                if is_topic and row.partition_index == index:
                    checked = self._checked(row, at)
                    self._topic_id = topic_id if is_by_id else ZERO_UUID
                    return checked
        raise KafkaConnectionError(f"{connection.name} left {self._name} out of its answer")

    def _checked(self, row: FetchResponsePartition, at: int) -> FetchResponsePartition:
        if not row.error_code:
            return row
        self._cluster.update_leader(*self._partition, row.current_leader.leader_id, row.current_leader.leader_epoch)
        if row.error_code == ErrorCode.CORRUPT_MESSAGE:
            raise CorruptRecordException(f"{self._name} at offset {at}: its broker cannot read the stored batch")
        right = self._cluster.right(Operation.READ, topic=self._partition[0])
        raise error_for(row.error_code, f"fetch from {self._name} at offset {at}", right)

    async def _check_in_range(self, at: int) -> None:
        """Raise OffsetOutOfRangeError if the records are deleted. A new leader may only lag behind."""
        found = await self._offsets.list({self._partition: EARLIEST_TIMESTAMP}, self._config.default_api_timeout_ms)
        earliest = found[self._partition][0]
        if at < earliest:
            found = await self._offsets.list({self._partition: LATEST_TIMESTAMP}, self._config.default_api_timeout_ms)
            raise OffsetOutOfRangeError(
                f"{self._name} holds offsets {earliest} to {found[self._partition][0]}; {at} is gone"
            )

    def _batches(self, row: FetchResponsePartition, at: int) -> CommittedBatches | None:
        """The wanted batches of an answer; None without progress beyond `at`."""
        assert row.records is not None
        data = bytes(row.records)
        aborted = None
        if self._config.read_committed:
            aborted = deque(sorted((entry.first_offset, entry.producer_id) for entry in row.aborted_transactions or ()))
        chunk = Chunk(data, aborted=aborted)
        kept: list[tuple[BatchHeader, int]] = []
        next_offset, place, view = at, 0, memoryview(data)
        try:
            while len(data) - place >= HEADER_BYTES and next_offset < self._end:
                header = read_header(data, place)
                after = place + header.size
                if after > len(data):
                    break
                if self._config.check_crcs and not crc_ok(view[place:after], header):
                    raise CorruptBatch(
                        f"the CRC of the batch at offset {header.base_offset} does not match; the next batch begins at "
                        f"offset {header.next_offset}"
                    )
                left_out = chunk.is_aborted(header) or header.is_control
                if header.next_offset > next_offset:
                    if not left_out and header.record_count and header.base_offset < self._end:
                        kept.append((header, place))
                    next_offset = header.next_offset
                place = after
        except CorruptBatch as e:
            raise CorruptRecordException(f"{self._name} at offset {next_offset}: {e.message}") from e
        if not place:
            raise RecordTooLargeError(
                f"the batch of {self._name} at offset {at} is larger than "
                f"max_partition_fetch_bytes={self._config.max_partition_fetch_bytes}"
            )
        if next_offset == at:
            return None
        return CommittedBatches(self._partition, data, kept, next_offset)
