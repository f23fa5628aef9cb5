"""PURE: a bounded queue of lines, with a room for each kind of line, that counts the lines that found no room.

Kinds do not displace each other: a flood of one kind fills its own room alone. The lines stay in the order of their
arrival, whatever their kinds. Where lines were lost, the queue has one `Lost` with their number, so the reader of the
output sees how many lines are missing, and where.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import msgspec


class Room(msgspec.Struct, frozen=True):
    """The bounds of the waiting lines of one kind.

    `is_hard`: a line beyond them is lost. Otherwise it waits nevertheless, and `has_room` is for the callers.
    """

    lines_max: int
    bytes_max: int
    is_hard: bool = True


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line, with its end."""

    kind: str
    data: bytes


class Lost(msgspec.Struct, gc=False):
    """Lines that were lost in this place: their number by kind, and when the first one came (ms since 1970)."""

    since_ms: int
    lines: dict[str, int]


class _Use(msgspec.Struct):
    """The room that the lines of one kind occupy."""

    lines: int = 0
    bytes: int = 0


class LineQueue:
    """`rooms`: by kind. A line occupies its room until it is `done`: also while it is being written."""

    def __init__(self, rooms: Mapping[str, Room]) -> None:
        self.lost = dict.fromkeys(rooms, 0)
        """Lines lost since the start, by kind."""
        self._rooms = dict(rooms)
        self._uses = {kind: _Use() for kind in rooms}
        self._waiting: deque[Line | Lost] = deque()

    def __len__(self) -> int:
        """The number of lines and of gaps that wait."""
        return len(self._waiting)

    def put(self, kind: str, data: bytes, now_ms: int) -> bool:
        """Append a line. False: there is no room, and the line is lost."""
        use, room = self._uses[kind], self._rooms[kind]
        if room.is_hard and (use.lines >= room.lines_max or use.bytes + len(data) > room.bytes_max):
            self._lose(kind, now_ms)
            return False
        use.lines += 1
        use.bytes += len(data)
        self._waiting.append(Line(kind, data))
        return True

    def has_room(self, kind: str) -> bool:
        """Whether the waiting lines of this kind are within their bounds."""
        use, room = self._uses[kind], self._rooms[kind]
        return use.lines < room.lines_max and use.bytes < room.bytes_max

    def take(self, bytes_max: int) -> list[Line | Lost]:
        """Remove the oldest lines: at least one, and further ones up to `bytes_max` bytes."""
        taken: list[Line | Lost] = []
        size = 0
        while self._waiting:
            first = self._waiting[0]
            if isinstance(first, Line):
                size += len(first.data)
                if taken and size > bytes_max:
                    break
            taken.append(self._waiting.popleft())
        return taken

    def done(self, taken: Sequence[Line | Lost]) -> None:
        """Free the room of lines that were taken."""
        for each in taken:
            if isinstance(each, Line):
                use = self._uses[each.kind]
                use.lines -= 1
                use.bytes -= len(each.data)

    def lose_all(self) -> None:
        """Lose the lines that wait: there is no output any more."""
        taken = self.take_all()
        self.done(taken)
        for each in taken:
            if isinstance(each, Line):
                self.lost[each.kind] += 1

    def take_all(self) -> list[Line | Lost]:
        """Remove all lines."""
        taken = list(self._waiting)
        self._waiting.clear()
        return taken

    def _lose(self, kind: str, now_ms: int) -> None:
        self.lost[kind] += 1
        last = self._waiting[-1] if self._waiting else None
        if not isinstance(last, Lost):
            last = Lost(now_ms, {})
            self._waiting.append(last)
        last.lines[kind] = last.lines.get(kind, 0) + 1
