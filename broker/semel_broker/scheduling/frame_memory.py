"""PURE: the memory of requests, from their first byte to their answer: one bound over all connections together.

Memory is taken as bytes arrive. A connection that wants more while there is none waits in line. Small frames do not
stand behind large ones, which get at most half of the memory. One frame at a time is favoured, in turns the one that
misses least and the one that has waited longest: it gets what it needs to become whole, beyond the bound if need be.
Connections of one address get at most three quarters. While connections wait, those that hold memory and do not move
are closed (`stalled`).
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import nsmallest
from typing import Final

SERVED_AT_ONCE_MAX: Final = 64
"""Of those in line, so many are looked at whenever memory is given back."""


class Holding:
    """What one connection holds. `address`: the host of its peer; `evict`: closes the connection."""

    __slots__ = ("address", "bytes", "evict", "frame_bytes", "granted", "is_new", "moved_bytes", "wanted")

    def __init__(self, address: str, evict: Callable[[], None]) -> None:
        self.address = address
        self.evict = evict
        self.bytes = 0
        self.frame_bytes = 0  # of the frame that is being received, once it is whole
        self.wanted = 0  # more bytes, while it waits in line
        self.granted: Callable[[], None] | None = None  # while it waits in line
        self.moved_bytes = 0  # received or answered since `stalled` was asked last
        self.is_new = True  # it held nothing when `stalled` was asked last, or has held nothing since


class FrameMemory:
    """`bytes_max`: over all connections. What is taken exceeds it by one frame at most."""

    def __init__(self, bytes_max: int, small_frame_bytes: int) -> None:
        self.bytes_max = bytes_max
        self.taken = 0
        self._small_frame_bytes = small_frame_bytes
        self._of_address: dict[str, int] = {}
        self._holdings: dict[Holding, None] = {}
        self._line: dict[Holding, None] = {}
        self._large_line: dict[Holding, None] = {}
        self._favoured: Holding | None = None  # its frame gets what it needs
        self._favours = 0

    @property
    def has_waiting(self) -> bool:
        """Whether a connection waits for memory."""
        return bool(self._line or self._large_line)

    @property
    def is_exhausted(self) -> bool:
        return self.taken >= self.bytes_max

    def open(self, address: str, evict: Callable[[], None]) -> Holding:
        """A connection has been accepted."""
        holding = Holding(address, evict)
        self._holdings[holding] = None
        return holding

    def close(self, holding: Holding) -> None:
        """The connection is gone, and so is what it holds."""
        self._holdings.pop(holding, None)
        self._line.pop(holding, None)
        self._large_line.pop(holding, None)
        if self._favoured is holding:
            self._favoured = None
        self._add(holding, -holding.bytes)
        self._serve_lines()

    def take(self, holding: Holding, count: int) -> None:
        """Account for whole small frames, which are there already."""
        holding.moved_bytes += count
        self._add(holding, count)

    def may_read_on(self, holding: Holding, granted: Callable[[], None]) -> bool:
        """Whether more may be received by a connection between two frames; if not, `granted` is called when it may.

        A connection that holds nothing may always receive its next frame.
        """
        return self._may_begin(holding) or self._ask(holding, 0, 0, granted)

    def grow(self, holding: Holding, count: int, frame_bytes: int, granted: Callable[[], None]) -> bool:
        """Take `count` more bytes for a frame of `frame_bytes`; if that does not fit, `granted` is called once they are
        taken."""
        return self._ask(holding, count, frame_bytes, granted)

    def moved(self, holding: Holding, count: int) -> None:
        """So many bytes of a frame whose memory is taken have arrived."""
        holding.moved_bytes += count

    def whole(self, holding: Holding) -> None:
        """The frame that was being received is whole."""
        holding.frame_bytes = 0
        if self._favoured is holding:
            self._favoured = None
            self._serve_lines()

    def give_back(self, holding: Holding, count: int) -> None:
        """So many bytes are answered."""
        holding.moved_bytes += count
        self._add(holding, -count)
        if holding in self._line and self._may_begin(holding):
            self._grant(self._line, holding)
        self._serve_lines()

    def stalled(self, moved_bytes_min: int) -> list[Holding]:
        """Connections to close so that those in line get what they want: of those that hold as much and have moved less
        since the last call, and do not wait in line themselves, the ones that hold most.

        One that holds less has sent a few small requests, and may well be waiting for its turn; one that held nothing
        at the last call has had no time yet.
        """
        waiting = {**self._line, **self._large_line}
        slow = [
            holding
            for holding in self._holdings
            if holding.bytes >= moved_bytes_min > holding.moved_bytes and not holding.is_new and holding not in waiting
        ]
        slow.sort(key=lambda holding: (self._of_address[holding.address], holding.bytes), reverse=True)
        for holding in self._holdings:
            holding.moved_bytes = 0
            holding.is_new = not holding.bytes
        missing = sum(holding.wanted or 1 for holding in waiting)
        chosen = []
        for holding in slow:
            if missing <= 0:
                break
            missing -= holding.bytes
            chosen.append(holding)
        return chosen

    def _ask(self, holding: Holding, count: int, frame_bytes: int, granted: Callable[[], None]) -> bool:
        holding.frame_bytes = frame_bytes
        if count and self._favoured is None and not self._fits(holding, count):
            self._favoured = holding
        if self._fits(holding, count):
            self._add(holding, count)
            return True
        holding.wanted, holding.granted = count, granted
        (self._large_line if self._is_large(holding) else self._line)[holding] = None
        return False

    @staticmethod
    def _may_begin(holding: Holding) -> bool:
        return not holding.bytes and not holding.wanted

    def _fits(self, holding: Holding, count: int) -> bool:
        if not count:
            return not self.is_exhausted
        if holding is self._favoured or self.taken == holding.bytes:
            return True
        if self._of_address.get(holding.address, 0) + count > self.bytes_max * 3 // 4:
            return False
        return self.taken + count <= (self.bytes_max // 2 if self._is_large(holding) else self.bytes_max)

    def _is_large(self, holding: Holding) -> bool:
        return holding.frame_bytes > self._small_frame_bytes

    def _serve_lines(self) -> None:
        """Grant what fits, small frames first, and of these the smallest wish; else favour a frame."""
        for line in (self._line, self._large_line):
            if not line:
                continue
            for holding in nsmallest(SERVED_AT_ONCE_MAX, line, key=lambda each: each.wanted):
                if holding in line and self._fits(holding, holding.wanted):
                    self._grant(line, holding)
            if self._favoured is None and (growing := [each for each in line if each.wanted]):
                self._favours += 1
                shortest = min(growing, key=lambda each: each.frame_bytes - each.bytes)
                self._favoured = shortest if self._favours % 2 else growing[0]
                self._grant(line, self._favoured)

    def _grant(self, line: dict[Holding, None], holding: Holding) -> None:
        del line[holding]
        self._add(holding, holding.wanted)
        granted, holding.granted, holding.wanted = holding.granted, None, 0
        assert granted is not None
        granted()

    def _add(self, holding: Holding, count: int) -> None:
        holding.bytes += count
        holding.is_new = holding.is_new or not holding.bytes
        self.taken += count
        total = self._of_address.get(holding.address, 0) + count
        assert 0 <= holding.bytes <= self.taken, (holding.bytes, self.taken)
        if total:
            self._of_address[holding.address] = total
        else:
            self._of_address.pop(holding.address, None)
