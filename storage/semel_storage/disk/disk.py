"""The interface of storage to files, and the durability guarantee of each call.

Each of these guarantees needs one call:

* **Bytes** of a file survive a power loss once a `File.sync()` that was *called after* their append has returned.
  Before that, any subset of their sectors may be lost; a lost sector reads as zeros.
* **Names** (a file created, renamed or removed) survive a power loss once `Disk.sync_dir()` of their directory has
  returned. A killed process loses neither bytes nor names: the kernel keeps them.
* **Debts**: `sync_dir_later`, `sync_later` and `write_later` sync nothing. What they name is durable once a call of
  `settle`, or a sync of a file in the same directory or below it, that began after them has returned: debts first, then
  the bytes of the file. Threads pay debts, so that the event loop does not wait for the disk.
* `Disk.write_atomically()` guarantees both: after a crash the path has either all old or all new bytes.

A write for which the disk has no room is tried again once the reserve (`Disk.keep_reserve`) is given up. Any other
failed write or sync ends the process and is never retried: after a failed fsync the kernel may have dropped the pages
that it could not write, and a second fsync would report success. No call raises `OSError` for it. Callers must handle
`MissingFile`, `DirectoryLocked` and `FilesUsedUp`.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from semel_storage.disk.waiting_calls import WaitingCall

Buffer = bytes | bytearray | memoryview
TEMPORARY = ".tmp"
"""The suffix of the temporary file of `Disk.write_atomically`."""


class MissingFile(Exception):  # noqa: N818 (named after its cause)
    """The path to read, rename or remove does not exist."""


class DirectoryLocked(Exception):  # noqa: N818 (named after its cause)
    """Another process has locked the data directory."""


class FilesUsedUp(Exception):  # noqa: N818 (named after its cause)
    """The process or the machine has reached its limit of open files; the failed call changed nothing."""


class NotCached(Exception):  # noqa: N818 (named after its cause)
    """A read would wait for the disk, and `Disk.reads_cached_only` is set. The message is the path."""


class Space(msgspec.Struct, frozen=True):
    """The bytes of a file system that this process may still write, and all of them."""

    free_bytes: int
    total_bytes: int


class EventCallback(Protocol):
    """A callback for log events: an event name and its fields. Usually a bound method of a logger."""

    def __call__(self, event: str, **facts: object) -> None: ...


def ignore_event(event: str, **facts: object) -> None:
    """An `EventCallback` that discards everything."""


class File(Protocol):
    """One open file. It grows at its end, or is truncated."""

    path: str

    def append(self, *chunks: Buffer) -> int:
        """Append the chunks in order. Returns the position of the first byte.

        Visible to `pread` at once; durable after `sync`. Either all chunks are written, or the process ends.
        """
        ...

    def pread(self, n: int, at: int) -> bytes:
        """Read `n` bytes from position `at`; fewer only at the end of the file. Raises NotCached."""
        ...

    def size(self) -> int:
        """Bytes in the file, without a system call."""
        ...

    def truncate(self, n: int, *, durable: bool = True) -> None:
        """Truncate the file to its first `n` bytes. If it is `durable`, removed bytes do not reappear after a power
        loss; otherwise they may, until the file is synced.
        """
        ...

    async def sync(self) -> None:
        """Return once everything appended before this call is durable, and the debts of its directories are paid.

        Group commit: calls during a running sync share the next one. Returns at once if nothing is dirty and no debt is
        left, or if the file is closed. The cancellation of one caller affects neither the sync nor the other callers.
        """
        ...

    def sync_now(self) -> None:
        """As `sync`, but blocks; for start and stop of the broker."""
        ...

    def close(self) -> None:
        """Close without a sync. Waits for a running sync."""
        ...


class Disk(Protocol):
    """A file system. Paths are strings, separated by `/`."""

    def open(self, path: str) -> File:
        """Open for reading and appending. Creates an empty file if there is none; its name is not durable yet.

        Raises `FilesUsedUp`.
        """
        ...

    def check_room(self, files: int) -> None:
        """Raise `FilesUsedUp` unless `files` more files can be opened; for operations that must not fail halfway."""
        ...

    def sync_if_quick(self, files: Sequence[File]) -> bool:
        """Sync these files on this thread if that is faster than a sync thread. False: nothing was done.

        For few unsynced bytes; saves a turn of the event loop. Debts are paid with it, or nothing is done.
        """
        ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int:
        """Bytes in the file; raises `MissingFile`."""
        ...

    def modified_ms(self, path: str) -> int:
        """When the bytes of the file last changed: ms since 1970, by the clock of this machine. Raises `MissingFile`.

        A start of the broker changes no log file, and `rename` keeps the time.
        """
        ...

    def set_modified(self, path: str, time_ms: int) -> None:
        """Set what `modified_ms` returns, for a file that replaces another one. Raises `MissingFile`."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, sorted; empty if the directory does not exist."""
        ...

    def mkdir(self, path: str, *, durable: bool = True) -> None:
        """Create the directory and its parents, durably; no error if it exists.

        Without `durable`, its name becomes durable by a later `sync_dir` of its parent.
        """
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename the file or directory `old` to `new` atomically; replaces a file. Raises `MissingFile`."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; no error if it does not exist."""
        ...

    def remove_later(self, path: str) -> None:
        """Remove a file or a directory tree on another thread: freeing many blocks takes long."""
        ...

    def rmtree(self, path: str) -> None:
        """Remove a directory tree; no error if it does not exist."""
        ...

    def sync_dir(self, path: str) -> None:
        """Make the names in this directory durable. Blocks."""
        ...

    def sync_dir_later(self, path: str) -> None:
        """The names in this directory become durable with the next sync of a file in it, or below it: a debt."""
        ...

    def sync_all_now(self, files: Sequence[File]) -> None:
        """Make these files and their debts durable with few syncs. Blocks; for the stop of the broker."""
        ...

    def sync_file_system(self, directory: str) -> bool:
        """Make all durable that earlier processes have left on the file system of this directory. Blocks; for the start
        of the broker. False: this disk cannot, each file needs a sync.
        """
        ...

    def owes(self, path: str) -> bool:
        """Whether the directory of this file, or one above it, has debts."""
        ...

    def owes_names(self, directory: str) -> bool:
        """Whether names in this very directory are not durable."""
        ...

    async def settle(self, directory: str) -> None:
        """Return once the debts of this directory, and of those above it, are paid."""
        ...

    def settle_now(self, directory: str) -> None:
        """As `settle`, but blocks."""
        ...

    def sync_later(self, path: str) -> None:
        """The bytes of this file, which need not be open, become durable with the next sync in its directory: a debt.

        No error if it is removed before.
        """
        ...

    def read_bytes(self, path: str) -> bytes:
        """The content of the file. Raises `MissingFile`."""
        ...

    def write_atomically(self, path: str, data: Buffer, *, durable: bool = True, private: bool = False) -> None:
        """Replace the file: write a temporary file, sync it, rename it, sync the directory.

        Without `durable`, there are no syncs: after a killed process the path still has the old or the new bytes, after
        a power loss any bytes. Only for files that have a checksum and can be rebuilt.

        `private`: from its first byte on, only the user of this process may read and write the file.
        """
        ...

    async def write_aside(self, path: str, data: Buffer, *, private: bool = False) -> None:
        """`write_atomically` on a thread; returns once the file is durable. One at a time for a path.

        The cancellation of the caller does not end the write. Before its directory is renamed or removed, await
        `asides_done`.
        """
        ...

    async def asides_done(self) -> None:
        """Return once every `write_aside` that has begun is done."""
        ...

    def finish_asides(self) -> None:
        """Block until every `write_aside` that has begun is done."""
        ...

    def write_later(self, path: str, data: Buffer) -> None:
        """`write_atomically` without `durable`; bytes and name are a debt of the directory."""
        ...

    reads_cached_only: bool
    """While it is set, `File.pread` raises NotCached for bytes that the kernel does not have in memory."""

    def oldest_call(self) -> WaitingCall | None:
        """The sync, or other call that waits for the disk, that has been waiting longest; None: none waits.

        May be called on any thread.
        """
        ...

    def space(self, path: str) -> Space | None:
        """The space of the file system that `path` is on; None: it has no limit."""
        ...

    def find_reserve(self, path: str) -> None:
        """This file may be given up: it is removed when a write finds no room, and the write is tried again."""
        ...

    def keep_reserve(self, path: str, size: int) -> bool:
        """As `find_reserve`; also make the file, with `size` bytes that are allocated. False: that is not possible."""
        ...

    def check_directory(self, path: str) -> None:
        """Check that this process can use the directory: read it, change it, and that it holds files alone.

        For directories that other programs may have damaged. Raises `OSError`.
        """
        ...

    def make_private(self, path: str) -> None:
        """Let only the user of this process read and write an existing file. Raises `MissingFile`, `OSError`."""
        ...

    def lock(self, directory: str) -> Callable[[], None]:
        """Lock the directory for this process. Returns the function that unlocks it.

        Raises `DirectoryLocked`; the message has the id of the process that locked it.
        """
        ...
