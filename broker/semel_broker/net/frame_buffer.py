"""Where the bytes of a connection land until they are whole frames: small ones pass through scratch memory that all
connections share, a large one is received into memory of its own, which grows as its bytes arrive."""

from __future__ import annotations

import struct

from semel_protocol.errors import ProtocolError

_HEAD = struct.Struct(">ih")  # the size prefix and the API key: what is needed to know the bound of a frame
_PREFIX_BYTES = 4
_FRAME_BYTES_MIN = 8  # API key, version and correlation id
_PRODUCE = 0

SCRATCH_BYTES = 128 << 10
FIRST_GROWTH_BYTES = 64 << 10


class FrameBuffer:
    """Cuts what is received into frames without their size prefixes, each in memory of its own.

    `buffer()` says where the next bytes go, `received(count)` that they are there; while there is `growth`, `grow` has
    to be called first. `scratch` may be shared, because nothing stays in it after `received` returns; an idle
    connection holds no memory. The memory of a large frame doubles when it is full: what a size prefix announces takes
    nothing.
    """

    __slots__ = ("_filled", "_frame", "_frame_bytes_max", "_head", "_other_bytes_max", "_scratch", "_size")

    def __init__(self, scratch: memoryview, *, produce_bytes_max: int, other_bytes_max: int) -> None:
        self._scratch = scratch
        self._frame_bytes_max = produce_bytes_max
        self._other_bytes_max = other_bytes_max
        self._head = b""  # the beginning of a frame, too short to tell its size and API
        self._frame: bytearray | None = None  # the frame that is being received, as far as it has memory
        self._size = 0  # of that frame, when it is whole
        self._filled = 0

    @property
    def is_partial(self) -> bool:
        """Whether a frame has begun and not ended."""
        return self._frame is not None or bool(self._head)

    @property
    def held_bytes(self) -> int:
        """Memory of the frame that is being received."""
        return 0 if self._frame is None else len(self._frame)

    @property
    def frame_bytes(self) -> int:
        """Size of the frame that is being received, when it is whole; 0 between frames."""
        return 0 if self._frame is None else self._size

    @property
    def growth(self) -> int:
        """Bytes by which the memory of the frame has to grow before more can be received."""
        if self._frame is None or self._filled < len(self._frame):
            return 0
        held = len(self._frame)
        return min(self._size, max(2 * held, FIRST_GROWTH_BYTES)) - held

    def grow(self) -> None:
        """Take the memory that is missing, if any is."""
        if self._frame is not None and (growth := self.growth):
            grown = bytearray(len(self._frame) + growth)  # the transport may still hold a view of the old one
            grown[: self._filled] = self._frame
            self._frame = grown

    def buffer(self) -> memoryview:
        """Where the next bytes are to be put."""
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        return self._scratch[len(self._head) :]

    def received(self, count: int) -> list[bytearray]:
        """`count` bytes were put into `buffer()`: the frames that are whole now, in order.

        Raises ProtocolError for a size that no frame can have; the stream cannot go on after it.
        """
        if self._frame is not None:
            self._filled += count
            if self._filled < self._size:
                return []
            frame, self._frame = self._frame, None
            return [frame]
        if self._head:
            self._scratch[: len(self._head)] = self._head
            count += len(self._head)
            self._head = b""
        return self._cut(count)

    def _cut(self, end: int) -> list[bytearray]:
        scratch, at = self._scratch, 0
        frames: list[bytearray] = []
        while end - at >= _HEAD.size:
            size, api_key = _HEAD.unpack_from(scratch, at)
            self._check(size, api_key)
            at += _PREFIX_BYTES
            if end - at < size:
                self._frame = bytearray(scratch[at:end])
                self._size, self._filled = size, end - at
                return frames
            frames.append(bytearray(scratch[at : at + size]))
            at += size
        self._head = bytes(scratch[at:end])
        return frames

    def _check(self, size: int, api_key: int) -> None:
        most = self._frame_bytes_max if api_key == _PRODUCE else self._other_bytes_max
        if not _FRAME_BYTES_MIN <= size <= most:
            raise ProtocolError(f"frame of {size} bytes; a request of API {api_key} has {_FRAME_BYTES_MIN} to {most}")
