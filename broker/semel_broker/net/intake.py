"""What one connection receives: its frames, the memory that they take, and the reasons not to read.

Reading pauses while too much is in flight, while frame memory is short, and while a quota of the client is exceeded.
"""

from __future__ import annotations

from asyncio import Transport
from enum import IntFlag
from functools import partial

from semel_broker.net.connection_context import ConnectionContext, Unread
from semel_broker.net.frame_buffer import FrameBuffer
from semel_broker.scheduling.frame_memory import READ_BYTES_EXHAUSTED, Holding


class ReadPause(IntFlag):
    """The reasons why a connection is not read at present."""

    IN_FLIGHT = 1  # too many of its bytes or requests are unanswered
    MEMORY = 2  # it waits for frame memory
    STOPPING = 4
    MUTED = 8  # a quota of its client is exceeded
    WAITS = 16  # its first request waits, because a quota of its client is exceeded


class Intake:
    """Receives frames for `connection`, which it closes if others wait for its memory and it makes no progress.

    `active_at`: the last time at which the peer did something, or could not, in seconds of the loop.
    """

    def __init__(self, context: ConnectionContext, connection: Unread) -> None:
        self._context, self._connection = context, connection
        self.frames = FrameBuffer(
            context.scratch, produce_bytes_max=context.produce_bytes_max, other_bytes_max=context.other_bytes_max
        )
        self.active_at = context.loop.time()
        self._transport: Transport | None = None
        self._holding: Holding | None = None  # between `open` and `close`
        self._pauses = ReadPause(0)
        self._partial_since: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether the connection is made and not lost."""
        return self._holding is not None

    def open(self, transport: Transport, host: str) -> None:
        """The connection is made."""
        self._transport = transport
        self._holding = self._context.memory.open(host, partial(self._connection.abort, "memory_reclaimed"))

    def close(self) -> None:
        """The connection is lost."""
        self._context.is_read(self._connection)
        if self._holding is not None:
            self._context.memory.close(self._holding)
            self._holding = None

    def buffer(self) -> memoryview:
        """The memory for the next bytes."""
        buffer = self.frames.buffer()
        return buffer[:READ_BYTES_EXHAUSTED] if self._context.memory.is_exhausted else buffer

    def received(self, count: int) -> tuple[list[bytearray], int]:
        """`count` bytes are in the buffer: the frames that are now complete, and their size.

        Raises ProtocolError for an invalid frame size; the connection must then be closed.
        """
        holding, memory = self._holding, self._context.memory
        assert holding is not None
        held = self.frames.held_bytes
        frames = self.frames.received(count)
        size = sum(map(len, frames))
        memory.take(holding, size + self.frames.held_bytes - held)
        if held:
            memory.moved(holding, count)
            if frames:
                memory.whole(holding)
        if not self.frames.is_partial:
            self._partial_since = None
        elif frames or self._partial_since is None:
            self._partial_since = self.active_at
        return frames, size

    def request_memory(self) -> None:
        """Request memory before the next receive: for the frame that has begun, or for the next frame."""
        holding, memory = self._holding, self._context.memory
        if holding is None or ReadPause.MEMORY in self._pauses:
            return
        if growth := self.frames.growth:
            granted = memory.grow(holding, growth, self.frames.frame_bytes, self._memory_granted)
        elif self.frames.held_bytes:
            return
        else:
            granted = memory.may_read_on(holding, self._memory_granted)
        if granted:
            self.frames.grow()
        else:
            self.pause(ReadPause.MEMORY)
            self._context.watch_memory()

    def _memory_granted(self) -> None:
        self.frames.grow()
        self.active_at = self._context.loop.time()
        self.resume(ReadPause.MEMORY)

    def give_back(self, count: int) -> None:
        """Release the memory of frames of `count` bytes: they are answered or dropped."""
        if self._holding is not None:
            self._context.memory.give_back(self._holding, count)

    def check_in_flight(self, *, is_full: bool) -> None:
        """Do not read while too much is unanswered."""
        if is_full:
            self.pause(ReadPause.IN_FLIGHT)
        elif ReadPause.IN_FLIGHT in self._pauses:
            self.resume(ReadPause.IN_FLIGHT)

    def pause(self, reason: ReadPause) -> None:
        """Do not read until every reason has ended."""
        if not self._pauses and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
            self._context.watch_unread(self._connection)
        self._pauses |= reason

    def resume(self, reason: ReadPause) -> None:
        """The reason has ended."""
        self._pauses &= ~reason
        if not self._pauses and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._context.is_read(self._connection)
            if self._partial_since is not None:  # the frame could not end while reading was paused
                self._partial_since = self._context.loop.time()

    def is_overdue(self, now: float) -> bool:
        """Whether a frame has begun that does not end in time."""
        since = self._partial_since
        return since is not None and not self._pauses and now - since > self._context.partial_s
