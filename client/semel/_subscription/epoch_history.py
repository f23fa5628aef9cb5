"""PURE. The leader epochs of the records that this consumer has read from a partition (KIP-320).

After an unclean election, or a power failure before records were synced, the log may differ from the log that was read.
A leader that gets the epoch of the last record answers where the logs diverge.
"""

from __future__ import annotations

UNKNOWN_EPOCH = -1
EPOCHS_MAX = 64
"""The number of epochs kept; the oldest are dropped."""


class ReadEpochs:
    """Entries of (epoch, first offset read in it), ascending. Every offset from there to `end` was read."""

    __slots__ = ("_entries", "end")

    def __init__(self) -> None:
        self._entries: list[tuple[int, int]] = []
        self.end: int | None = None

    @property
    def last(self) -> int:
        """The epoch of the last record read, -1 when unknown."""
        return self._entries[-1][0] if self._entries else UNKNOWN_EPOCH

    def read(self, epoch: int, offset: int) -> None:
        """Records of another epoch were read from `offset` on."""
        if epoch < self.last:
            self._entries.clear()  # epochs never decrease within a log, so the writer's epochs have no meaning
        elif epoch > self.last:
            self._entries.append((epoch, offset))
            del self._entries[:-EPOCHS_MAX]

    def truncate(self, offset: int | None) -> None:
        """Reading continues at `offset`. Entries below it stay, if those records were read."""
        if offset is None or self.end is None or offset > self.end:
            self._entries.clear()
        else:
            self._entries = [entry for entry in self._entries if entry[1] < offset]
        self.end = offset

    def divergence(self, epoch: int, end_offset: int) -> int:
        """The offset where this log and the leader's diverge, or a little above.

        epoch: the latest epoch that both may have. end_offset: the end of the leader's log in it.
        """
        ours = next((first for known, first in self._entries if known > epoch), self.end)
        assert ours is not None, "nothing was read"
        return min(ours, end_offset)
