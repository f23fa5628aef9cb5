"""Syncs the logs that were appended to in one turn of the loop together."""

from __future__ import annotations

from asyncio import Handle, get_running_loop
from typing import Protocol

from semel_storage.disk.disk import Disk, File
from semel_storage.histogram import COUNTS, Histogram

SINGLY_MAX = 4
"""More files than this are not synced one after the other in the event loop."""
HURRIES_ALONE = 2
"""One request may hurry so often: the end of a transaction waits for its journal, then for its markers."""


class Flushed(Protocol):
    """The durability of one log, as its flusher uses it."""

    def unsynced_file(self) -> File | None:
        """The only file with bytes to sync; None: there is none, or there are more."""
        ...

    def note_synced(self) -> None:
        """The file of `unsynced_file` is synced."""
        ...

    def flush(self) -> None:
        """Begin a sync if something is not synced."""
        ...


class Flusher:
    """One for all partitions of a broker. Each append calls `add`; at the end of the turn of the loop all are synced.

    A quick disk syncs them at once, in the loop; otherwise each log has a sync of its own. Callers that wait for a
    sync call `hurry` first.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.batches_per_sync = Histogram(COUNTS)
        """Of the syncs that appends asked for, by log."""
        self._due: dict[Flushed, None] = {}
        self._handle: Handle | None = None
        self._hurries = 0  # in this turn
        self._hurries_before = 0  # in the last turn with an append

    def add(self, durability: Flushed) -> None:
        self._due[durability] = None
        if self._handle is None:
            self._handle = get_running_loop().call_soon(self._end_turn)

    def forget(self, durability: Flushed) -> None:
        """The log will be closed: sync it no more."""
        self._due.pop(durability, None)

    def hurry(self) -> None:
        """A caller is going to wait for the logs that are due.

        While callers come one at a time, no other caller could share the sync: a quick disk syncs now.
        """
        self._hurries += 1
        if self._due and self._hurries <= HURRIES_ALONE and self._hurries_before <= HURRIES_ALONE:
            self._sync_if_quick()

    def _end_turn(self) -> None:
        self._handle = None
        self._hurries_before, self._hurries = self._hurries, 0
        if self._due:
            self._sync_if_quick()
            due, self._due = self._due, {}
            for durability in due:
                durability.flush()

    def _sync_if_quick(self) -> None:
        files = {each: file for each in self._due if (file := each.unsynced_file()) is not None}
        if len(files) > 1 and self._disk.sync_if_quick(list(files.values())):
            synced = list(files)
        elif len(files) <= SINGLY_MAX:
            synced = [each for each, file in files.items() if self._disk.sync_if_quick([file])]
        else:
            synced = []
        for each in synced:
            each.note_synced()
            del self._due[each]
