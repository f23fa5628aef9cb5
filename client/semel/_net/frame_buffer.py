"""PURE. Where the bytes of a connection land until they are whole frames.

asyncio's plain way, `data_received`, takes 256 KiB of fresh memory for every read, which costs more than all the rest
of reading a small answer. Here small frames pass through one piece of scratch memory, and what a large one has not got
yet is received straight into its own.
"""

from __future__ import annotations

from semel_protocol.errors import ProtocolError
from semel_protocol.foreign import explained

SCRATCH_BYTES = 32 << 10
_PREFIX_BYTES = 4


class FrameBuffer:
    """`buffer()` says where the next bytes go, `received(count)` that they are there."""

    __slots__ = ("_filled", "_frame", "_frame_bytes_max", "_scratch")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._frame: bytearray | None = None  # the frame under way, in its full size
        self._filled = 0  # of the frame; without one, of the scratch memory: a prefix that is not whole yet

    def buffer(self) -> memoryview:
        """Where the next bytes are to be put; never empty."""
        if self._frame is None:
            return self._scratch[self._filled :]
        return memoryview(self._frame)[self._filled :]

    def received(self, count: int) -> list[bytes | bytearray]:
        """The frames that are whole now, in order, without their size prefixes and each in memory of its own.

        Raises ProtocolError for a size that no frame can have; the stream cannot go on after it.
        """
        self._filled += count
        if self._frame is None:
            return self._cut(self._filled)
        if self._filled < len(self._frame):
            return []
        frame, self._frame, self._filled = self._frame, None, 0
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
                self._frame, self._filled = bytearray(size), end - start
                self._frame[: self._filled] = scratch[start:end]
                return frames
            frames.append(bytes(scratch[start:at]))
        self._filled = end - at
        scratch[: self._filled] = bytes(scratch[at:end])
        return frames
