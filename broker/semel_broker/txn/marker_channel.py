"""How a decision reaches the partitions: one queue per destination, batches, retries for ever.

A destination is the broker that leads a partition. `send` puts markers into the queues of their destinations; what
one turn of the loop has queued goes out as one batch, or at once where the destination is this broker. A marker that
cannot be written now (no leader, a log that is not writable) is tried again, for as long as it takes: the outcome is
decided, and readers wait for it.
"""

from __future__ import annotations

from asyncio import Future, TimerHandle, get_running_loop, wait
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.txn.identity import ProducerIdentity
from semel_broker.txn.metadata import TopicPartition
from semel_broker.world import Logger

BACKOFF_MS = 20
BACKOFF_MS_MAX = 1_000


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


SETTLED = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # the topic is deleted, or the destination would not have been chosen
    ErrorCode.INVALID_PRODUCER_EPOCH,  # the partition is past this transaction: its marker, or an operator's, is there
)
"""Codes that end the attempts for one partition; TRANSACTION_COORDINATOR_FENCED ends them for the whole transaction."""


class Dispatch:
    """One transaction's markers on their way: `done` is called once every partition has its marker."""

    __slots__ = ("attempts", "done", "marker", "missing", "transactional_id")

    def __init__(self, transactional_id: str, marker: Marker, missing: int, done: Callable[[], None]) -> None:
        self.transactional_id = transactional_id
        self.marker = marker
        self.missing = missing
        self.attempts = 0
        self.done = done


Waiting = tuple[Dispatch, TopicPartition]


class MarkerChannel:
    """All markers of one coordinator. `locate`: the node that leads a partition now, None while nobody does."""

    def __init__(
        self,
        log: Logger,
        locate: Callable[[TopicPartition], int | None],
        destination: Callable[[int], Destination],
    ) -> None:
        self._log = log
        self._locate = locate
        self._destination = destination
        self._queues: dict[int, list[Waiting]] = {}
        self._scheduled = False
        self._writing: dict[Future[list[ErrorCode]], None] = {}
        self._retries: dict[TimerHandle, None] = {}
        self._closed = False

    def send(
        self, transactional_id: str, marker: Marker, partitions: Sequence[TopicPartition], done: Callable[[], None]
    ) -> None:
        """Have `marker` written into each of `partitions`; `done` is called when it is, perhaps before this returns."""
        assert partitions, "a transaction without partitions needs no marker"
        dispatch = Dispatch(transactional_id, marker, len(partitions), done)
        for partition in partitions:
            self._enqueue((dispatch, partition))
        for node in [node for node in self._queues if self._destination(node).is_here]:
            self._write(node, self._queues.pop(node))

    async def close(self) -> None:
        """Try nothing again, and return once what is being written is. The rest is found in the journal."""
        self._closed = True
        for timer in self._retries:
            timer.cancel()
        self._queues.clear()
        if self._writing:
            await wait(list(self._writing))

    @property
    def waiting(self) -> int:
        """Markers that could not be written yet and are to be tried again."""
        return len(self._retries)

    # --- inside ---

    def _enqueue(self, waiting: Waiting) -> None:
        if self._closed:
            return
        node = self._locate(waiting[1])
        if node is None:
            self._try_again(waiting, ErrorCode.LEADER_NOT_AVAILABLE)
            return
        self._queues.setdefault(node, []).append(waiting)
        if not self._scheduled:
            self._scheduled = True
            get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Send what this turn of the loop has queued."""
        self._scheduled = False
        queues, self._queues = self._queues, {}
        for node, batch in queues.items():
            self._write(node, batch)

    def _write(self, node: int, batch: list[Waiting]) -> None:
        try:
            answer = self._destination(node).write([(dispatch.marker, to) for dispatch, to in batch])
        except (KafkaError, OSError) as error:
            self._failed(node, batch, error)
            return
        if isinstance(answer, list):
            self._settle(batch, answer)
            return
        self._writing[answer] = None
        answer.add_done_callback(partial(self._answered, node, batch))

    def _answered(self, node: int, batch: list[Waiting], answer: Future[list[ErrorCode]]) -> None:
        del self._writing[answer]
        if answer.cancelled():
            return  # the broker is going down hard
        error = answer.exception()
        if error is None:
            self._settle(batch, answer.result())
        elif isinstance(error, KafkaError | OSError):
            self._failed(node, batch, error)
        else:
            raise error  # a bug of ours: the loop's exception handler has it logged

    def _failed(self, node: int, batch: list[Waiting], error: KafkaError | OSError) -> None:
        self._log.warning("markers_not_written", destination=node, markers=len(batch), error=str(error))
        for waiting in batch:
            self._try_again(waiting, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _settle(self, batch: list[Waiting], codes: list[ErrorCode]) -> None:
        assert len(codes) == len(batch), (codes, batch)
        for waiting, code in zip(batch, codes, strict=True):
            dispatch = waiting[0]
            if code in SETTLED:
                if code:
                    self._tell("marker_not_needed", waiting, code)
                dispatch.missing -= 1
                if not dispatch.missing:
                    dispatch.done()
            elif code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                self._tell("coordinator_fenced", waiting, code)  # another one goes on with it
            else:
                self._try_again(waiting, code)

    def _try_again(self, waiting: Waiting, code: ErrorCode) -> None:
        if self._closed:
            return
        dispatch = waiting[0]
        dispatch.attempts += 1
        if dispatch.attempts == 1 or not dispatch.attempts % 100:
            self._tell("marker_delayed", waiting, code)
        delay_ms = min(BACKOFF_MS << min(dispatch.attempts - 1, 8), BACKOFF_MS_MAX)

        def again() -> None:
            del self._retries[timer]
            self._enqueue(waiting)

        timer = get_running_loop().call_later(delay_ms / 1000, again)
        self._retries[timer] = None

    def _tell(self, event: str, waiting: Waiting, code: ErrorCode) -> None:
        dispatch, (topic, index) = waiting
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
