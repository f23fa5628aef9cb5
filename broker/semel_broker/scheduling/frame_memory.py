"""PURE: the memory of requests, from their first byte to their answer, with one bound over all connections.

Memory is taken as bytes arrive. A connection that needs memory while none is free waits in a queue. Small frames do not
wait behind large ones, which get at most half of the memory; the smallest wait for none. One frame at a time is
favoured: alternately the one that lacks the fewest bytes and the one that has waited longest. The favoured frame gets
all its memory, above the bound if necessary. Connections of one address get at most three quarters. While connections
wait, those that hold memory without progress are closed (`stalled`).
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import nsmallest
from typing import Final

READ_BYTES_EXHAUSTED: Final = 16 << 10
"""A connection may always hold so much: the largest receive while the memory is exhausted, or a frame in parts."""
SERVED_AT_ONCE_MAX: Final = 64
"""Queued connections checked each time that memory is given back."""


class Holding:
    """The memory of one connection. `address`: the host of its peer; `evict`: closes the connection."""

    __slots__ = ("address", "bytes", "evict", "frame_bytes", "granted", "is_new", "moved_bytes", "wanted")

    def __init__(self, address: str, evict: Callable[[], None]) -> None:
        self.address = address
        self.evict = evict
        self.bytes = 0
        self.frame_bytes = 0  # final size of the frame being received
        self.wanted = 0  # bytes asked for, while it waits in a queue
        self.granted: Callable[[], None] | None = None  # called when they are granted; while it waits in a queue
        self.moved_bytes = 0  # received or answered since the last `stalled`
        self.is_new = True  # it held nothing at the last `stalled`, or at some time since


class FrameMemory:
    """Counts the bytes of requests over all connections. They exceed `bytes_max` by one frame at most, and by
    `always_bytes` for each connection.
    """

    def __init__(self, bytes_max: int, small_frame_bytes: int, always_bytes: int = READ_BYTES_EXHAUSTED) -> None:
        self.bytes_max = bytes_max
        self._always_bytes = always_bytes
        self.taken = 0
        self._small_frame_bytes = small_frame_bytes
        self._of_address: dict[str, int] = {}
        self._holdings: dict[Holding, None] = {}
        self._small_queue: dict[Holding, None] = {}
        self._large_queue: dict[Holding, None] = {}
        self._favoured: Holding | None = None  # its frame gets all the memory that it needs
        self._favours = 0

    @property
    def has_waiting(self) -> bool:
        """Whether a connection waits for memory."""
        return bool(self._small_queue or self._large_queue)

    @property
    def is_exhausted(self) -> bool:
        return self.taken >= self.bytes_max

    def open(self, address: str, evict: Callable[[], None]) -> Holding:
        """Begin to count for an accepted connection."""
        holding = Holding(address, evict)
        self._holdings[holding] = None
        return holding

    def close(self, holding: Holding) -> None:
        """Release all bytes of a closed connection."""
        self._holdings.pop(holding, None)
        self._small_queue.pop(holding, None)
        self._large_queue.pop(holding, None)
        if self._favoured is holding:
            self._favoured = None
        self._add(holding, -holding.bytes)
        self._serve_queues()

    def take(self, holding: Holding, count: int) -> None:
        """Count `count` bytes of small frames that have been received whole."""
        holding.moved_bytes += count
        self._add(holding, count)

    def may_read_on(self, holding: Holding, granted: Callable[[], None]) -> bool:
        """Whether a connection between two frames may receive more; if not, `granted` is called when it may.

        A connection that holds nothing may always receive its next frame.
        """
        return self._may_begin(holding) or self.grow(holding, 0, 0, granted)

    def grow(self, holding: Holding, count: int, frame_bytes: int, granted: Callable[[], None]) -> bool:
        """Take `count` more bytes for a frame of `frame_bytes`; if they do not fit, call `granted` when they do."""
        holding.frame_bytes = frame_bytes
        if count and self._favoured is None and not self._fits(holding, count):
            self._favoured = holding
        if self._fits(holding, count):
            self._add(holding, count)
            return True
        holding.wanted, holding.granted = count, granted
        (self._large_queue if self._is_large(holding) else self._small_queue)[holding] = None
        return False

    def moved(self, holding: Holding, count: int) -> None:
        """Note progress: `count` bytes of a frame whose memory is taken have arrived."""
        holding.moved_bytes += count

    def whole(self, holding: Holding) -> None:
        """The frame of `holding` has been received whole."""
        holding.frame_bytes = 0
        if self._favoured is holding:
            self._favoured = None
            self._serve_queues()

    def give_back(self, holding: Holding, count: int) -> None:
        """Release `count` bytes, which are answered."""
        holding.moved_bytes += count
        self._add(holding, -count)
        if holding in self._small_queue and self._may_begin(holding):
            self._grant(self._small_queue, holding)
        self._serve_queues()

    def stalled(self, moved_bytes_min: int) -> list[Holding]:
        """The connections to close so that the queued ones get their memory.

        Chosen are the ones with the most bytes, among those that hold at least `moved_bytes_min`, have moved less since
        the last call, and are not queued themselves. A connection that holds less has sent a few small requests and
        may be waiting for its turn. A connection that held nothing at the last call has not had enough time.
        """
        waiting = {**self._small_queue, **self._large_queue}
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

    @staticmethod
    def _may_begin(holding: Holding) -> bool:
        return not holding.bytes and not holding.wanted

    def _fits(self, holding: Holding, count: int) -> bool:
        if not count:
            return not self.is_exhausted
        if holding is self._favoured or self.taken == holding.bytes:
            return True
        if max(holding.frame_bytes, holding.bytes + count) <= self._always_bytes:
            return True
        if self._of_address.get(holding.address, 0) + count > self.bytes_max * 3 // 4:
            return False
        return self.taken + count <= (self.bytes_max // 2 if self._is_large(holding) else self.bytes_max)

    def _is_large(self, holding: Holding) -> bool:
        return holding.frame_bytes > self._small_frame_bytes

    def _serve_queues(self) -> None:
        """Grant the requests that fit, small frames and small requests first; otherwise favour a frame."""
        for queue in (self._small_queue, self._large_queue):
            if not queue:
                continue
            for holding in nsmallest(SERVED_AT_ONCE_MAX, queue, key=lambda each: each.wanted):
                if holding in queue and self._fits(holding, holding.wanted):
                    self._grant(queue, holding)
            if self._favoured is None and (growing := [each for each in queue if each.wanted]):
                self._favours += 1
                shortest = min(growing, key=lambda each: each.frame_bytes - each.bytes)
                self._favoured = shortest if self._favours % 2 else growing[0]
                self._grant(queue, self._favoured)

    def _grant(self, queue: dict[Holding, None], holding: Holding) -> None:
        del queue[holding]
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
