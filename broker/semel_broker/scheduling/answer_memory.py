"""PURE: the memory of answers, with one bound over all connections.

An answer counts in full until the kernel has accepted its last byte, because a transport keeps the whole buffer until
then. Data that a Fetch has read counts from the moment of the read. While the bound is exceeded, Fetches wait in a
queue, and connections whose peers do not read their answers are closed (`stalled`).
"""

from __future__ import annotations

from collections.abc import Callable


class AnswerHolding:
    """The answers of one connection.

    `untaken`: returns the bytes that its peer has not acknowledged; `evict`: closes the connection.
    """

    __slots__ = ("_memory", "bytes", "evict", "moved_at", "reserved_bytes", "untaken", "untaken_then")

    def __init__(self, memory: AnswerMemory, untaken: Callable[[], int], evict: Callable[[], None]) -> None:
        self._memory = memory
        self.untaken = untaken
        self.evict = evict
        self.bytes = 0  # of answers, including the reserved bytes
        self.reserved_bytes = 0  # read for an answer that is not ready yet
        self.moved_at = 0.0  # the last time the peer was seen to read; seconds
        self.untaken_then = 0  # at `moved_at`; 0: not checked since the peer read all

    @property
    def answer_bytes_max(self) -> int:
        """The size limit in bytes of an answer that may be cut, such as that of a Fetch: the free memory."""
        return self._memory.answer_bytes_max

    @property
    def has_room(self) -> bool:
        """Whether a large answer may be made now."""
        return not self._memory.is_exhausted

    def wait(self, on_room: Callable[[], None]) -> None:
        """Queue `on_room`: it is called once, when there is room, unless `leave` is called before."""
        self._memory.wait(on_room)

    def leave(self, on_room: Callable[[], None]) -> None:
        """Remove `on_room` from the queue."""
        self._memory.leave(on_room)

    def take(self, count: int) -> None:
        """Count `count` more bytes of answers."""
        self._memory.add(self, count)
        if not self.untaken_then:
            self._memory.note_progress(self)

    def give_back(self, count: int) -> None:
        """Release `count` bytes, which the kernel has accepted."""
        self.untaken_then = 0
        self._memory.add(self, -count)

    def reserve(self, count: int) -> None:
        """Count `count` bytes read for an answer that is not ready yet."""
        self.reserved_bytes += count
        self._memory.add(self, count)

    def unreserve(self) -> None:
        """Release the reserved bytes: the answer counts by itself now, or its data was dropped."""
        count, self.reserved_bytes = self.reserved_bytes, 0
        if count:
            self._memory.add(self, -count)


class AnswerMemory:
    """Counts the bytes of answers over all connections.

    `bytes_max`: exceeded by at most one answer, and by answers with a size that is not free to choose. `now`: the time
    in seconds. `exhausted`: called when a request is queued.
    """

    def __init__(
        self,
        bytes_max: int,
        part_of_free: int,
        answer_bytes_min: int,
        now: Callable[[], float],
        exhausted: Callable[[], None],
    ) -> None:
        self.bytes_max = bytes_max
        self._now = now
        self.taken = 0
        self._part_of_free = part_of_free
        self._answer_bytes_min = answer_bytes_min
        self._exhausted = exhausted
        self._holdings: dict[AnswerHolding, None] = {}
        self._queue: dict[Callable[[], None], None] = {}

    @property
    def is_exhausted(self) -> bool:
        return self.taken > self.bytes_max

    @property
    def waiting(self) -> int:
        """The number of queued requests."""
        return len(self._queue)

    @property
    def answer_bytes_max(self) -> int:
        """The size limit of an answer with a free choice of size: a part of the free memory."""
        return max(self._answer_bytes_min, (self.bytes_max - self.taken) // self._part_of_free)

    def open(self, untaken: Callable[[], int], evict: Callable[[], None]) -> AnswerHolding:
        """Begin to count for an accepted connection."""
        holding = AnswerHolding(self, untaken, evict)
        self._holdings[holding] = None
        return holding

    def close(self, holding: AnswerHolding) -> None:
        """Release all bytes of a closed connection."""
        if holding in self._holdings:
            self.add(holding, -holding.bytes)
            del self._holdings[holding]

    def add(self, holding: AnswerHolding, count: int) -> None:
        """Change the bytes of `holding` by `count`; call queued requests if there is room again."""
        if holding not in self._holdings:  # its connection is closed
            return
        holding.bytes += count
        self.taken += count
        assert 0 <= holding.bytes <= self.taken, (holding.bytes, self.taken)
        while count < 0 and self._queue and not self.is_exhausted:
            on_room = next(iter(self._queue))
            del self._queue[on_room]
            on_room()

    def wait(self, on_room: Callable[[], None]) -> None:
        """See `AnswerHolding`."""
        self._queue[on_room] = None
        self._exhausted()

    def leave(self, on_room: Callable[[], None]) -> None:
        """See `AnswerHolding`."""
        self._queue.pop(on_room, None)

    def note_progress(self, holding: AnswerHolding) -> None:
        """Note the bytes that the peer has not acknowledged by now."""
        holding.moved_at, holding.untaken_then = self._now(), holding.untaken()

    def stalled(self, moved_bytes_min: int, stalled_s: float) -> list[AnswerHolding]:
        """The connections to close so that a quarter of the memory is free again.

        Chosen are the ones with the most bytes, among those whose peers have read less than `moved_bytes_min` for
        `stalled_s`.
        """
        slow = []
        for holding in self._holdings:
            if not holding.bytes:
                continue
            if not holding.untaken_then or holding.untaken() <= holding.untaken_then - moved_bytes_min:
                self.note_progress(holding)
            elif self._now() - holding.moved_at >= stalled_s:
                slow.append(holding)
        slow.sort(key=lambda holding: holding.bytes, reverse=True)
        missing = self.taken - self.bytes_max * 3 // 4
        chosen = []
        for holding in slow:
            if missing <= 0:
                break
            missing -= holding.bytes
            chosen.append(holding)
        return chosen
