"""PURE. In which leader epochs the records of a partition were written that this consumer has read (KIP-320).

After an unclean election, or a power cut that took what nobody had synced, the log may no longer be the one that was
read. A leader that is told the epoch of the last record says where the logs part: nothing is skipped in silence.
"""

from __future__ import annotations

UNKNOWN_EPOCH = -1
EPOCHS_MAX = 64
"""The oldest are forgotten."""


class EpochHistory:
    """(epoch, offset from which it was read), ascending; everything from there to `end` was read."""

    __slots__ = ("_entries", "end")

    def __init__(self) -> None:
        self._entries: list[tuple[int, int]] = []
        self.end: int | None = None

    @property
    def last(self) -> int:
        """The epoch of the last record read, -1 when not known."""
        return self._entries[-1][0] if self._entries else UNKNOWN_EPOCH

    def read(self, epoch: int, offset: int) -> None:
        """From `offset` on another epoch was read."""
        if epoch < self.last:
            self._entries.clear()  # no log goes back: whoever wrote this tells no epochs that mean anything
        elif epoch > self.last:
            self._entries.append((epoch, offset))
            del self._entries[:-EPOCHS_MAX]

    def truncate(self, offset: int | None) -> None:
        """Reading goes on at `offset`: what is known of the records below it stays, if they were read."""
        if offset is None or self.end is None or offset > self.end:
            self._entries.clear()
        else:
            self._entries = [entry for entry in self._entries if entry[1] < offset]
        self.end = offset

    def divergence(self, epoch: int, end_offset: int) -> int:
        """Where this log and the leader's part, or a little above: up to `epoch`, the latest that both may know, the
        leader's goes to `end_offset`."""
        ours = next((first for known, first in self._entries if known > epoch), self.end)
        assert ours is not None, "nothing was read"
        return min(ours, end_offset)
