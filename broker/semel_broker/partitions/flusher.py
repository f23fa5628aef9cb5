"""Partitions that have something to sync: those of one turn of the loop ask the disk together."""

from __future__ import annotations

from asyncio import Handle, get_running_loop
from typing import Protocol

from semel_storage.disk.disk import Disk, File

SINGLY_MAX = 4
"""More files than this are not synced one after the other while everything else waits."""
HURRIES_ALONE = 2
"""So many come of one request: the end of a transaction waits for its journal, then for its markers."""


class Flushed(Protocol):
    """What a partition is to its flusher."""

    def unsynced_file(self) -> File | None:
        """The file that one sync would do for; None: there is nothing to sync, or more than that."""
        ...

    def note_synced(self) -> None:
        """That file is synced."""
        ...

    def flush(self) -> None:
        """Begin to sync, if there is anything to."""
        ...


class Flusher:
    """One for all partitions of a broker. `add` who has appended; once the turn of the loop is over, all are synced:
    at once where the disk is quick, else each by itself. `hurry` before waiting for it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._due: dict[Flushed, None] = {}
        self._handle: Handle | None = None
        self._hurries = 0  # of this turn
        self._hurries_before = 0  # of the last turn that had any

    def add(self, partition: Flushed) -> None:
        self._due[partition] = None
        if self._handle is None:
            self._handle = get_running_loop().call_soon(self._end_turn)

    def forget(self, partition: Flushed) -> None:
        """It is about to be closed."""
        self._due.pop(partition, None)

    def hurry(self) -> None:
        """Somebody will wait for what is due. As long as they come one at a time there is nobody to share a sync with,
        and it is done here and now, where the disk is quick."""
        self._hurries += 1
        if self._due and self._hurries <= HURRIES_ALONE and self._hurries_before <= HURRIES_ALONE:
            self._sync_if_quick()

    def _end_turn(self) -> None:
        self._handle = None
        self._hurries_before, self._hurries = self._hurries, 0
        if self._due:
            self._sync_if_quick()
            due, self._due = self._due, {}
            for partition in due:
                partition.flush()

    def _sync_if_quick(self) -> None:
        files = {partition: file for partition in self._due if (file := partition.unsynced_file()) is not None}
        if len(files) > 1 and self._disk.sync_if_quick(list(files.values())):
            synced = list(files)
        elif len(files) <= SINGLY_MAX:
            synced = [partition for partition, file in files.items() if self._disk.sync_if_quick([file])]
        else:
            synced = []
        for partition in synced:
            partition.note_synced()
            del self._due[partition]
