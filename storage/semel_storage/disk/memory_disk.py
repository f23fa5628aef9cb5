"""A disk in memory that loses unsynced bytes and names on `crash()`, for tests and simulation.

It gives exactly the guarantees of `disk`: names are lost without `sync_dir`, bytes without `sync`. With a random
source, a crash keeps a random subset of the unsynced sectors; a lost sector reads as zeros.
"""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import NoReturn

from semel_storage.disk.disk import Buffer, DirectoryLocked, File, MissingFile

SECTOR_BYTES = 512


class DiskFailed(Exception):  # noqa: N818 (named after its cause)
    """Stands for the end of the process after a failed write or sync."""


class MachineStopped(Exception):  # noqa: N818 (stands for the end)
    """`MemoryDisk.fuse` has reached zero."""


class _Inode:
    def __init__(self) -> None:
        self.data = bytearray()
        self.synced_size = 0

    def crash(self, rng: Random | None) -> None:
        """Keep the synced bytes, and a random subset of the other sectors if there is an `rng`."""
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
        for chunk in chunks:
            self._inode.data += chunk
        return position

    def pread(self, n: int, at: int) -> bytes:
        self._check()
        return bytes(memoryview(self._inode.data)[at : at + n])

    def size(self) -> int:
        return len(self._inode.data)

    def truncate(self, n: int) -> None:
        self._check()
        self._disk.burn()
        del self._inode.data[n:]
        self._inode.synced_size = n

    async def sync(self) -> None:
        if self._closed:
            return
        self._check()
        covered = len(self._inode.data)
        if self._inode.synced_size >= covered:
            return
        boot = self._disk.boots
        if self._disk.held is not None:
            await asyncio.shield(self._disk.held)
        else:
            await asyncio.sleep(0)
        if boot == self._disk.boots and not self._closed:
            self._sync_up_to(min(covered, len(self._inode.data)))

    def sync_now(self) -> None:
        self._check()
        self._sync_up_to(len(self._inode.data))

    def close(self) -> None:
        self._closed = True

    def _sync_up_to(self, size: int) -> None:
        self._disk.burn()
        self._disk.syncs += 1
        if self._disk.failing_syncs:
            self._disk.fail("fdatasync", self.path)
        self._inode.synced_size = max(self._inode.synced_size, size)

    def _check(self) -> None:
        assert not self._closed, f"{self.path} is closed"
        assert self._boot == self._disk.boots, f"{self.path} was opened before the crash"


class MemoryDisk:
    """See `disk.Disk`.

    `hold_syncs()` makes awaited syncs wait until `release_syncs()`. `failing_syncs` and `failing_writes` raise
    `DiskFailed` instead of ending the process. `syncs` counts syncs. `is_quick`: `sync_if_quick` syncs at once, as on a
    fast disk. `fuse`: after this number of changes the machine stops (`MachineStopped`), so that a test can stop it
    before each change in turn.
    """

    def __init__(self) -> None:
        self.boots = 0
        self.syncs = 0
        self.failing_syncs = False
        self.failing_writes = False
        self.is_quick = False
        self.fuse: int | None = None
        self.held: asyncio.Future[None] | None = None
        self._names: dict[str, _Inode] = {}
        self._durable_names: dict[str, _Inode] = {}
        self._directories: dict[str, None] = {}
        self._durable_directories: dict[str, None] = {}
        self._locks: dict[str, None] = {}

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
        self.held = None
        self.fuse = None
        self._directories = dict(self._durable_directories)
        self._names = {
            path: inode for path, inode in self._durable_names.items() if path.rpartition("/")[0] in self._directories
        }
        self._durable_names = dict(self._names)
        self._locks.clear()
        for path in sorted(self._names):
            self._names[path].crash(rng)

    def let_names_through(self, rng: Random, share: float) -> None:
        """Make each unsynced change of a name durable with probability `share`, as a file system may do."""
        for path in sorted({**self._directories, **self._durable_directories}):
            if path in self._directories and path not in self._durable_directories and rng.random() < share:
                self._durable_directories[path] = None
        for path in sorted({**self._names, **self._durable_names}):
            if self._names.get(path) is not self._durable_names.get(path) and rng.random() < share:
                if path in self._names:
                    self._durable_names[path] = self._names[path]
                else:
                    del self._durable_names[path]

    def kill(self) -> None:
        """Kill the process but not the machine: no written bytes are lost. Open files become invalid."""
        self.boots += 1
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
        return MemoryFile(self, path, self._names.setdefault(path, _Inode()))

    def exists(self, path: str) -> bool:
        return path in self._names or path in self._directories

    def size(self, path: str) -> int:
        return len(self._inode(path).data)

    def listdir(self, path: str) -> list[str]:
        prefix = path + "/"
        inside = [name[len(prefix) :] for name in (*self._names, *self._directories) if name.startswith(prefix)]
        return sorted({name: None for name in inside if "/" not in name})

    def mkdir(self, path: str, *, durable: bool = True) -> None:
        self.burn()
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            parent = "/".join(parts[:depth])
            if parent:
                self._directories[parent] = None
                if durable or depth < len(parts):
                    self._durable_directories[parent] = None

    def rename(self, old: str, new: str) -> None:
        self.burn()
        if old in self._directories:
            moved = [name for name in self._names if name.startswith(old + "/")]
            for name in moved:
                self._names[new + name[len(old) :]] = self._names.pop(name)
            for name in [name for name in self._directories if name == old or name.startswith(old + "/")]:
                del self._directories[name]
                self._directories[new + name[len(old) :]] = None
            return
        inode = self._inode(old)
        del self._names[old]
        self._names[new] = inode

    def remove(self, path: str) -> None:
        self.burn()
        self._names.pop(path, None)

    def remove_later(self, path: str) -> None:
        if path in self._directories:
            self.rmtree(path)
        else:
            self.remove(path)

    def rmtree(self, path: str) -> None:
        self.burn()
        inside = path + "/"
        self._names = {name: inode for name, inode in self._names.items() if not name.startswith(inside)}
        self._directories = {name: None for name in self._directories if name != path and not name.startswith(inside)}

    def sync_dir(self, path: str) -> None:
        """Make the names in this directory durable, and the content of its directories (they may have been renamed)."""
        self.burn()
        self.syncs += 1
        prefix, at = path + "/", len(path)
        gone = [
            name
            for name in self._durable_directories
            if name.rfind("/") == at and name.startswith(prefix) and name not in self._directories
        ]
        come = [
            name
            for name in self._directories
            if name.rfind("/") == at and name.startswith(prefix) and name not in self._durable_directories
        ]
        for name in gone:
            del self._durable_directories[name]
            for inside in [path for path in self._durable_names if path.startswith(name + "/")]:
                del self._durable_names[inside]
        for name in come:
            self._durable_directories[name] = None
            for inside, inode in self._names.items():
                if inside.startswith(name + "/"):
                    self._durable_names[inside] = inode
        inside_now = [name for name in self._names if name.rfind("/") == at and name.startswith(prefix)]
        before = [name for name in self._durable_names if name.rfind("/") == at and name.startswith(prefix)]
        for name in before:
            if name not in self._names:
                del self._durable_names[name]
        for name in inside_now:
            self._durable_names[name] = self._names[name]

    def read_bytes(self, path: str) -> bytes:
        return bytes(self._inode(path).data)

    def write_atomically(self, path: str, data: Buffer, *, durable: bool = True) -> None:
        self.burn()
        if self.failing_writes:
            self.fail("write", path)
        inode = _Inode()
        inode.data += data
        self._names[path] = inode
        if durable:
            inode.synced_size = len(inode.data)
            self._durable_names[path] = inode
            self.syncs += 1

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

    def fail(self, action: str, path: str) -> NoReturn:
        raise DiskFailed(f"{action} of {path} failed")

    def _inode(self, path: str) -> _Inode:
        inode = self._names.get(path)
        if inode is None:
            raise MissingFile(path)
        return inode
