"""How a decision reaches the partitions: one queue per destination, batches, retries for ever.

A destination is the broker that leads a partition. `send` puts markers into the queues of their destinations. Where
that is this broker they are written at once; another one gets a request at a time, with what has gathered meanwhile. A
marker that cannot be written now (no leader, a log that is not writable) is tried again, for as long as it takes: the
outcome is decided, and readers wait for it. One whose partition has another leader goes there as soon as that is known
(`leaders_changed`), whatever the last one may yet answer.
"""

from __future__ import annotations

from asyncio import Future, TimerHandle, get_running_loop, wait
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.txn.model.identity import ProducerIdentity
from semel_broker.txn.model.metadata import TopicPartition
from semel_broker.world import Logger

BACKOFF_MS = 20
BACKOFF_MS_MAX = 1_000
MARKERS_AT_ONCE = 2_000
"""In one request to another broker."""
NOBODY = -1


class Marker(msgspec.Struct, frozen=True, gc=False):
    """How a transaction ended, to be told to its partitions. `coordinator_epoch`: of the coordinator that decided."""

    producer: ProducerIdentity
    commit: bool
    coordinator_epoch: int


Entry = tuple[Marker, TopicPartition]


class Destination(Protocol):
    """A broker that leads partitions. `is_here`: it is this one, and it costs nothing to call it often."""

    is_here: bool

    def write(self, entries: Sequence[Entry]) -> list[ErrorCode] | Future[list[ErrorCode]]:
        """Write the markers durably; a code for each, in their order. At once, or in a while. Raises KafkaError or
        OSError (at once, or as the future's exception) when the destination cannot be reached."""
        ...


class Leaders(Protocol):
    """Where partitions are led, as far as this broker knows."""

    def of(self, partition: TopicPartition) -> int | None:
        """The node that leads it now; None while nobody does, or it does not exist."""
        ...

    def exists(self, partition: TopicPartition) -> bool:
        """Whether there is such a partition."""
        ...


SETTLED = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # the topic is deleted, if that is known here, too
    ErrorCode.INVALID_PRODUCER_EPOCH,  # the partition is past this transaction: its marker, or an operator's, is there
)
"""Codes that end the attempts for one partition; TRANSACTION_COORDINATOR_FENCED ends them for the whole transaction."""


class Dispatch:
    """One transaction's markers on their way: `done` is called once every partition has its marker. `wanted`: whether
    this coordinator still has to do with it."""

    __slots__ = ("attempts", "done", "marker", "missing", "transactional_id", "wanted")

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
        self.done = done
        self.wanted = wanted


class Errand:
    """One partition's marker on its way. `node`: whom it was given to last; `timer`: until it is tried again."""

    __slots__ = ("dispatch", "is_settled", "node", "partition", "timer")

    def __init__(self, dispatch: Dispatch, partition: TopicPartition) -> None:
        self.dispatch = dispatch
        self.partition = partition
        self.node = NOBODY
        self.timer: TimerHandle | None = None
        self.is_settled = False


class MarkerChannel:
    """All markers of one broker's coordinators."""

    def __init__(self, log: Logger, leaders: Leaders, destination: Callable[[int], Destination]) -> None:
        self._log = log
        self._leaders = leaders
        self._destination = destination
        self._queues: dict[int, list[Errand]] = {}
        self._scheduled = False
        self._writing: dict[Future[list[ErrorCode]], int] = {}  # and the node
        self._asked: dict[int, None] = {}  # other brokers that have a request under way
        self._open: dict[Errand, None] = {}  # but for what this broker writes at the first try
        self._closed = False

    def send(
        self,
        transactional_id: str,
        marker: Marker,
        partitions: Sequence[TopicPartition],
        done: Callable[[], None],
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Have `marker` written into each of `partitions`; `done` is called when it is, perhaps before this returns."""
        assert partitions, "a transaction without partitions needs no marker"
        dispatch = Dispatch(transactional_id, marker, len(partitions), done, wanted)
        here = [errand for partition in partitions if self._hand_over(errand := Errand(dispatch, partition))]
        if here:
            self._write(here[0].node, here)

    def leaders_changed(self) -> None:
        """Partitions may have other leaders than they had: what is on its way to somebody else goes there."""
        for errand in list(self._open):
            node = self._leaders.of(errand.partition)
            if errand.node != (NOBODY if node is None else node) or not self._leaders.exists(errand.partition):
                self._go(errand)

    async def close(self) -> None:
        """Try nothing again, and return once what is being written here is. The rest is found in the journal."""
        self._closed = True
        for errand in self._open:
            if errand.timer is not None:
                errand.timer.cancel()
        self._open.clear()
        self._queues.clear()
        for answer, node in list(self._writing.items()):
            if node in self._asked:
                answer.cancel()
        if self._writing:
            await wait(list(self._writing))

    @property
    def waiting(self) -> int:
        """Markers that could not be written yet and are to be tried again."""
        return sum(errand.timer is not None for errand in self._open)

    # --- inside ---

    def _go(self, errand: Errand) -> None:
        """To whoever leads now."""
        if errand.timer is not None:
            errand.timer.cancel()
            errand.timer = None
        if self._hand_over(errand):
            self._write(errand.node, [errand])

    def _hand_over(self, errand: Errand) -> bool:
        """Put the marker into the queue of whoever leads; True if it is for this broker: then it is to be written."""
        if self._closed or not errand.dispatch.wanted():
            self._open.pop(errand, None)
            return False
        node = self._leaders.of(errand.partition)
        if node is None:
            errand.node = NOBODY
            gone = not self._leaders.exists(errand.partition)
            self._settle(errand, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if gone else ErrorCode.LEADER_NOT_AVAILABLE)
            return False
        errand.node = node
        if self._destination(node).is_here:
            return True
        self._open[errand] = None
        self._queues.setdefault(node, []).append(errand)
        self._flush_soon()
        return False

    def _flush_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Send what has gathered, to whomever is not busy with what he was sent before."""
        self._scheduled = False
        for node in [node for node in self._queues if node not in self._asked]:
            queue = self._queues.pop(node)
            if len(queue) > MARKERS_AT_ONCE:
                self._queues[node] = queue[MARKERS_AT_ONCE:]
            self._write(node, queue[:MARKERS_AT_ONCE])

    def _write(self, node: int, queue: list[Errand]) -> None:
        batch = [errand for errand in queue if errand.node == node and not errand.is_settled]
        if not batch:
            return
        destination = self._destination(node)
        try:
            answer = destination.write([(errand.dispatch.marker, errand.partition) for errand in batch])
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

    def _answered(self, node: int, batch: list[Errand], answer: Future[list[ErrorCode]]) -> None:
        del self._writing[answer]
        self._asked.pop(node, None)
        if self._queues:
            self._flush_soon()
        if answer.cancelled():
            return  # the broker is going down
        error = answer.exception()
        if error is None:
            self._settle_all(node, batch, answer.result())
        elif isinstance(error, KafkaError | OSError):
            self._failed(node, batch, error)
        else:
            self._settle_all(node, batch, [ErrorCode.UNKNOWN_SERVER_ERROR] * len(batch))
            raise error  # a bug of ours: the loop's exception handler has it logged

    def _failed(self, node: int, batch: list[Errand], error: KafkaError | OSError) -> None:
        self._log.warning("markers_not_written", destination=node, markers=len(batch), error=str(error))
        self._settle_all(node, batch, [ErrorCode.UNKNOWN_SERVER_ERROR] * len(batch))

    def _settle_all(self, node: int, batch: list[Errand], codes: list[ErrorCode]) -> None:
        assert len(codes) == len(batch), (codes, batch)
        for errand, code in zip(batch, codes, strict=True):
            if not errand.is_settled and (errand.node == node or not code):  # else it is on its way to somebody else
                self._settle(errand, code)

    def _settle(self, errand: Errand, code: ErrorCode) -> None:
        dispatch = errand.dispatch
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self._leaders.exists(errand.partition):
            self._try_again(errand, code)  # whoever leads it has not heard of it yet
        elif code in SETTLED:
            if code:
                self._tell("marker_not_needed", errand, code)
            self._forget(errand)
            dispatch.missing -= 1
            if not dispatch.missing:
                dispatch.done()
        elif code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            self._tell("coordinator_fenced", errand, code)  # another one goes on with it
            self._forget(errand)
        else:
            self._try_again(errand, code)

    def _forget(self, errand: Errand) -> None:
        errand.is_settled = True
        if errand.timer is not None:
            errand.timer.cancel()
            errand.timer = None
        self._open.pop(errand, None)

    def _try_again(self, errand: Errand, code: ErrorCode) -> None:
        if self._closed:
            return
        dispatch = errand.dispatch
        dispatch.attempts += 1
        if dispatch.attempts == 1 or not dispatch.attempts % 100:
            self._tell("marker_delayed", errand, code)
        delay_ms = min(BACKOFF_MS << min(dispatch.attempts - 1, 8), BACKOFF_MS_MAX)
        self._open[errand] = None
        errand.timer = get_running_loop().call_later(delay_ms / 1000, self._go, errand)

    def _tell(self, event: str, errand: Errand, code: ErrorCode) -> None:
        dispatch, (topic, index) = errand.dispatch, errand.partition
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
