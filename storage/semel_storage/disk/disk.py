"""The only door to files: what storage may ask of a disk, and what each answer promises.

Three promises matter, and each is made by one call only:

* **Bytes** of a file survive a power loss once a `File.sync()` that was *called after* they were appended has returned.
  Until then any subset of their sectors may be lost, and what is lost reads as zeros.
* **Names** (a file created, renamed or removed) survive a power loss once `Disk.sync_dir()` of their directory has
  returned. A process that is killed loses neither: the kernel keeps what was written.
* `Disk.write_atomically()` promises both: afterwards the path holds either the old bytes or the new ones, whole.

A write or sync that fails is fatal to the process and never retried: after a failed fsync the kernel may have dropped
the very pages that it could not write, and a second fsync would report success. No call here raises `OSError` for it;
`MissingFile`, `DirectoryLocked` and `FilesUsedUp` are the errors that a caller may meet and answer.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class MissingFile(Exception):  # noqa: N818 (named for what it tells)
    """The path that was to be read, renamed or removed does not exist."""


class DirectoryLocked(Exception):  # noqa: N818 (named for what it tells)
    """Another process holds the data directory."""


class FilesUsedUp(Exception):  # noqa: N818 (named for what it tells)
    """The process, or the machine, may open no more files; nothing has changed by the call that met this."""


class Event(Protocol):
    """Where storage reports what an operator should know: an event name and its facts (a logger's bound method)."""

    def __call__(self, event: str, **facts: object) -> None: ...


def ignore_event(event: str, **facts: object) -> None:
    """The `Event` of those who do not listen."""


class File(Protocol):
    """One open file that only grows at its end or is cut there."""

    path: str

    def append(self, *chunks: Buffer) -> int:
        """Write the chunks, in order, at the end. Returns the position of the first byte.

        Visible to `pread` at once; durable only after `sync`. All chunks are written or the process ends.
        """
        ...

    def pread(self, n: int, at: int) -> bytes:
        """Up to `n` bytes from position `at`; fewer only at the end of the file."""
        ...

    def size(self) -> int:
        """Bytes in the file (no system call)."""
        ...

    def truncate(self, n: int) -> None:
        """Cut the file to its first `n` bytes, durably: cut bytes never come back after a power loss."""
        ...

    async def sync(self) -> None:
        """Return once everything appended before this call is durable.

        Group commit: callers that come while a sync runs share the next one. Returns at once when nothing is dirty.
        Cancelling one caller disturbs neither the sync nor the other callers. Returns at once on a closed file.
        """
        ...

    def sync_now(self) -> None:
        """`sync` for start and stop, where nothing else runs: blocks."""
        ...

    def close(self) -> None:
        """Close without syncing. Waits for a sync that is running."""
        ...


class Disk(Protocol):
    """Paths are strings, `/` separates; relative to nothing in particular."""

    def open(self, path: str) -> File:
        """Open for reading and appending; creates an empty file when there is none (its name is not durable yet).

        Raises `FilesUsedUp`.
        """
        ...

    def check_room(self, files: int) -> None:
        """Raises `FilesUsedUp` if so many more could not be opened: for one who must not stop halfway."""
        ...

    def sync_if_quick(self, files: Sequence[File]) -> bool:
        """Sync these here and now, if the disk answers sooner than threads would have been asked. False: nothing was
        done.

        Of use to one who has little to sync and would rather not wait for a turn of the event loop.
        """
        ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int:
        """Bytes in the file; raises `MissingFile`."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, sorted; empty when there is no such directory."""
        ...

    def mkdir(self, path: str, *, durable: bool = True) -> None:
        """Create the directory and its parents, durably; fine when it exists.

        Without `durable` its own name is left to a later `sync_dir` of its parent.
        """
        ...

    def rename(self, old: str, new: str) -> None:
        """Atomically give `old` (file or directory) the name `new`, replacing a file; raises `MissingFile`."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; fine when there is none."""
        ...

    def remove_later(self, path: str) -> None:
        """Remove a file or a whole directory without making the caller wait for many blocks to be freed."""
        ...

    def rmtree(self, path: str) -> None:
        """Remove a directory with all it holds; fine when there is none."""
        ...

    def sync_dir(self, path: str) -> None:
        """Make the names in this directory durable."""
        ...

    def read_bytes(self, path: str) -> bytes:
        """The whole file; raises `MissingFile`."""
        ...

    def write_atomically(self, path: str, data: Buffer, *, durable: bool = True) -> None:
        """Replace the whole file: temporary file, sync, rename, directory sync.

        Without `durable`, neither sync: the death of the process still leaves either the old bytes or the new ones,
        a power loss anything at all. For files that carry a checksum and can be done without.
        """
        ...

    def lock(self, directory: str) -> Callable[[], None]:
        """Take the directory for this process; the answer gives it back.

        Raises `DirectoryLocked` naming the holder.
        """
        ...
