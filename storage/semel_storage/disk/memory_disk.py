"""A disk in memory that loses unsynced bytes and names on `crash()`, for tests and simulation.

It gives exactly the guarantees of `disk`: names are lost without `sync_dir`, bytes without `sync`. With a random
source, a crash keeps a random subset of the unsynced sectors; a lost sector reads as zeros.
"""

import asyncio
import errno
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from random import Random
from typing import NoReturn

from semel_storage.disk.debts import Debt, Debts, directory_of
from semel_storage.disk.disk import TEMPORARY, Buffer, DirectoryLocked, File, MissingFile, NotCached, Space
from semel_storage.disk.waiting_calls import WaitingCall, WaitingCalls

SECTOR_BYTES = 512
NAME_BYTES_MAX = 255
"""The longest file name, as on ext4, XFS, tmpfs and most other file systems."""


class DiskFailed(Exception):  # noqa: N818 (named after its cause)
    """Stands for the end of the process after a failed write or sync."""


class MachineStopped(Exception):  # noqa: N818 (stands for the end)
    """`MemoryDisk.fuse` has reached zero."""


class _Inode:
    def __init__(self, now_ms: int = 0) -> None:
        self.modified_ms = now_ms
        self.data = bytearray()
        self.synced_size = 0
        self.before: bytes | None = None
        """The durable bytes before a truncation that is not durable."""

    def truncate(self, n: int, *, durable: bool) -> None:
        if durable:
            self.before = None
        elif self.before is None:
            self.before = bytes(self.data[: self.synced_size])
        del self.data[n:]
        self.synced_size = n if durable else min(n, self.synced_size)

    def crash(self, rng: Random | None) -> None:
        """Keep the synced bytes, and a random subset of the other sectors if there is an `rng`.

        A truncation that is not durable has happened or not, as chance decides; without `rng` it has not. If not, any
        sector that was written since may be there, with the old ones behind it.
        """
        before, self.before = self.before, None
        if before is not None and (rng is None or rng.random() < 0.5):
            written = bytes(self.data[: len(before)])
            self.data[:] = before
            self.synced_size = len(before)
            for start in range(0, len(written) if rng is not None else 0, SECTOR_BYTES):
                old = before[start : start + SECTOR_BYTES]
                sector = written[start : start + SECTOR_BYTES].ljust(len(old), b"\0")
                if sector != old and rng is not None and rng.random() < 0.5:
                    self.data[start : start + len(old)] = sector
        synced, size = self.synced_size, len(self.data)
        if rng is None:
            del self.data[synced:]
        else:
            if rng.random() < 0.5:  # a file system may store the new size before the bytes
                del self.data[rng.randint(synced, size) :]
            start = synced
            while start < len(self.data):
                end = min(len(self.data), (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
                if rng.random() < 0.5:
                    self.data[start:end] = bytes(end - start)
                start = end
        self.synced_size = len(self.data)


class Aside:
    """A write of `write_aside` that has begun. Needs a running loop."""

    def __init__(self, path: str, data: bytes, private: bool) -> None:
        self.path, self.data, self.private = path, data, private
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end(self) -> None:
        """The file is durable."""
        if not self.done.done():
            self.done.set_result(None)


class MemoryFile:
    """See `disk.File`. Files opened before a crash must not be used."""

    def __init__(self, disk: "MemoryDisk", path: str, inode: _Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self._boot = disk.boots
        self._closed = False

    def append(self, *chunks: Buffer) -> int:
        self._check()
        self._disk.burn()
        if self._disk.failing_writes:
            self._disk.fail("write", self.path)
        position = len(self._inode.data)
        self._inode.modified_ms = self._disk.clock()
        for chunk in chunks:
            self._inode.data += chunk
        return position

    def pread(self, n: int, at: int) -> bytes:
        self._check()
        if self._disk.reads_cached_only and self.path in self._disk.uncached:
            raise NotCached(self.path)
        return bytes(memoryview(self._inode.data)[at : at + n])

    def size(self) -> int:
        return len(self._inode.data)

    def truncate(self, n: int, *, durable: bool = True) -> None:
        self._check()
        self._disk.burn()
        self._inode.truncate(n, durable=durable)
        self._inode.modified_ms = self._disk.clock()

    async def sync(self) -> None:
        if self._closed:
            return
        self._check()
        covered = len(self._inode.data)
        if self.is_synced() and not self._disk.debts.of(self.path):
            return
        debts = self._disk.debts.of(self.path)
        boot = self._disk.boots
        if self._disk.held is not None:
            with self._disk.calls.waiting(self.path):
                await asyncio.wait((self._disk.held,))
        else:
            await asyncio.sleep(0)
        if boot == self._disk.boots and not self._closed:
            self._disk.pay(debts)
            self._sync_up_to(min(covered, len(self._inode.data)))

    def sync_now(self) -> None:
        self._check()
        self._disk.pay(self._disk.debts.of(self.path))
        self._sync_up_to(len(self._inode.data))

    def is_synced(self) -> bool:
        """Whether a loss of power changes no byte."""
        return self._inode.before is None and self._inode.synced_size >= len(self._inode.data)

    def close(self) -> None:
        self._closed = True

    def _sync_up_to(self, size: int) -> None:
        self._disk.burn()
        self._disk.syncs += 1
        if self._disk.failing_syncs:
            self._disk.fail("fdatasync", self.path)
        self._inode.before = None
        self._inode.synced_size = max(self._inode.synced_size, size)

    def _check(self) -> None:
        assert not self._closed, f"{self.path} is closed"
        assert self._boot == self._disk.boots, f"{self.path} was opened before the crash"


class _Files(MutableMapping[str, _Inode]):
    """Path -> file, with the files of one directory at hand: a broker has one directory for each partition."""

    def __init__(self) -> None:
        self._by_directory: dict[str, dict[str, _Inode]] = {}

    def __getitem__(self, path: str) -> _Inode:
        return self._by_directory[directory_of(path)][path]

    def __setitem__(self, path: str, inode: _Inode) -> None:
        self._by_directory.setdefault(directory_of(path), {})[path] = inode

    def __delitem__(self, path: str) -> None:
        directory = directory_of(path)
        inside = self._by_directory[directory]
        del inside[path]
        if not inside:
            del self._by_directory[directory]

    def __iter__(self) -> Iterator[str]:
        return (path for inside in self._by_directory.values() for path in inside)

    def __len__(self) -> int:
        return sum(map(len, self._by_directory.values()))

    def inside(self, directory: str) -> dict[str, _Inode]:
        """The files of one directory, to read."""
        return self._by_directory.get(directory, {})


class _Directories:
    """Paths of directories, with the children of each."""

    def __init__(self) -> None:
        self._children: dict[str, dict[str, None]] = {}

    def __contains__(self, path: str) -> bool:
        return path in self._children.get(directory_of(path), ())

    def __iter__(self) -> Iterator[str]:
        return (path for children in self._children.values() for path in children)

    def add(self, path: str) -> None:
        self._children.setdefault(directory_of(path), {})[path] = None

    def discard(self, path: str) -> None:
        self._children.get(directory_of(path), {}).pop(path, None)

    def children(self, path: str) -> dict[str, None]:
        """The directories in it, to read."""
        return self._children.get(path, {})

    def tree(self, path: str) -> list[str]:
        """The directory, and all below it."""
        found = [path]
        for each in found:
            found += self._children.get(each, ())
        return found

    def copy(self) -> "_Directories":
        copied = _Directories()
        copied._children = {path: dict(children) for path, children in self._children.items()}
        return copied


class MemoryDisk:
    """See `disk.Disk`.

    `hold_syncs()` makes awaited syncs wait until `release_syncs()`. `failing_syncs` and `failing_writes` raise
    `DiskFailed` instead of ending the process. `syncs` counts syncs. `is_quick`: `sync_if_quick` syncs at once, as on a
    fast disk. `fuse`: after this number of changes the machine stops (`MachineStopped`), so that a test can stop it
    before each change in turn. `clock`: the wall clock in ms, from which files have their times.
    """

    def __init__(self) -> None:
        self.clock: Callable[[], int] = lambda: 0
        self.boots = 0
        self.reads_cached_only = False
        self.uncached: set[str] = set()
        """Paths of files whose reads would wait for the disk; tests set it."""
        self.syncs = 0
        self.failing_syncs = False
        self.failing_writes = False
        self.is_quick = False
        self.fuse: int | None = None
        self.held: asyncio.Future[None] | None = None
        self.calls = WaitingCalls(lambda: asyncio.get_running_loop().time())
        self.debts = Debts()
        self.asides: list[Aside] = []
        """The writes of `write_aside` that have begun."""
        self._names = _Files()
        self._durable_names = _Files()
        self._directories = _Directories()
        self._durable_directories = _Directories()
        self._moved: dict[str, dict[str, None]] = {}
        """By directory: its directories that have come or gone since its last sync."""
        self._renamed: dict[str, dict[str, str]] = {}
        """By directory: durable directories that were renamed since its last sync, the new path -> the old one."""
        self._locks: dict[str, None] = {}
        self.denied: set[str] = set()
        """Paths that the user of this process may neither read nor change, with the files in them: see `check_path`."""

    def sync_if_quick(self, files: Sequence[File]) -> bool:
        if not self.is_quick or self.held is not None:
            return False
        for file in files:
            file.sync_now()
        return True

    def hold_syncs(self) -> None:
        self.held = asyncio.get_running_loop().create_future()

    def release_syncs(self) -> None:
        assert self.held is not None
        held, self.held = self.held, None
        held.set_result(None)

    def crash(self, rng: Random | None = None) -> None:
        """Power loss: unsynced bytes (with `rng`: some of them) and names are lost. Open files become invalid."""
        self.boots += 1
        self.debts = Debts()
        self.asides.clear()
        self.held = None
        self.fuse = None
        self._directories = self._durable_directories.copy()
        self._moved.clear()
        self._renamed.clear()
        kept = {path: inode for path, inode in self._durable_names.items() if directory_of(path) in self._directories}
        self._names, self._durable_names = _Files(), _Files()
        self._names.update(kept)
        self._durable_names.update(kept)
        self._locks.clear()
        for path in sorted(self._names):
            self._names[path].crash(rng)

    def let_names_through(self, rng: Random, share: float) -> None:
        """Make each unsynced change of a name durable with probability `share`, as a file system may do.

        A renamed directory is one change, whatever is in it.
        """
        lost: set[str] = set()
        for new, old in sorted(pair for renamed in self._renamed.values() for pair in renamed.items()):
            if rng.random() < share:
                self._rename_durably(old, new)
            else:
                lost.update((*self._durable_directories.tree(old), *self._directories.tree(new)))
        for path in sorted({*self._directories, *self._durable_directories} - lost):
            if path in self._directories and path not in self._durable_directories and rng.random() < share:
                self._durable_directories.add(path)
        for path in sorted({**self._names, **self._durable_names}):
            if self._names.get(path) is self._durable_names.get(path) or directory_of(path) in lost:
                continue
            if rng.random() < share:
                if path in self._names:
                    self._durable_names[path] = self._names[path]
                else:
                    del self._durable_names[path]

    def kill(self) -> None:
        """Kill the process but not the machine: no written bytes are lost. Open files become invalid."""
        self.boots += 1
        self.debts = Debts()
        self.asides.clear()
        self.held = None
        self.fuse = None
        self._locks.clear()

    def burn(self) -> None:
        """Call before each change: raises MachineStopped if the fuse is at zero."""
        if self.fuse is not None:
            if self.fuse == 0:
                raise MachineStopped
            self.fuse -= 1

    def open(self, path: str) -> MemoryFile:
        self.check_file(path)
        return MemoryFile(self, path, self._names.setdefault(path, _Inode(self.clock())))

    def check_file(self, path: str) -> None:
        """Raise the OSError that a file system would raise for a file of this path."""
        self.check_path(path)
        if path in self._directories:
            raise OSError(errno.EISDIR, "Is a directory", path)

    def check_path(self, path: str) -> None:
        """Raise the OSError that a file system would raise for a new name, or for a path in `denied`."""
        if path in self.denied or directory_of(path) in self.denied:
            raise OSError(errno.EACCES, "Permission denied", path)
        name = path.rpartition("/")[2]
        if len(name) * 4 > NAME_BYTES_MAX and len(name.encode("utf-8", "surrogateescape")) > NAME_BYTES_MAX:
            raise OSError(errno.ENAMETOOLONG, "File name too long", path)
        if directory_of(path) in self._names:
            raise OSError(errno.ENOTDIR, "Not a directory", path)

    def exists(self, path: str) -> bool:
        if directory_of(path) in self.denied:
            return False
        return path in self._names or path in self._directories

    def size(self, path: str) -> int:
        return len(self._inode(path).data)

    def modified_ms(self, path: str) -> int:
        return self._inode(path).modified_ms

    def set_modified(self, path: str, time_ms: int) -> None:
        self._inode(path).modified_ms = time_ms

    def listdir(self, path: str) -> list[str]:
        if path in self.denied:
            raise OSError(errno.EACCES, "Permission denied", path)
        start = len(path) + 1
        return sorted({name[start:] for name in (*self._names.inside(path), *self._directories.children(path))})

    def mkdir(self, path: str, *, durable: bool = True) -> None:
        self.burn()
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            parent = "/".join(parts[:depth])
            if parent:
                self.check_path(parent)
                if parent in self._names:
                    raise OSError(errno.EEXIST, "File exists", parent)
                self._note_moved(parent)
                self._directories.add(parent)
                if durable or depth < len(parts):
                    self._durable_directories.add(parent)

    def rename(self, old: str, new: str) -> None:
        self.burn()
        self.check_path(old)
        self.check_path(new)
        if old in self._directories:
            for directory in self._directories.tree(old):
                for name in list(self._names.inside(directory)):
                    self._names[new + name[len(old) :]] = self._names.pop(name)
                self._directories.discard(directory)
                self._directories.add(new + directory[len(old) :])
            self._note_moved(old)
            self._note_moved(new)
            self.debts.forget(old)
            first = self._renamed.get(directory_of(old), {}).pop(old, old)
            if first in self._durable_directories:
                self._renamed.setdefault(directory_of(new), {})[new] = first
            return
        inode = self._inode(old)
        del self._names[old]
        self._names[new] = inode

    def remove(self, path: str) -> None:
        self.burn()
        self.check_file(path)
        self._names.pop(path, None)

    def remove_later(self, path: str) -> None:
        if path in self._directories:
            self.rmtree(path)
        else:
            self.remove(path)

    def rmtree(self, path: str) -> None:
        self.burn()
        self.check_path(path)
        if path in self._names:
            self.remove(path)
            return
        for directory in self._directories.tree(path):
            for name in list(self._names.inside(directory)):
                del self._names[name]
            self._directories.discard(directory)
        self._note_moved(path)

    def sync_dir(self, path: str) -> None:
        """Make the names in this directory durable, and the content of its directories (they may have been renamed)."""
        self.burn()
        self.syncs += 1
        self._renamed.pop(path, None)
        for name in self._moved.pop(path, ()):
            if name not in self._directories:
                self._forget_durable(name)
            elif name not in self._durable_directories:
                self._durable_directories.add(name)
                for directory in self._directories.tree(name):
                    self._durable_names.update(self._names.inside(directory))
        for name in list(self._durable_names.inside(path)):
            if name not in self._names:
                del self._durable_names[name]
        self._durable_names.update(self._names.inside(path))

    def sync_dir_later(self, path: str) -> None:
        self.debts.add_names(path)

    def sync_all_now(self, files: Sequence[File]) -> None:
        for file in files:
            file.sync_now()

    def sync_file_system(self, directory: str) -> bool:
        return False

    def owes(self, path: str) -> bool:
        return bool(self.debts.of(path))

    def owes_names(self, directory: str) -> bool:
        return self.debts.has_names(directory)

    async def settle(self, directory: str) -> None:
        debts, boot = self.debts.of(f"{directory}/"), self.boots
        if debts:
            await asyncio.sleep(0)
            if boot == self.boots:
                self.pay(debts)

    def settle_now(self, directory: str) -> None:
        self.pay(self.debts.of(f"{directory}/"))

    def sync_later(self, path: str) -> None:
        self.debts.add_file(path)

    async def write_aside(self, path: str, data: Buffer, *, private: bool = False) -> None:
        aside = Aside(path, bytes(data), private)
        self.asides.append(aside)
        await asyncio.sleep(0)
        self.finish_aside(aside)

    def finish_aside(self, aside: "Aside") -> None:
        """Do this write, unless it was done or the machine has stopped."""
        if aside in self.asides:
            self.asides.remove(aside)
            self.check_parent(aside.path)
            self.write_atomically(aside.path, aside.data, private=aside.private)
            aside.end()

    async def asides_done(self) -> None:
        if self.asides:
            await asyncio.wait([aside.done for aside in self.asides])

    def check_parent(self, path: str) -> None:
        """End the process, as a file system would make it end, if the directory of this path is gone."""
        if directory_of(path) not in self._directories:
            self.fail("write", path)

    def finish_asides(self) -> None:
        while self.asides:
            self.finish_aside(self.asides[0])

    def write_later(self, path: str, data: Buffer) -> None:
        self.write_atomically(path, data, durable=False)
        self.debts.add_file(path)
        self.debts.add_names(directory_of(path))

    def pay(self, debts: Sequence[Debt]) -> None:
        """Make durable what they name, in their order."""
        for debt in debts:
            if debt.is_directory:
                MemoryDisk.sync_dir(self, debt.path)
            elif (inode := self._names.get(debt.path)) is not None:
                self.burn()
                inode.synced_size, inode.before = len(inode.data), None
        self.debts.paid(debts)

    def _note_moved(self, path: str) -> None:
        self._moved.setdefault(directory_of(path), {})[path] = None

    def _rename_durably(self, old: str, new: str) -> None:
        for directory in self._durable_directories.tree(old):
            moved = new + directory[len(old) :]
            for name in list(self._durable_names.inside(directory)):
                self._durable_names[moved + name[len(directory) :]] = self._durable_names.pop(name)
            self._durable_directories.discard(directory)
            self._durable_directories.add(moved)

    def _forget_durable(self, path: str) -> None:
        for directory in self._durable_directories.tree(path):
            for name in list(self._durable_names.inside(directory)):
                del self._durable_names[name]
        self._durable_directories.discard(path)

    def read_bytes(self, path: str) -> bytes:
        self.check_file(path)
        return bytes(self._inode(path).data)

    def write_atomically(self, path: str, data: Buffer, *, durable: bool = True, private: bool = False) -> None:
        self.burn()
        self.check_file(path)
        self.check_path(f"{path}{TEMPORARY}")
        if self.failing_writes:
            self.fail("write", path)
        inode = _Inode(self.clock())
        inode.data += data
        self._names[path] = inode
        if durable:
            inode.synced_size = len(inode.data)
            self._durable_names[path] = inode
            self.syncs += 1

    def oldest_call(self) -> WaitingCall | None:
        return self.calls.oldest()

    def space(self, path: str) -> Space | None:
        """See `Disk.space`. It has no limit; a subclass may have one."""
        return None

    def find_reserve(self, path: str) -> None:
        """Without a limit no reserve is needed."""

    def keep_reserve(self, path: str, size: int) -> bool:
        """Without a limit no reserve is needed."""
        return True

    def check_directory(self, path: str) -> None:
        if path in self._names:
            raise OSError(errno.ENOTDIR, "Not a directory", path)
        self.check_path(path)
        if inner := next(iter(sorted(self._directories.children(path))), None):
            raise OSError(errno.EISDIR, "Is a directory", inner)

    def make_private(self, path: str) -> None:
        """No other process can read this memory."""
        self._inode(path)

    def check_room(self, files: int) -> None:
        """There is no limit."""

    def lock(self, directory: str) -> Callable[[], None]:
        if directory in self._locks:
            raise DirectoryLocked(f"data directory {directory} is in use")
        self._locks[directory] = None
        return lambda: self._locks.pop(directory, None)

    def overwrite(self, path: str, data: Buffer) -> None:
        """For tests: replace the bytes of a file, durably, as bit rot or an editor does."""
        inode = self._inode(path)
        inode.data[:] = data
        inode.synced_size = len(inode.data)
        inode.modified_ms = self.clock()

    def fail(self, action: str, path: str) -> NoReturn:
        raise DiskFailed(f"{action} of {path} failed")

    def _inode(self, path: str) -> _Inode:
        inode = self._names.get(path)
        if inode is None:
            raise MissingFile(path)
        return inode
