"""Fetch (key 1): stored batches from an offset on, unchanged; waits until there are enough of them.

Served: v4 to v18, to consumers only: replicas do not fetch from this listener. Fetch sessions (KIP-227) are made into
full fetches before (`k01_sessions`).

From v12 on a fetch carries the epoch of the last record that was read. If the log of the leader ends that epoch before
the offset asked for, the answer has `diverging_epoch` and no data (KIP-320). A follower does not check it, because it
may be behind. From v13 on topics are named by id (KIP-516). A topic that was created anew has another id, so the id of
its predecessor is answered with UNKNOWN_TOPIC_ID. v16 adds the present leader and its address to NOT_LEADER_OR_FOLLOWER
and FENCED_LEADER_EPOCH (KIP-951).

Answered when `min_bytes` are readable, when a partition has an error, after `max_wait_ms`, or when the session of the
connection ends (KIP-368); then without records. The first partition with
data gives at least one whole batch, also above the limits. The first partition changes with each request, so that no
partition starves.

With isolation level 1 (read_committed) the data ends at the last stable offset, and `min_bytes` counts the bytes below
it. Each row names the aborted transactions among its data; the client skips control batches and aborted records.

Damaged stored bytes are answered with CORRUPT_MESSAGE, which clients report to the application. A fetch of very many
partitions reads them in slices. Above `WOKEN_PARTITIONS_MAX` partitions, new records do not wake a waiting fetch.

With `replica.selector.class`, the leader names a follower in the rack of the consumer instead of records, and followers
answer consumers up to their own high watermark (KIP-392, from v11 on).
"""

from __future__ import annotations

from asyncio import Future, get_running_loop, sleep
from collections.abc import Iterator
from itertools import islice
from typing import Any, cast

from semel_protocol.acls import Operation
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.fields import Encoded, first_version
from semel_protocol.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponseDivergingEpoch,
    FetchResponseLeader,
    FetchResponseNodeEndpoint,
    FetchResponsePartition,
    FetchResponseSnapshotId,
    FetchResponseTopic,
)
from semel_storage.segments.segment import CorruptLog

from semel_broker.authorization.administration import CHANGES_NOTHING
from semel_broker.authorization.requirements import Requirements, on_topics
from semel_broker.context import RequestContext
from semel_broker.handlers.leader_hints import STALE_LEADER, LeaderHints
from semel_broker.partitions.partition import READ_COMMITTED, Partition
from semel_broker.partitions.replicas import LEADER, preferred_replica
from semel_broker.scheduling.turns import Slices
from semel_broker.scheduling.waiters import FetchWaiter

PARTITIONS_AT_ONCE_MAX = 256
"""A fetch of more partitions is read in slices."""
WOKEN_PARTITIONS_MAX = 10_000
"""A fetch of more partitions is not woken by new records; it waits at most `UNWOKEN_WAIT_MS`."""
UNWOKEN_WAIT_MS = 500

RACK_SINCE = 11
BY_ID_FROM = first_version(FetchRequestTopic, "topic_id")
HINTS_SINCE = 16
NO_LEADER, NO_DIVERGENCE, NO_SNAPSHOT = FetchResponseLeader(), FetchResponseDivergingEpoch(), FetchResponseSnapshotId()


async def handle(request: FetchRequest, ctx: RequestContext) -> FetchResponse:
    if request.replica_id >= 0 or request.replica_state.replica_id >= 0:
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "replicas do not fetch from a client listener")
    fetch = Fetch(request, ctx)
    max_wait_ms = _wait_ms(request, ctx)
    slices = ctx.slices(is_long=fetch.partition_count > PARTITIONS_AT_ONCE_MAX)
    await fetch.read(slices)
    if not fetch.is_ready:
        if fetch.partition_count > WOKEN_PARTITIONS_MAX:
            fetch.drop_data()
            await sleep(min(max_wait_ms, UNWOKEN_WAIT_MS) / 1000)
        else:
            await _woken(fetch, max_wait_ms, slices)
        await fetch.wait_for_room()
        await fetch.read(slices)
    return fetch.response()


def _wait_ms(request: FetchRequest, ctx: RequestContext) -> float:
    """How long the request may wait: not past the end of its session."""
    left_s = None if ctx.sasl is None else ctx.sasl.left_s
    return request.max_wait_ms if left_s is None else min(request.max_wait_ms, left_s * 1000)


async def _woken(fetch: Fetch, max_wait_ms: float, slices: Slices) -> None:
    """Wait until the missing bytes are readable, at most `max_wait_ms`."""
    loop = get_running_loop()
    waiter = FetchWaiter(loop, fetch.bytes_missing)
    fetch.drop_data()
    deadline = loop.call_later(max_wait_ms / 1000, waiter.release)
    registered = 0
    try:
        while registered < fetch.partition_count and not waiter.future.done():
            fetch.register(waiter, registered)
            registered += 1
            if slices.is_over():
                await slices.next()
        await waiter.future
        while registered:
            registered -= 1
            fetch.unregister(waiter, registered)
            if slices.is_over():
                await slices.next()
    finally:
        deadline.cancel()
        for at in range(registered):  # the request was cancelled
            fetch.unregister(waiter, at)


def _without_records(row: FetchResponsePartition) -> FetchResponsePartition:
    row.records, row.aborted_transactions = b"", None
    return row


class Fetch:
    """One Fetch request and the rows read for it. A repeated `read` reads only partitions that have changed."""

    def __init__(self, request: FetchRequest, ctx: RequestContext) -> None:
        self._request = request
        self._isolation = request.isolation_level
        self._topics, self._log = ctx.broker.topics, ctx.broker.log
        self._wanted = [(topic, row) for topic in request.topics for row in topic.partitions]
        self._first = ctx.turn  # rotates with each request of the connection
        self._ctx = ctx
        self._asked_bytes = min(request.max_bytes, ctx.broker.config.fetch_max_bytes)
        self._bytes_max = min(self._asked_bytes, ctx.answer_bytes_max)
        self.partition_count = count = len(self._wanted)
        self._rows: list[FetchResponsePartition | None] = [None] * count
        self._partitions: list[Partition | None] = [None] * count
        self._seen: list[int] = [0] * count  # each partition's bytes_readable when it was read
        self._bytes_read = 0
        self._is_decided = False  # an error, or a nearer replica, is answered at once
        self._by_followers = ctx.api_version >= RACK_SINCE and ctx.broker.config.has_replica_selector
        self._has_ids = ctx.api_version >= BY_ID_FROM
        self._hints = LeaderHints(ctx) if ctx.api_version >= HINTS_SINCE else None
        self._racks: dict[int, str] = {}
        if self._by_followers and request.rack_id:
            live = ctx.broker.advertised_brokers.live(ctx.listener)
            self._racks = {each.node_id: each.rack for each in live if each.rack is not None}

    @property
    def bytes_missing(self) -> int:
        return min(self._request.min_bytes, self._bytes_max) - self._bytes_read

    @property
    def is_ready(self) -> bool:
        return self._is_decided or self.bytes_missing <= 0 or self._request.max_wait_ms <= 0 or not self._wanted

    async def wait_for_room(self) -> None:
        """Wait until the answer memory has room, because one record may wake many fetches; then set the size limit."""
        if (answers := self._ctx.answers) is None:
            return
        while not answers.has_room:
            future = get_running_loop().create_future()

            def on_room(future: Future[None] = future) -> None:
                if not future.done():
                    future.set_result(None)

            answers.wait(on_room)
            try:
                await future
            finally:
                answers.leave(on_room)
        self._bytes_max = min(self._asked_bytes, answers.answer_bytes_max)

    async def read(self, slices: Slices) -> None:
        """Read the partitions once, within the limits."""
        for turn in range(self.partition_count):
            self._read_again(turn)
            if slices.is_over():
                await slices.next()

    def _read_again(self, turn: int) -> None:
        """Read the partition at this place of the rotation if it has changed since the last read."""
        at = (self._first + turn) % self.partition_count
        partition, row = self._partitions[at], self._rows[at]
        if (
            partition is None
            or row is None
            or partition.view.high_watermark != row.high_watermark
            or partition.is_retired
            or not partition.is_leading
        ):
            self._read_one(at)

    def _read_one(self, at: int) -> None:
        asked, wanted = self._wanted[at]
        topic = asked.topic
        try:
            if self._has_ids:
                topic = self._topics.required_by_id(asked.topic_id).name
            partition = self._topics.partition(topic, wanted.partition)
            self._rows[at] = row = self._row(partition, wanted)
        except CorruptLog as error:
            # Not KAFKA_STORAGE_ERROR: clients would retry it silently until there is another leader.
            self._log.error("log_unreadable", topic=topic, partition=wanted.partition, reason=str(error))
            self._refuse(at, ErrorCode.CORRUPT_MESSAGE, topic)
            return
        except KafkaError as error:
            self._refuse(at, error.code, topic)
            return
        assert row.records is not None
        self._bytes_read += len(row.records)
        if row.records and self._ctx.answers is not None:
            self._ctx.answers.reserve(len(row.records))
        self._partitions[at], self._seen[at] = partition, partition.view.bytes_readable(self._isolation)

    def _refuse(self, at: int, code: int, topic: str) -> None:
        self._is_decided = True
        index = self._wanted[at][1].partition
        self._rows[at] = row = FetchResponsePartition(
            partition_index=index, error_code=code, high_watermark=-1, records=b""
        )
        if self._hints is not None and code in STALE_LEADER:
            leader_id, leader_epoch = self._hints.of(topic, index)
            row.current_leader = FetchResponseLeader(leader_id=leader_id, leader_epoch=leader_epoch)

    def _row(self, partition: Partition, wanted: FetchRequestPartition) -> FetchResponsePartition:
        if self._by_followers:
            partition.check_readable()
        else:
            partition.check_leading()
        if wanted.current_leader_epoch >= 0:  # of Fetch, any other number means that the client knows none, as in Kafka
            partition.check_leader_epoch(wanted.current_leader_epoch)
        if wanted.last_fetched_epoch >= 0 and partition.is_leading:
            divergence = self._divergence(partition, wanted)
            if divergence is not NO_DIVERGENCE:
                self._is_decided = True
                return self._made(partition, wanted, b"", divergence=divergence)
        if self._racks and partition.replicas is not None:
            offset = wanted.fetch_offset
            preferred = preferred_replica(partition.replicas, self._racks, self._request.rack_id, offset)
            if preferred != LEADER and offset >= partition.log_start_offset:
                self._is_decided = True
                return self._made(partition, wanted, b"", preferred=preferred)
        bytes_max = max(0, min(wanted.partition_max_bytes, self._bytes_max - self._bytes_read))
        offset, at_least_one = wanted.fetch_offset, self._bytes_read == 0
        aborted: Any = None
        if self._isolation == READ_COMMITTED:
            records, found = partition.read_committed(offset, bytes_max=bytes_max, at_least_one=at_least_one)
            aborted = Encoded(found)
        else:
            records = partition.read(offset, bytes_max=bytes_max, at_least_one=at_least_one)
        return self._made(partition, wanted, records, aborted)

    def _divergence(self, partition: Partition, wanted: FetchRequestPartition) -> FetchResponseDivergingEpoch:
        """Where the log ends the epoch that the consumer has read last, if that is before its offset or in an earlier
        epoch. Raises OFFSET_OUT_OF_RANGE if the log does not know the epoch.
        """
        epoch, end_offset = partition.log.epochs.end_offset_for(wanted.last_fetched_epoch, partition.end_offset)
        if end_offset < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{partition.topic}-{partition.index} has no records of leader epoch {wanted.last_fetched_epoch}",
            )
        if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
            return FetchResponseDivergingEpoch(epoch=epoch, end_offset=end_offset)
        return NO_DIVERGENCE

    def _made(
        self,
        partition: Partition,
        wanted: FetchRequestPartition,
        records: bytes,
        aborted: Any = None,
        *,
        preferred: int = LEADER,
        divergence: FetchResponseDivergingEpoch = NO_DIVERGENCE,
    ) -> FetchResponsePartition:
        return FetchResponsePartition(
            partition_index=wanted.partition,
            high_watermark=partition.view.high_watermark,
            last_stable_offset=partition.view.last_stable_offset,
            log_start_offset=partition.log_start_offset,
            aborted_transactions=aborted,
            preferred_read_replica=preferred,
            records=records,
            current_leader=NO_LEADER,
            diverging_epoch=divergence,
            snapshot_id=NO_SNAPSHOT,
        )

    def drop_data(self) -> None:
        """Drop the data read so far; it is read again after the wait."""
        self._bytes_read = 0
        if self._ctx.answers is not None:
            self._ctx.answers.unreserve()
        for at, row in enumerate(self._rows):
            if row is not None and row.records:
                self._rows[at] = None

    def register(self, waiter: FetchWaiter, at: int) -> None:
        """Register `waiter` with the partition of this row, and count the bytes that arrived since the read."""
        partition = self._partitions[at]
        assert partition is not None, "a fetch with an error does not wait"
        partition.add_fetch_waiter(waiter, self._isolation)
        waiter.wake(partition.view.bytes_readable(self._isolation) - self._seen[at])

    def unregister(self, waiter: FetchWaiter, at: int) -> None:
        """Remove `waiter` from the partition of this row."""
        partition = self._partitions[at]
        assert partition is not None, "a fetch with an error does not wait"
        partition.view.remove_waiter(waiter)

    def response(self) -> FetchResponse:
        """The answer; without records if the session of the connection has ended while the request waited."""
        rows = iter(cast("list[FetchResponsePartition]", self._rows))
        if self._ctx.sasl is not None and self._ctx.sasl.has_ended:
            rows = map(_without_records, rows)
        return FetchResponse(
            responses=[self._topic(topic, rows) for topic in self._request.topics],
            node_endpoints=self._node_endpoints(),
        )

    @staticmethod
    def _topic(topic: FetchRequestTopic, rows: Iterator[FetchResponsePartition]) -> FetchResponseTopic:
        partitions = list(islice(rows, len(topic.partitions)))
        return FetchResponseTopic(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions)

    def _node_endpoints(self) -> list[FetchResponseNodeEndpoint]:
        return [
            FetchResponseNodeEndpoint(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
            for each in (() if self._hints is None else self._hints.leaders())
        ]


NEEDS: Requirements = (on_topics(Operation.READ, FetchRequest),)
NOT_AUDITED = CHANGES_NOTHING
