"""Recompresses batches for topics with a `compression.type` of their own: one slice of one batch in each turn of the
loop.

Small batches do not wait behind large ones: there is one queue for each size class, and the queues take turns. In each
queue one batch is worked on at a time. A batch that turns out to be larger than its class starts again in the next
queue. The memory of inflated records is therefore bounded by the sum of the class sizes, whatever the number of
connections.
"""

from __future__ import annotations

from asyncio import Future, Handle, get_running_loop
from collections import deque
from typing import Final

import msgspec
from semel_protocol.batch import BatchHeader, CorruptBatch
from semel_protocol.compression import CODECS, NONE, InflatesTooLarge
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.primitives import Buffer
from semel_protocol.recompression import Steps, recompress
from semel_storage.segments.log_config import LogConfig

KIB: Final = 1 << 10
SMALL_BYTES: Final = 64 * KIB
MEDIUM_BYTES: Final = 1024 * KIB


class Target(msgspec.Struct, frozen=True):
    """Codec and level for the batches of a topic; `inflated_bytes_max` bounds the records of one batch."""

    codec: int
    level: int
    inflated_bytes_max: int


def target_of(config: LogConfig, inflated_bytes_max: int) -> Target | None:
    """The codec of the topic's `compression.type`; None: the producer's."""
    match config.compression_type:
        case "producer":
            return None
        case "uncompressed":  # a larger batch could not be stored
            return Target(NONE, 0, min(inflated_bytes_max, config.max_message_bytes))
        case "gzip":
            level = config.compression_gzip_level
        case "lz4":
            level = config.compression_lz4_level
        case "zstd":
            level = config.compression_zstd_level
        case _:
            level = 0
    return Target(CODECS[config.compression_type], level, inflated_bytes_max)


class _Job:
    __slots__ = ("batch", "done", "header", "steps", "target")

    def __init__(self, batch: Buffer, header: BatchHeader, target: Target, done: Future[bytes]) -> None:
        self.batch, self.header, self.target, self.done = batch, header, target, done
        self.steps: Steps | None = None


class Recompressor:
    """Recompresses batches for all connections of a broker. `at_once_bytes`: `Limits.recompressed_at_once_bytes`."""

    def __init__(self, at_once_bytes: int) -> None:
        self._queues: tuple[deque[_Job], ...] = (deque(), deque(), deque())
        self._next = 0
        self._handle: Handle | None = None
        self._at_once_bytes = self._at_once_left = at_once_bytes
        self._new_turn: Handle | None = None

    def at_once(self, batch: Buffer, header: BatchHeader, target: Target) -> bytes | None:
        """The batch recompressed now; None if it is not small or this turn's budget is spent: await `recompressed`.

        Raises CorruptBatch.
        """
        if self._at_once_left <= 0 or any(self._queues) or (header.codec == NONE and header.size > SMALL_BYTES):
            return None
        if self._new_turn is None:
            self._new_turn = get_running_loop().call_soon(self._begin_turn)
        steps = recompress(batch, header, target.codec, target.level, min(SMALL_BYTES, target.inflated_bytes_max))
        try:
            while True:
                self._at_once_left -= next(steps)
        except StopIteration as done:
            recompressed: bytes = done.value
            return recompressed
        except InflatesTooLarge:
            return None

    async def recompressed(self, batch: Buffer, header: BatchHeader, target: Target) -> bytes:
        """The batch recompressed in its turn.

        Raises CorruptBatch. Raises MESSAGE_TOO_LARGE, upon which producers split the batch, if it inflates beyond the
        bound of `target`.
        """
        done: Future[bytes] = get_running_loop().create_future()
        self._enter(0 if header.codec != NONE else _queue_of(header.size), _Job(batch, header, target, done))
        return await done

    def _begin_turn(self) -> None:
        self._new_turn = None
        self._at_once_left = self._at_once_bytes

    def _enter(self, queue: int, job: _Job) -> None:
        self._queues[queue].append(job)
        if self._handle is None:
            self._handle = get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        """Work one slice on the first batch of the next queue."""
        self._handle = None
        queue = next((n for n in (self._next, *range(len(self._queues))) if self._queues[n]), None)
        if queue is None:
            return
        self._next = (queue + 1) % len(self._queues)
        if self._advance(queue, self._queues[queue][0]):
            self._queues[queue].popleft()
        if any(self._queues):
            self._handle = get_running_loop().call_soon(self._work)

    def _advance(self, queue: int, job: _Job) -> bool:
        """Work one slice; return whether the job leaves this queue."""
        if job.done.done():  # the waiting request was cancelled
            return True
        target = job.target
        bytes_max = min(_bytes_max(queue), target.inflated_bytes_max)
        if job.steps is None:
            job.steps = recompress(job.batch, job.header, target.codec, target.level, bytes_max)
        try:
            next(job.steps)
        except StopIteration as end:
            job.done.set_result(end.value)
        except InflatesTooLarge as error:
            if bytes_max < target.inflated_bytes_max:
                job.steps = None
                self._queues[queue + 1].append(job)
            else:
                job.done.set_exception(
                    KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{error.message}; send smaller batches")
                )
        except CorruptBatch as error:
            job.done.set_exception(error)
        else:
            return False
        return True


def _bytes_max(queue: int) -> int:
    """The size limit of a queue; the last one takes all that the target allows."""
    return (SMALL_BYTES, MEDIUM_BYTES, 1 << 62)[queue]


def _queue_of(size: int) -> int:
    return next(queue for queue in range(3) if size <= _bytes_max(queue))
