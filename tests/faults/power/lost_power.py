"""PURE: a file system that loses its power: all data that is durable by POSIX, and a part of the rest.

A sync of a file makes its bytes durable, not its name. A sync of a directory makes its names durable, not their files.
A sync counts once it has ended, for the data from before its begin. Of all other data any part may survive: bytes by
sector; names each by chance, or all up to some moment, as in a journal. A rename is one change of names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from random import Random

from faults.power.recorded_disk import DiskCall, DiskCallKind

SECTOR_BYTES = 512


class Survives(StrEnum):
    """The names that survive although they are not durable."""

    NOTHING = "nothing"
    ALL = "all"
    SOME = "some"
    UNTIL = "until"
    """All changes of names up to some moment."""


class FileHistory:
    """A file or a directory. `steps`: the bytes after each sync and now; a truncation is a step, too."""

    def __init__(self, *, is_directory: bool = False) -> None:
        self.is_directory = is_directory
        self.data = bytearray()
        self.durable_data = b""
        self.before: list[bytes] = []
        """The bytes before each truncation that is not durable."""
        self.entries: dict[str, FileHistory] = {}
        self.durable_entries: dict[str, FileHistory] = {}


Names = list[tuple[FileHistory, str, FileHistory | None]]
"""One change of a name: directory, name, and the node that it names afterwards; None: no node."""


class StartedSync:
    """A sync that has begun, and the data that it makes durable when it ends."""

    def __init__(
        self,
        files: Mapping[FileHistory, bytes],
        directories: Mapping[FileHistory, dict[str, FileHistory]],
        changes: int,
    ) -> None:
        self.files, self.directories, self.changes = files, directories, changes


class FileSystem:
    """`apply` the records one after the other. `after_loss` is a state that a start may find."""

    def __init__(self) -> None:
        self.root = FileHistory(is_directory=True)
        self._inodes: dict[int, FileHistory] = {}
        self._syncing: dict[int, StartedSync] = {}
        self._changes: list[tuple[int, Names]] = []
        """The changes of names that are not durable, with their numbers."""
        self._number = 0

    def apply(self, record: DiskCall) -> None:
        """Apply the next record."""
        self._number += 1
        match record.kind:
            case DiskCallKind.CREATE:
                node = self._inodes[record.inode] = FileHistory()
                self._rename([(*self._place(record.path), node)])
            case DiskCallKind.MKDIR:
                self._rename([(*self._place(record.path), FileHistory(is_directory=True))])
            case DiskCallKind.RENAME:
                old, new = self._place(record.path), self._place(record.other)
                self._rename([(*old, None), (*new, old[0].entries[old[1]])])
            case DiskCallKind.UNLINK | DiskCallKind.RMDIR:
                self._rename([(*self._place(record.path), None)])
            case DiskCallKind.WRITE:
                self._write(self._inodes[record.inode], record.number, record.data)
            case DiskCallKind.TRUNCATE:
                self._truncate(self._inodes[record.inode], record.number)
            case DiskCallKind.SYNC | DiskCallKind.SYNC_ALL:
                self._syncing[self._number] = self._begin(record)
            case DiskCallKind.SYNCED:
                self._end(self._syncing.pop(record.inode))

    def _place(self, path: str) -> tuple[FileHistory, str]:
        """The directory of a path, and its name there."""
        *directories, name = path.split("/")
        node = self.root
        for each in directories:
            node = node.entries[each]
        return node, name

    def _rename(self, names: Names) -> None:
        for directory, name, node in names:
            put(directory.entries, name, node)
        self._changes.append((self._number, names))

    @staticmethod
    def _write(node: FileHistory, at: int, data: bytes) -> None:
        if at > len(node.data):
            node.data += bytes(at - len(node.data))
        node.data[at : at + len(data)] = data

    @staticmethod
    def _truncate(node: FileHistory, size: int) -> None:
        node.before.append(bytes(node.data))
        node.data = node.data[:size] + bytes(max(0, size - len(node.data)))

    def _begin(self, record: DiskCall) -> StartedSync:
        if record.kind is DiskCallKind.SYNC_ALL:
            nodes = list(self._nodes())
        elif record.inode:
            nodes = [self._inodes[record.inode]]
        else:
            place = self._place(record.path) if record.path else None
            nodes = [self.root if place is None else place[0].entries[place[1]]]
        files = {node: bytes(node.data) for node in nodes if not node.is_directory}
        return StartedSync(files, {node: dict(node.entries) for node in nodes if node.is_directory}, self._number)

    def _nodes(self) -> Iterator[FileHistory]:
        """All nodes that have a name or are open."""
        found = dict.fromkeys(self._inodes.values())
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            found[node] = None
            waiting += [each for each in node.entries.values() if each.is_directory]
        return iter(found)

    def _end(self, syncing: StartedSync) -> None:
        for node, data in syncing.files.items():
            node.durable_data, node.before = data, []
        for node, entries in syncing.directories.items():
            node.durable_entries = entries
        left = []
        for number, names in self._changes:
            if number < syncing.changes:
                names = [each for each in names if each[0] not in syncing.directories]
            if names:
                left.append((number, names))
        self._changes = left

    # --- the loss ---

    def after_loss(self, rng: Random, survives: Survives) -> dict[str, bytes | None]:
        """The files and, as None, the directories that a start finds, by path."""
        directories: dict[FileHistory, dict[str, FileHistory]] = {}

        def entries_of(node: FileHistory) -> dict[str, FileHistory]:
            return directories.setdefault(node, dict(node.durable_entries))

        for names in self._surviving(rng, survives):
            for directory, name, node in names:
                put(entries_of(directory), name, node)
        found: dict[str, bytes | None] = {}
        waiting = [("", self.root)]
        while waiting:
            path, node = waiting.pop()
            for name, each in sorted(entries_of(node).items()):
                whole = f"{path}{name}"
                if each.is_directory:
                    found[whole] = None
                    waiting.append((f"{whole}/", each))
                else:
                    found[whole] = bytes_after_loss(each, rng, survives)
        return found

    def _surviving(self, rng: Random, survives: Survives) -> list[Names]:
        changes = [names for _, names in self._changes]
        match survives:
            case Survives.NOTHING:
                return []
            case Survives.ALL:
                return changes
            case Survives.UNTIL:
                return changes[: rng.randint(0, len(changes))]
            case Survives.SOME:
                return [names for names in changes if rng.random() < 0.5]

    @property
    def owed(self) -> int:
        """The number of changes of names, and of files, that are not durable."""
        files = sum(bytes(node.data) != node.durable_data for node in self._nodes() if not node.is_directory)
        return len(self._changes) + files


def put(entries: dict[str, FileHistory], name: str, node: FileHistory | None) -> None:
    """Let a name name this node; None: remove the name."""
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


def bytes_after_loss(node: FileHistory, rng: Random, survives: Survives) -> bytes:
    """The durable bytes of a file and a part of the others: any sectors of the last ones.

    A truncation that is not durable has happened or not.
    """
    durable, data = node.durable_data, bytes(node.data)
    if data == durable and not node.before:
        return durable
    if survives is Survives.NOTHING:
        return durable
    if survives is Survives.ALL:
        return data
    if node.before and rng.random() < 0.5:
        data = rng.choice(node.before)
    size = rng.choice((len(data), rng.randint(min(len(durable), len(data)), max(len(durable), len(data)))))
    found = bytearray(durable[:size] + bytes(max(0, size - len(durable))))
    for start in range(0, size, SECTOR_BYTES):
        end = min(size, start + SECTOR_BYTES)
        if rng.random() < 0.5 and start < len(data):
            found[start:end] = data[start:end] + bytes(max(0, end - max(start, len(data))))
    return bytes(found)
