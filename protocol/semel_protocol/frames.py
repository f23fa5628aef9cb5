"""Splits a byte stream into frames by the four-byte size prefix of every request and response."""

from __future__ import annotations

from semel_protocol.errors import ProtocolError

SIZE_BYTES = 4


class FrameReader:
    """Splits a byte stream into frames of at most `frame_bytes_max` bytes, not counting the size prefix.

    Memory grows as bytes arrive, not by the announced size. Each byte is copied once, however many pieces a frame
    arrives in.
    """

    __slots__ = ("_missing", "_pending", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._pending = bytearray()
        self._missing = SIZE_BYTES

    @property
    def pending_bytes(self) -> int:
        """Bytes of the unfinished frame in memory, including its prefix."""
        return len(self._pending)

    def feed(self, data: bytes | memoryview) -> list[memoryview]:
        """Add `data` to the stream; return the frames that it completes, in order, without their prefixes.

        Raises ProtocolError for a negative or too large size; the stream cannot continue after that.
        """
        pending = self._pending
        if pending:
            pending += data
            if len(pending) < self._missing:
                return []
            self._pending = bytearray()
            view = memoryview(pending)
        else:
            view = memoryview(data)
        return self._cut(view)

    def _cut(self, view: memoryview) -> list[memoryview]:
        frames = []
        at, end = 0, len(view)
        self._missing = SIZE_BYTES
        while end - at >= SIZE_BYTES:
            size = self._checked(int.from_bytes(view[at : at + SIZE_BYTES], "big", signed=True))
            stop = at + SIZE_BYTES + size
            if stop > end:
                self._missing = SIZE_BYTES + size
                break
            frames.append(view[at + SIZE_BYTES : stop])
            at = stop
        if at < end:
            self._pending = bytearray(view[at:])
        return frames

    def _checked(self, size: int) -> int:
        if 0 <= size <= self.frame_bytes_max:
            return size
        raise ProtocolError(f"frame of {size} bytes; a frame has 0 to {self.frame_bytes_max}")
