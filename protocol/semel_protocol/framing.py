"""PURE. Cuts the bytes of one connection into whole frames: the four-byte size prefix of every Kafka message.

The reader of answers uses it: the client, and a broker that has opened a connection to another broker. The server side
of a broker has a frame buffer of its own, which shares scratch memory between connections and accounts for it.

asyncio's simple callback, `data_received`, allocates up to 256 KiB for every read. That costs more than all other work
on a small answer. Here small frames pass through one piece of scratch memory. The rest of a large frame is received
directly into the memory of that frame.
"""

from __future__ import annotations

from semel_protocol.errors import ProtocolError
from semel_protocol.foreign import explained

SCRATCH_BYTES = 32 << 10
_PREFIX_BYTES = 4


class FrameBuffer:
    """Receives bytes into `buffer()`; `received(count)` returns the frames that these bytes complete.

    frame_bytes_max: the largest frame, without its size prefix.
    unfilled_bytes_max: the largest allocation for bytes that have not arrived. A frame beyond it doubles its memory
    whenever that is full. None: a frame gets all its memory at once, which saves the copies.
    """

    __slots__ = ("_filled", "_frame", "_frame_bytes_max", "_scratch", "_size", "_unfilled_bytes_max")

    def __init__(self, frame_bytes_max: int, unfilled_bytes_max: int | None = None) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._unfilled_bytes_max = frame_bytes_max if unfilled_bytes_max is None else unfilled_bytes_max
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._frame: bytearray | None = None  # the incomplete frame, as far as it has memory
        self._size = 0  # the size of that frame when it is complete
        self._filled = 0  # bytes of that frame; without one, bytes of an incomplete prefix in the scratch memory

    def buffer(self) -> memoryview:
        """The memory for the next bytes; never empty."""
        if self._frame is None:
            return self._scratch[self._filled :]
        return memoryview(self._frame)[self._filled :]

    def received(self, count: int) -> list[bytes | bytearray]:
        """The frames that are complete now, in order, without size prefixes, each in memory of its own.

        count: bytes that were put into `buffer()`.
        Raises ProtocolError for a size below 0 or above `frame_bytes_max`; the stream cannot be read after that.
        """
        self._filled += count
        frame = self._frame
        if frame is None:
            return self._cut(self._filled)
        if self._filled < len(frame):
            return []
        if self._filled < self._size:
            self._frame = self._grown(frame, self._filled)
            return []
        self._frame, self._filled = None, 0
        return [frame]

    def _cut(self, end: int) -> list[bytes | bytearray]:
        scratch, at = self._scratch, 0
        frames: list[bytes | bytearray] = []
        while end - at >= _PREFIX_BYTES:
            start = at + _PREFIX_BYTES
            size = int.from_bytes(scratch[at:start], "big", signed=True)
            if not 0 <= size <= self._frame_bytes_max:
                wrong = f"frame of {size} bytes; a frame has 0 to {self._frame_bytes_max}"
                raise ProtocolError(explained(wrong, scratch[at:end]))
            at = start + size
            if at > end:
                self._size, self._filled = size, end - start
                self._frame = self._grown(scratch[start:end], self._unfilled_bytes_max)
                return frames
            frames.append(bytes(scratch[start:at]))
        self._filled = end - at
        scratch[: self._filled] = bytes(scratch[at:end])
        return frames

    def _grown(self, arrived: bytearray | memoryview, growth: int) -> bytearray:
        """New memory with the bytes that have arrived, larger by `growth` but not larger than the frame.

        The old memory is not resized, because the transport may still hold a view of it.
        """
        frame = bytearray(min(self._size, len(arrived) + growth))
        frame[: len(arrived)] = arrived
        return frame
