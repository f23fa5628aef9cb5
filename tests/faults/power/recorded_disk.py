"""Records the disk calls of one process below a directory: a library that is loaded before the C library (Linux only).

    recorded = RecordedDisk(directory, root)
    broker.prefix = recorded.prefix
    ...
    recorded.count      # of the records so far
    recorded.records()  # all of them

Processes that run one after the other add to one recording.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

import msgspec

from faults.held_disk import build

SOURCE = Path(__file__).with_suffix(".c")
HEAD = struct.Struct("=4I2Q")
COUNT = struct.Struct("=Q")


class DiskCallKind(IntEnum):
    """The kind of a record. The values are those of `recorded_disk.c`."""

    CREATE = 1
    MKDIR = 2
    WRITE = 3
    TRUNCATE = 4
    RENAME = 5
    UNLINK = 6
    RMDIR = 7
    SYNC = 8
    SYNC_ALL = 9
    SYNCED = 10


class DiskCall(msgspec.Struct, frozen=True):
    """One call that has succeeded; of a sync its begin, and its end as SYNCED.

    `path`, `other`: below the root; `other` is the new one of a rename. `inode`: of the file; for SYNCED the number of
    the record of the begin, counted from 1. `number`: the position of a write, the new size.
    """

    kind: DiskCallKind
    path: str
    other: str
    inode: int
    number: int
    data: bytes


class RecordedDisk:
    """`prefix` before a command runs the command and records its calls below `root`, which exists."""

    def __init__(self, directory: Path, root: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._log, page = directory / "recorded_disk.log", directory / "recorded_disk.count"
        self._log.write_bytes(b"")
        page.write_bytes(bytes(mmap.PAGESIZE))
        with page.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        settings = {"LD_PRELOAD": build(SOURCE, directory), "RECORDED_ROOT": root, "RECORDED_LOG": self._log}
        settings["RECORDED_COUNT"] = page
        self.prefix = ("env", *(f"{name}={value}" for name, value in settings.items()))

    @property
    def count(self) -> int:
        """The number of the last record. An answer that a client already has is later than these calls."""
        number: int = COUNT.unpack_from(self._page)[0]
        return number

    def records(self) -> Iterator[DiskCall]:
        """All records, in their order."""
        data, at = self._log.read_bytes(), 0
        while at < len(data):
            kind, path, other, size, inode, number = HEAD.unpack_from(data, at)
            at += HEAD.size
            parts = []
            for length in (path, other, size):
                parts.append(data[at : at + length])
                at += length
            yield DiskCall(DiskCallKind(kind), parts[0].decode(), parts[1].decode(), inode, number, parts[2])

    def close(self) -> None:
        self._page.close()
