"""A bound on bytes over all connections together; who finds it used up waits in line."""

from __future__ import annotations

from collections.abc import Callable, Hashable


class ByteBudget:
    """Bytes taken by owners (connections). A grant is made when the bytes fit, or when nothing else is taken, so that
    no request is too large for ever; those who wait are served in the order they came."""

    __slots__ = ("_line", "bytes_max", "taken")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.taken = 0
        self._line: dict[Hashable, tuple[int, Callable[[], None]]] = {}

    @property
    def exhausted(self) -> bool:
        return self.taken >= self.bytes_max

    def take(self, count: int) -> None:
        """Account for bytes that are there already."""
        self.taken += count

    def ask(self, owner: Hashable, count: int, granted: Callable[[], None]) -> bool:
        """Take `count` bytes if they fit, and say so; else stand in line until `granted` is called, the bytes taken."""
        if not self._line and self._fits(count):
            self.taken += count
            return True
        self._line[owner] = (count, granted)
        return False

    def withdraw(self, owner: Hashable) -> bool:
        """Leave the line; False if `owner` was not in it."""
        return self._line.pop(owner, None) is not None

    def give_back(self, count: int) -> None:
        """`count` bytes are free again; serve the line as far as it fits."""
        self.taken -= count
        assert self.taken >= 0, self.taken
        while self._line:
            owner, (wanted, granted) = next(iter(self._line.items()))
            if not self._fits(wanted):
                return
            del self._line[owner]
            self.taken += wanted
            granted()

    def _fits(self, count: int) -> bool:
        return self.taken == 0 or self.taken + count <= self.bytes_max
