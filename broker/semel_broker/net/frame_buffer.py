"""The receive buffer of a connection: cuts received bytes into frames.

Small frames pass through scratch memory that all connections share. A large frame gets memory of its own, which grows
as its bytes arrive.
"""

from __future__ import annotations

import struct

from semel_protocol.api_key import ApiKey
from semel_protocol.errors import ProtocolError

_HEAD = struct.Struct(">ih")  # size prefix and API key, which determine the size bound of a frame
_PREFIX_BYTES = 4
_FRAME_BYTES_MIN = 8  # API key, version and correlation id
_PRODUCE = ApiKey.PRODUCE.value

SCRATCH_BYTES = 128 << 10
FIRST_GROWTH_BYTES = 64 << 10


class FrameBuffer:
    """Cuts received bytes into frames without their size prefixes, each in memory of its own.

    The caller writes bytes into `buffer()` and then calls `received(count)`. While `growth` is not 0, it must call
    `grow` first. `scratch` may be shared, because it holds no data after `received` returns; an idle connection holds
    no memory. The memory of a large frame doubles when it is full. A size prefix alone takes no memory.

    `bytes_max`: the bound of every frame, which need not be a request; None: requests, each bounded by its API.
    """

    __slots__ = ("_filled", "_frame", "_frame_bytes_max", "_head", "_other_bytes_max", "_scratch", "_size", "bytes_max")

    def __init__(self, scratch: memoryview, *, produce_bytes_max: int, other_bytes_max: int) -> None:
        self._scratch = scratch
        self.bytes_max: int | None = None
        self._frame_bytes_max = produce_bytes_max
        self._other_bytes_max = other_bytes_max
        self._head = b""  # the first bytes of a frame, too few for its size and API key
        self._frame: bytearray | None = None  # memory of the frame being received
        self._size = 0  # final size of that frame
        self._filled = 0

    @property
    def is_partial(self) -> bool:
        """Whether a frame has been received in part."""
        return self._frame is not None or bool(self._head)

    @property
    def held_bytes(self) -> int:
        """Memory of the frame being received, in bytes."""
        return 0 if self._frame is None else len(self._frame)

    @property
    def frame_bytes(self) -> int:
        """Final size of the frame being received; 0 between frames."""
        return 0 if self._frame is None else self._size

    @property
    def growth(self) -> int:
        """Bytes by which the frame's memory must grow before the next receive."""
        if self._frame is None or self._filled < len(self._frame):
            return 0
        held = len(self._frame)
        return min(self._size, max(2 * held, FIRST_GROWTH_BYTES)) - held

    def grow(self) -> None:
        """Grow the memory of the frame by `growth`."""
        if self._frame is not None and (growth := self.growth):
            grown = bytearray(len(self._frame) + growth)  # the transport may still hold a view of the old one
            grown[: self._filled] = self._frame
            self._frame = grown

    def buffer(self) -> memoryview:
        """The memory for the next bytes."""
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        return self._scratch[len(self._head) :]

    def received(self, count: int) -> list[bytearray]:
        """`count` bytes have been written into `buffer()`; return the frames that are now complete, in order.

        Raises ProtocolError for an invalid frame size; the connection must then be closed.
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
        while end - at >= (_HEAD.size if self.bytes_max is None else _PREFIX_BYTES):
            size = self._size_at(at)
            at += _PREFIX_BYTES
            if end - at < size:
                self._frame = bytearray(scratch[at:end])
                self._size, self._filled = size, end - at
                return frames
            frames.append(bytearray(scratch[at : at + size]))
            at += size
        self._head = bytes(scratch[at:end])
        return frames

    def _size_at(self, at: int) -> int:
        """The size of the frame that begins there. Raises ProtocolError."""
        if (most := self.bytes_max) is not None:
            size = int.from_bytes(self._scratch[at : at + _PREFIX_BYTES], "big", signed=True)
            if not 0 <= size <= most:
                raise ProtocolError(f"frame of {size} bytes; before authentication it has 0 to {most}")
            return size
        size, api_key = _HEAD.unpack_from(self._scratch, at)
        most = self._frame_bytes_max if api_key == _PRODUCE else self._other_bytes_max
        if not _FRAME_BYTES_MIN <= size <= most:
            raise ProtocolError(f"frame of {size} bytes; a request of API {api_key} has {_FRAME_BYTES_MIN} to {most}")
        return int(size)
