"""Recompresses batches for topics that want another codec: one slice in each turn of the loop, of all that wait.

Small batches do not stand behind large ones: there is a lane for each size, the lanes take turns, and in each lane one
batch after the other is worked on. A batch that turns out to be larger than its lane begins anew in the next one. So
what is inflated at a time is at most the sum of the lanes' sizes, however many connections ask.
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
AT_ONCE_BYTES: Final = 2 * SMALL_BYTES
"""So many bytes of records are recompressed at once in a turn, before anything has to wait: 5 to 10 ms of work."""
MEDIUM_BYTES: Final = 1024 * KIB


class Target(msgspec.Struct, frozen=True):
    """What a topic wants its batches to be; `inflated_bytes_max` bounds the records of one."""

    codec: int
    level: int
    inflated_bytes_max: int


def target_of(config: LogConfig, inflated_bytes_max: int) -> Target | None:
    """The codec that the topic's `compression.type` stands for; None: that of the producer."""
    match config.compression_type:
        case "producer":
            return None
        case "uncompressed":  # more than that could not be stored
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
    """One for all connections of a broker."""

    def __init__(self) -> None:
        self._lanes: tuple[deque[_Job], ...] = (deque(), deque(), deque())
        self._next = 0
        self._handle: Handle | None = None
        self._at_once_left = AT_ONCE_BYTES
        self._new_turn: Handle | None = None

    def at_once(self, batch: Buffer, header: BatchHeader, target: Target) -> bytes | None:
        """The batch recompressed now, if it is small and this turn has time for it; None: await `recompressed`.

        Raises CorruptBatch.
        """
        if self._at_once_left <= 0 or any(self._lanes) or (header.codec == NONE and header.size > SMALL_BYTES):
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
        """The batch recompressed when it is its turn. Raises CorruptBatch, and MESSAGE_TOO_LARGE, upon which producers
        split a batch, for one that inflates beyond the target's bound."""
        done: Future[bytes] = get_running_loop().create_future()
        self._enter(0 if header.codec != NONE else _lane_of(header.size), _Job(batch, header, target, done))
        return await done

    def _begin_turn(self) -> None:
        self._new_turn = None
        self._at_once_left = AT_ONCE_BYTES

    def _enter(self, lane: int, job: _Job) -> None:
        self._lanes[lane].append(job)
        if self._handle is None:
            self._handle = get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        """One slice of the first in the lane whose turn it is."""
        self._handle = None
        lane = next((n for n in (self._next, *range(len(self._lanes))) if self._lanes[n]), None)
        if lane is None:
            return
        self._next = (lane + 1) % len(self._lanes)
        if self._advance(lane, self._lanes[lane][0]):
            self._lanes[lane].popleft()
        if any(self._lanes):
            self._handle = get_running_loop().call_soon(self._work)

    def _advance(self, lane: int, job: _Job) -> bool:
        """Whether that was the last slice of the job in this lane."""
        if job.done.done():  # nobody waits any more
            return True
        target = job.target
        bytes_max = min(_bytes_max(lane), target.inflated_bytes_max)
        if job.steps is None:
            job.steps = recompress(job.batch, job.header, target.codec, target.level, bytes_max)
        try:
            next(job.steps)
        except StopIteration as end:
            job.done.set_result(end.value)
        except InflatesTooLarge as error:
            if bytes_max < target.inflated_bytes_max:
                job.steps = None
                self._lanes[lane + 1].append(job)
            else:
                job.done.set_exception(
                    KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{error.message}; send smaller batches")
                )
        except CorruptBatch as error:
            job.done.set_exception(error)
        else:
            return False
        return True


def _bytes_max(lane: int) -> int:
    """The last lane takes whatever the target allows."""
    return (SMALL_BYTES, MEDIUM_BYTES, 1 << 62)[lane]


def _lane_of(size: int) -> int:
    return next(lane for lane in range(3) if size <= _bytes_max(lane))
