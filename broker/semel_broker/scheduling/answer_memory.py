"""PURE: the memory of answers: one bound over all connections together.

An answer counts with all its bytes until the kernel has taken the last of them: a transport keeps all of a buffer of
which the kernel has taken a part. What a Fetch has read counts from the moment of reading. While the bound is reached,
Fetches wait in line, and connections whose peers do not take their answers are closed (`stalled`).
"""

from __future__ import annotations

from collections.abc import Callable


class AnswerHolding:
    """The answers of one connection. `untaken`: how many bytes its peer has not taken yet; `evict`: closes it."""

    __slots__ = ("_memory", "bytes", "evict", "moved_at", "reserved_bytes", "untaken", "untaken_then")

    def __init__(self, memory: AnswerMemory, untaken: Callable[[], int], evict: Callable[[], None]) -> None:
        self._memory = memory
        self.untaken = untaken
        self.evict = evict
        self.bytes = 0  # of answers, and those that are reserved
        self.reserved_bytes = 0  # read for an answer that is not made yet
        self.moved_at = 0.0  # when the peer was last seen to take something; seconds
        self.untaken_then = 0  # 0: it has not been looked at since it took all

    @property
    def answer_bytes_max(self) -> int:
        """Of an answer that can be as large as one likes, and that is made now."""
        return self._memory.answer_bytes_max

    @property
    def has_room(self) -> bool:
        """Whether an answer that may be large can be made now."""
        return not self._memory.is_exhausted

    def wait(self, once_there_is_room: Callable[[], None]) -> None:
        """Stand in line: `once_there_is_room` is called once, unless `leave` is called before."""
        self._memory.wait(once_there_is_room)

    def leave(self, once_there_is_room: Callable[[], None]) -> None:
        """Stand in line no more."""
        self._memory.leave(once_there_is_room)

    def take(self, count: int) -> None:
        """So many bytes are held from now on."""
        self._memory.add(self, count)
        if not self.untaken_then:
            self._memory.look_at(self)

    def give_back(self, count: int) -> None:
        """So many bytes are not held any more."""
        self.untaken_then = 0
        self._memory.add(self, -count)

    def reserve(self, count: int) -> None:
        """So many bytes have been read for the answer that is being made."""
        self.reserved_bytes += count
        self._memory.add(self, count)

    def unreserve(self) -> None:
        """The answer is made, and counts by itself, or it will not be made of what has been read."""
        count, self.reserved_bytes = self.reserved_bytes, 0
        if count:
            self._memory.add(self, -count)


class AnswerMemory:
    """`bytes_max`: over all connections; exceeded by one answer at most, and by answers that cannot be small.
    `now`: the time in seconds. `exhausted`: called when a request stands in line."""

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
        self._line: dict[Callable[[], None], None] = {}

    @property
    def is_exhausted(self) -> bool:
        return self.taken > self.bytes_max

    @property
    def waiting(self) -> int:
        """How many stand in line."""
        return len(self._line)

    @property
    def answer_bytes_max(self) -> int:
        """Of an answer that can be as large as one likes: a part of what is free."""
        return max(self._answer_bytes_min, (self.bytes_max - self.taken) // self._part_of_free)

    def open(self, untaken: Callable[[], int], evict: Callable[[], None]) -> AnswerHolding:
        """A connection has been accepted."""
        holding = AnswerHolding(self, untaken, evict)
        self._holdings[holding] = None
        return holding

    def close(self, holding: AnswerHolding) -> None:
        """The connection is gone, and so is what it holds."""
        if holding in self._holdings:
            self.add(holding, -holding.bytes)
            del self._holdings[holding]

    def add(self, holding: AnswerHolding, count: int) -> None:
        """The bytes that `holding` holds change by so much."""
        if holding not in self._holdings:  # a request of a connection that is gone
            return
        holding.bytes += count
        self.taken += count
        assert 0 <= holding.bytes <= self.taken, (holding.bytes, self.taken)
        while count < 0 and self._line and not self.is_exhausted:
            once_there_is_room = next(iter(self._line))
            del self._line[once_there_is_room]
            once_there_is_room()

    def wait(self, once_there_is_room: Callable[[], None]) -> None:
        """See `AnswerHolding`."""
        self._line[once_there_is_room] = None
        self._exhausted()

    def leave(self, once_there_is_room: Callable[[], None]) -> None:
        """See `AnswerHolding`."""
        self._line.pop(once_there_is_room, None)

    def look_at(self, holding: AnswerHolding) -> None:
        """Note what its peer has not taken by now."""
        holding.moved_at, holding.untaken_then = self._now(), holding.untaken()

    def stalled(self, moved_bytes_min: int, stalled_s: float) -> list[AnswerHolding]:
        """Connections to close so that a quarter of the memory is free again: of those whose peers have taken less than
        so much for so long, the ones that hold most."""
        slow = []
        for holding in self._holdings:
            if not holding.bytes:
                continue
            if not holding.untaken_then or holding.untaken() <= holding.untaken_then - moved_bytes_min:
                self.look_at(holding)
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
