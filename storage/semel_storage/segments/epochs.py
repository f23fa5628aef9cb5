"""PURE: the history of leader epochs in one log, each with the first offset written under it (KIP-101, KIP-279)."""

from bisect import bisect_right
from collections.abc import Iterable

UNDEFINED = -1


class EpochHistory:
    """The epochs of one log, each with the offset where it starts."""

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self.entries: list[tuple[int, int]] = list(entries)
        """(epoch, start offset), ascending in both."""
        self.is_dirty = False
        """Changed since the last save, which clears the flag."""

    @property
    def latest(self) -> int:
        """The newest epoch, -1 when there is none."""
        return self.entries[-1][0] if self.entries else UNDEFINED

    @property
    def earliest(self) -> int:
        """The oldest epoch, -1 when there is none."""
        return self.entries[0][0] if self.entries else UNDEFINED

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` starts at `start_offset`; ignored unless it is newer than the latest epoch.

        Removes epochs that start at or after `start_offset`: they have no records.
        """
        if epoch <= self.latest:
            return
        while self.entries and self.entries[-1][1] >= start_offset:
            self.entries.pop()
        assert start_offset >= 0, "an epoch begins with a record"
        self.entries.append((epoch, start_offset))
        self.is_dirty = True

    def epoch_of(self, offset: int) -> int:
        """The epoch of the record at `offset`, -1 if unknown."""
        place = bisect_right(self.entries, offset, key=lambda entry: entry[1])
        return self.entries[place - 1][0] if place else UNDEFINED

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(largest known epoch <= `epoch`, its end offset), as OffsetForLeaderEpoch defines it.

        (-1, -1) if `epoch` is newer than all known epochs or none is known. An epoch older than all known ones ends
        where the first known one starts.
        """
        if not self.entries or epoch > self.latest or epoch < 0:
            return UNDEFINED, UNDEFINED
        if epoch == self.latest:
            return epoch, log_end_offset
        place = bisect_right(self.entries, epoch, key=lambda entry: entry[0])
        if place == 0:
            return epoch, self.entries[0][1]
        return self.entries[place - 1][0], self.entries[place][1]

    def truncate_from_end(self, offset: int) -> None:
        """The log was truncated to end at `offset`."""
        kept = [entry for entry in self.entries if entry[1] < offset]
        self._replace(kept)

    def truncate_from_start(self, offset: int) -> None:
        """The log starts at `offset`: remove older epochs; the epoch of `offset` starts there."""
        place = bisect_right(self.entries, offset, key=lambda entry: entry[1])
        if place:
            self._replace([(self.entries[place - 1][0], offset), *self.entries[place:]])

    def clear(self) -> None:
        """The log and the file of the history were emptied."""
        self.entries = []
        self.is_dirty = False

    def _replace(self, entries: list[tuple[int, int]]) -> None:
        if entries != self.entries:
            self.entries = entries
            self.is_dirty = True
