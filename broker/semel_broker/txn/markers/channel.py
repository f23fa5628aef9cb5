"""Sends commit and abort markers to partition leaders: one queue per broker, retried until each is written.

`send` puts a marker into the queue of the broker that leads its partition. This broker writes its own markers at once.
Another broker gets one request at a time, with all markers queued meanwhile. A marker that cannot be written now (the
partition has no leader, or a log is not writable) is tried again without limit: the outcome is decided, and consumers
wait for it. When the partition gets another leader, the marker goes there at once (`leaders_changed`), whatever the
former leader may still answer.
"""

from __future__ import annotations

from asyncio import Future, Task, TimerHandle, get_running_loop, wait
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.cluster.image import Image
from semel_broker.counters.coordinators import TransactionCounters
from semel_broker.scheduling.turns import Turns
from semel_broker.topics.topics import Topics
from semel_broker.txn.model.identity import ProducerIdentity
from semel_broker.txn.model.metadata import TopicPartition
from semel_broker.world import Logger

BACKOFF_MS = 20
BACKOFF_MS_MAX = 1_000
MARKERS_AT_ONCE = 1_000
"""In one request to another broker, and in one turn of the loop."""
NO_NODE = -1


class Marker(msgspec.Struct, frozen=True, gc=False):
    """How a transaction ended, as its partitions store it. `coordinator_epoch`: the leader epoch of the partition of
    `__transaction_state` whose coordinator decided."""

    producer: ProducerIdentity
    commit: bool
    coordinator_epoch: int


Entry = tuple[Marker, TopicPartition]


class Destination(Protocol):
    """A broker that leads partitions. `is_here`: it is this broker, and frequent calls cost nothing."""

    is_here: bool

    def write(self, entries: Sequence[Entry]) -> list[ErrorCode] | Future[list[ErrorCode]]:
        """Write the markers durably; a code for each, in their order, at once or as a future.

        Raises KafkaError or OSError (at once, or as the future's exception) when the destination cannot be reached.
        """
        ...


class Leaders(Protocol):
    """Where partitions are led, as far as this broker knows."""

    def of(self, partition: TopicPartition) -> int | None:
        """The node that leads it now; None while it has no leader, or if it does not exist."""
        ...

    def exists(self, partition: TopicPartition) -> bool:
        """Whether the partition exists."""
        ...


SETTLED = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # the topic is deleted, if this broker knows that, too
    ErrorCode.INVALID_PRODUCER_EPOCH,  # the partition has this marker, or an operator's, or a newer epoch
)
"""Codes that end the attempts for one partition. TRANSACTION_COORDINATOR_FENCED ends them without `done`."""


class Dispatch:
    """The markers of one transaction. The channel calls `done` once every partition has its marker. `wanted`: whether
    this coordinator still coordinates the transaction."""

    __slots__ = ("attempts", "done", "marker", "missing", "since", "transactional_id", "wanted")

    def __init__(
        self,
        transactional_id: str,
        marker: Marker,
        missing: int,
        done: Callable[[], None],
        wanted: Callable[[], bool],
    ) -> None:
        self.transactional_id = transactional_id
        self.marker = marker
        self.missing = missing
        self.attempts = 0
        self.since = get_running_loop().time()
        self.done = done
        self.wanted = wanted


class PendingMarker:
    """The marker of one partition. `node`: the broker it was last queued for; `timer`: runs until the next attempt."""

    __slots__ = ("dispatch", "is_settled", "node", "partition", "timer")

    def __init__(self, dispatch: Dispatch, partition: TopicPartition) -> None:
        self.dispatch = dispatch
        self.partition = partition
        self.node = NO_NODE
        self.timer: TimerHandle | None = None
        self.is_settled = False


class MarkerChannel:
    """All markers of the coordinators on broker `node_id`. `here` writes into its partitions; `remote(node)` makes the
    destination of another broker. `turns`: of the slices in which the markers of a large transaction are queued."""

    def __init__(
        self,
        log: Logger,
        leaders: Leaders,
        node_id: int,
        here: Destination,
        remote: Callable[[int], Destination],
        turns: Turns,
        counters: TransactionCounters | None = None,
    ) -> None:
        self._counters = TransactionCounters() if counters is None else counters
        self.here = here
        self._log = log
        self._leaders = leaders
        self._node_id = node_id
        self._remote = remote
        self._turns = turns
        self._queueing: dict[Task[None], None] = {}
        self._far: dict[int, Destination] = {}
        self._queues: dict[int, list[PendingMarker]] = {}
        self._scheduled = False
        self._writing: dict[Future[list[ErrorCode]], int] = {}  # -> node
        self._asked: dict[int, None] = {}  # other brokers with a request under way
        self._open: dict[PendingMarker, None] = {}  # without those that this broker writes at the first attempt
        self._closed = False

    def send(
        self,
        transactional_id: str,
        marker: Marker,
        partitions: Sequence[TopicPartition],
        done: Callable[[], None],
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Write `marker` into each of `partitions`, then call `done`, possibly before this returns."""
        assert partitions, "a transaction without partitions needs no marker"
        dispatch = Dispatch(transactional_id, marker, len(partitions), done, wanted)
        self._send_portion(dispatch, partitions[:MARKERS_AT_ONCE])
        if len(partitions) > MARKERS_AT_ONCE:
            task = get_running_loop().create_task(self._send_rest(dispatch, partitions))
            self._queueing[task] = None
            task.add_done_callback(self._queueing.pop)

    def leaders_changed(self) -> None:
        """Partitions may have other leaders now: queue the markers of these partitions for them."""
        for pending in list(self._open):
            node = self._leaders.of(pending.partition)
            if pending.node != (NO_NODE if node is None else node) or not self._leaders.exists(pending.partition):
                self._send(pending)

    async def close(self) -> None:
        """Stop all attempts, and return once the writes under way here are done. The journal has the other markers."""
        self._closed = True
        for pending in self._open:
            if pending.timer is not None:
                pending.timer.cancel()
        self._open.clear()
        self._queues.clear()
        for answer, node in list(self._writing.items()):
            if node in self._asked:
                answer.cancel()
        under_way: list[Future[Any]] = [*self._writing, *self._queueing]
        if under_way:
            await wait(under_way)

    @property
    def waiting(self) -> int:
        """How many markers wait for their next attempt."""
        return sum(pending.timer is not None for pending in self._open)

    @property
    def backlog(self) -> int:
        """How many markers are not written yet, without those that this broker writes at the first attempt."""
        return len(self._open)

    @property
    def oldest_s(self) -> float:
        """Seconds since the decision of the oldest of them; 0.0 without one."""
        oldest = min((pending.dispatch.since for pending in self._open), default=None)
        return 0.0 if oldest is None else get_running_loop().time() - oldest

    # --- inside ---

    def _send_portion(self, dispatch: Dispatch, partitions: Sequence[TopicPartition]) -> None:
        here = [pending for partition in partitions if self._enqueue(pending := PendingMarker(dispatch, partition))]
        if here:
            self._write(here[0].node, here)

    async def _send_rest(self, dispatch: Dispatch, partitions: Sequence[TopicPartition]) -> None:
        """Send the markers behind the first portion, one portion in a turn of the loop."""
        for start in range(MARKERS_AT_ONCE, len(partitions), MARKERS_AT_ONCE):
            await self._turns.next_slice()
            self._send_portion(dispatch, partitions[start : start + MARKERS_AT_ONCE])

    def _destination_at(self, node: int) -> Destination:
        if node == self._node_id:
            return self.here
        far = self._far.get(node)
        if far is None:
            far = self._far[node] = self._remote(node)
        return far

    def _send(self, pending: PendingMarker) -> None:
        """Send the marker to the partition's present leader."""
        if pending.timer is not None:
            pending.timer.cancel()
            pending.timer = None
        if self._enqueue(pending):
            self._write(pending.node, [pending])

    def _enqueue(self, pending: PendingMarker) -> bool:
        """Queue the marker for the partition's leader; True if that is this broker: then the caller writes it."""
        if self._closed or not pending.dispatch.wanted():
            self._open.pop(pending, None)
            return False
        node = self._leaders.of(pending.partition)
        if node is None:
            pending.node = NO_NODE
            gone = not self._leaders.exists(pending.partition)
            self._settle(pending, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if gone else ErrorCode.LEADER_NOT_AVAILABLE)
            return False
        pending.node = node
        if self._destination_at(node).is_here:
            return True
        self._open[pending] = None
        self._queues.setdefault(node, []).append(pending)
        self._flush_soon()
        return False

    def _flush_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Send the queued markers to every broker that has no request under way."""
        self._scheduled = False
        for node in [node for node in self._queues if node not in self._asked]:
            queue = self._queues.pop(node)
            if len(queue) > MARKERS_AT_ONCE:
                self._queues[node] = queue[MARKERS_AT_ONCE:]
            self._write(node, queue[:MARKERS_AT_ONCE])

    def _write(self, node: int, queue: list[PendingMarker]) -> None:
        batch = [pending for pending in queue if pending.node == node and not pending.is_settled]
        if not batch:
            return
        destination = self._destination_at(node)
        try:
            answer = destination.write([(pending.dispatch.marker, pending.partition) for pending in batch])
        except (KafkaError, OSError) as error:
            self._failed(node, batch, error)
            return
        if isinstance(answer, list):
            self._settle_all(node, batch, answer)
            return
        self._writing[answer] = node
        if not destination.is_here:
            self._asked[node] = None
        answer.add_done_callback(partial(self._answered, node, batch))

    def _answered(self, node: int, batch: list[PendingMarker], answer: Future[list[ErrorCode]]) -> None:
        del self._writing[answer]
        self._asked.pop(node, None)
        if self._queues:
            self._flush_soon()
        if answer.cancelled():
            return  # this broker is stopping
        error = answer.exception()
        if error is None:
            self._settle_all(node, batch, answer.result())
        elif isinstance(error, KafkaError | OSError):
            self._failed(node, batch, error)
        else:
            self._settle_all(node, batch, [ErrorCode.UNKNOWN_SERVER_ERROR] * len(batch))
            raise error  # a bug of ours: the loop's exception handler has it logged

    def _failed(self, node: int, batch: list[PendingMarker], error: KafkaError | OSError) -> None:
        self._log.warning("markers_not_written", destination=node, markers=len(batch), error=str(error))
        self._settle_all(node, batch, [ErrorCode.UNKNOWN_SERVER_ERROR] * len(batch))

    def _settle_all(self, node: int, batch: list[PendingMarker], codes: list[ErrorCode]) -> None:
        assert len(codes) == len(batch), (codes, batch)
        for pending, code in zip(batch, codes, strict=True):
            if not pending.is_settled and (pending.node == node or not code):  # else it is queued for another leader
                self._settle(pending, code)

    def _settle(self, pending: PendingMarker, code: ErrorCode) -> None:
        dispatch = pending.dispatch
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self._leaders.exists(pending.partition):
            self._retry_later(pending, code)  # its leader does not know the topic yet
        elif code in SETTLED:
            if code:
                self._warn("marker_not_needed", pending, code)
            self._forget(pending)
            assert dispatch.missing > 0, dispatch.transactional_id
            dispatch.missing -= 1
            if not dispatch.missing:
                dispatch.done()
        elif code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            self._warn("coordinator_fenced", pending, code)  # another coordinator continues
            self._forget(pending)
        else:
            self._retry_later(pending, code)

    def _forget(self, pending: PendingMarker) -> None:
        assert not pending.is_settled, (pending.dispatch.transactional_id, pending.partition)
        pending.is_settled = True
        if pending.timer is not None:
            pending.timer.cancel()
            pending.timer = None
        self._open.pop(pending, None)

    def _retry_later(self, pending: PendingMarker, code: ErrorCode) -> None:
        if self._closed:
            return
        dispatch = pending.dispatch
        dispatch.attempts += 1
        self._counters.marker_retries += 1
        if dispatch.attempts == 1 or not dispatch.attempts % 100:
            self._warn("marker_delayed", pending, code)
        delay_ms = min(BACKOFF_MS << min(dispatch.attempts - 1, 8), BACKOFF_MS_MAX)
        self._open[pending] = None
        pending.timer = get_running_loop().call_later(delay_ms / 1000, self._send, pending)

    def _warn(self, event: str, pending: PendingMarker, code: ErrorCode) -> None:
        dispatch, (topic, index) = pending.dispatch, pending.partition
        self._log.warning(
            event,
            transactional_id=dispatch.transactional_id,
            producer_id=dispatch.marker.producer.producer_id,
            producer_epoch=dispatch.marker.producer.epoch,
            topic=topic,
            partition=index,
            error=code.name,
            attempts=dispatch.attempts,
        )


class ImageLeaders:
    """The leaders as the image of the cluster has them."""

    def __init__(self, image: Image) -> None:
        self._image = image

    def of(self, partition: TopicPartition) -> int | None:
        """The live broker that leads the partition; None while it has no leader, or if it does not exist."""
        stored = self._image.topic(partition[0])
        return None if stored is None else self._image.leader(stored.value.topic_id, partition[1])

    def exists(self, partition: TopicPartition) -> bool:
        """Whether the partition exists."""
        stored = self._image.topic(partition[0])
        return stored is not None and 0 <= partition[1] < len(stored.value.replicas)


class OnlyBroker:
    """The leaders where this broker is the only one."""

    def __init__(self, node_id: int, topics: Topics) -> None:
        self._node_id = node_id
        self._topics = topics

    def of(self, partition: TopicPartition) -> int | None:
        """This broker; None if the partition does not exist."""
        return self._node_id if self.exists(partition) else None

    def exists(self, partition: TopicPartition) -> bool:
        """Whether the partition exists."""
        topic = self._topics.get(partition[0])
        return topic is not None and 0 <= partition[1] < topic.partition_count
