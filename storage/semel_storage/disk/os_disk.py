"""EDGE: the disk of the operating system. Appends are written at once; syncs run on threads, one at a time per file.

A handover to a thread and back takes about 0.2 ms of time and CPU, more than many disks take for a small sync. So while
the disk is fast, small syncs run on the caller's thread, and one call syncs several files. While it is slow, threads
sync (decision 10).

A failed write, sync or truncation ends the process (see `disk`): the kernel's cached pages are in an unknown state
then, and the log on disk is correct up to the last successful sync.
"""

import asyncio
import contextlib
import ctypes
import errno
import fcntl
import os
import stat
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future as Job
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from time import monotonic, perf_counter, sleep
from typing import NoReturn, TypeVar

from semel_storage.disk.debts import Debt, Debts
from semel_storage.disk.disk import TEMPORARY, Buffer, DirectoryLocked, File, FilesUsedUp, MissingFile, NotCached, Space
from semel_storage.disk.last_words import print_last
from semel_storage.disk.os_sync import find_syncfs, sync_data, sync_names, timed_sync
from semel_storage.disk.sync_pace import SyncPace
from semel_storage.disk.waiting_calls import WaitingCall, WaitingCalls
from semel_storage.disk.wakeups import WAKEUPS_PER_TURN, Wakeups

SYNC_THREADS = 4
QUICK_BYTES = 64 << 10
"""Threads sync more bytes than this."""
EXIT_STATUS = 74
"""EX_IOERR of sysexits.h."""
LOCK_FILE = ".lock"
MODE = 0o644
NS_PER_MS = 1_000_000
PRIVATE_MODE = 0o600
USED_UP = (errno.EMFILE, errno.ENFILE)
USED_UP_PAUSE_S, USED_UP_TRIES = 0.01, 500
"""At the limit of open files the disk tries again after this time, so often."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
BLOCK_BYTES = 512
"""The unit of `st_blocks`."""
PATHS_PER_TURN = 256
"""Of a sync that thousands of files or directories share, so many are looked at in one turn of the loop."""

READ_CACHED: int = getattr(os, "RWF_NOWAIT", 0)
"""The flag of preadv with which it fails in place of waiting for the disk; 0 where the system has none (not Linux)."""

WHAT_TO_DO = "repair the disk, or free space on it, then start it again"

Fatal = Callable[[str], NoReturn]
T = TypeVar("T")


def end_process(message: str) -> NoReturn:
    """Print the reason, within a bounded time, and end the process, so that nothing is written after the failure."""
    print_last(f"semel: {message}; the process ends; {WHAT_TO_DO}")
    os._exit(EXIT_STATUS)


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)


class OsFile:
    """See `disk.File`."""

    def __init__(self, disk: "OsDisk", path: str) -> None:
        self.path = path
        self._disk = disk
        with disk.calls.waiting(path):
            self._fd = _open(path)
        status = os.fstat(self._fd)
        self._size = status.st_size
        self.device = status.st_dev
        self._dirty = False
        self._synced_size = self._size
        self.paying: Sequence[Debt] = ()
        """The debts that a thread pays now, with the sync of this file."""
        self._to_close = -1
        self._running: asyncio.Future[None] | None = None
        self._next: asyncio.Future[None] | None = None

    def append(self, *chunks: Buffer) -> int:
        position = self._size
        self._dirty = True
        try:
            written = os.pwritev(self._fd, chunks, position)
            total = sum(map(len, chunks))
            if written < total:
                rest = memoryview(b"".join(chunks))
                while written < total:
                    written += os.pwrite(self._fd, rest[written:], position + written)
        except OSError as error:
            if not self._disk.give_up_reserve(error):
                self._disk.fail("write", self.path, error)
            return self.append(*chunks)
        self._size = position + total
        return position

    def pread(self, n: int, at: int) -> bytes:
        if self._disk.reads_cached_only and READ_CACHED:
            return self._pread_cached(n, at)
        return os.pread(self._fd, n, at)

    def _pread_cached(self, n: int, at: int) -> bytes:
        """Read what the kernel has in memory. A file system that cannot tell reads as usual. Raises NotCached."""
        data, done = bytearray(n), 0
        try:
            while done < n and (count := os.preadv(self._fd, [memoryview(data)[done:]], at + done, READ_CACHED)):
                done += count
        except BlockingIOError:
            raise NotCached(self.path) from None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return os.pread(self._fd, n, at)
        return bytes(data[:done])

    def size(self) -> int:
        return self._size

    def truncate(self, n: int, *, durable: bool = True) -> None:
        try:
            with self._disk.calls.waiting(self.path):
                os.ftruncate(self._fd, n)
                if durable:
                    sync_data(self._fd)
        except OSError as error:
            self._disk.fail("truncate", self.path, error)
        self._size = self._synced_size = n
        self._dirty = not durable

    async def sync(self) -> None:
        has_more = self._dirty or any(debt not in self.paying for debt in self._disk.debts.of(self.path))
        if self._fd < 0 or (self._running is None and not has_more):
            return  # closed, or nothing is left to sync
        if self._running is not None and not has_more:
            shared = self._running
        else:
            if self._next is None:
                self._next = asyncio.get_running_loop().create_future()
                if self._running is None:
                    self._disk.sync_soon(self)
            shared = self._next
        await asyncio.wait((shared,))
        shared.result()

    def sync_now(self) -> None:
        self.note_synced()
        debts = self._disk.debts.of(self.path)
        try:
            self._disk.pay(debts)
            with self._disk.calls.waiting(self.path):
                self._disk.pace.note(timed_sync(self._fd), on_loop=True)
        except OSError as error:
            self._disk.fail("fdatasync", self.path, error)
        self._disk.debts.paid(debts)

    @property
    def descriptor(self) -> int:
        return self._fd if self._fd >= 0 else self._to_close

    @property
    def unsynced_bytes(self) -> int:
        return self._size - self._synced_size

    @property
    def is_syncing(self) -> bool:
        """Whether a thread syncs this file, or will."""
        return self._running is not None or self._next is not None

    def note_synced(self) -> None:
        """Mark all bytes as synced; the caller syncs them now."""
        self._dirty = False
        self._synced_size = self._size

    def close(self) -> None:
        if self._fd < 0:
            return
        if self._running is None:
            os.close(self._fd)
        else:
            self._to_close = self._fd  # a thread syncs it, and another file must not get its descriptor
        self._fd = -1
        self._dirty = False
        if self._running is None and self._next is not None:
            self._next.set_result(None)
            self._next = None

    def begin_sync(self) -> bool:
        """A thread is going to sync this file, and to pay `paying`. False: it is closed."""
        if self._fd < 0:
            return False
        self._running, self._next = self._next, None
        self.paying = self._disk.debts.of(self.path)
        self.note_synced()
        return True

    def end_sync(self) -> None:
        """The thread has done it: callers of `sync` go on."""
        self._disk.debts.paid(self.paying)
        waiting, self._running, self.paying = self._running, None, ()
        if self._to_close >= 0:
            os.close(self._to_close)
            self._to_close = -1
        if self._next is not None:
            if self._fd >= 0:
                self._disk.sync_soon(self)
            else:  # closed in the meantime: its log was deleted
                self._next.set_result(None)
                self._next = None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)


def _allocate(fd: int, size: int) -> None:
    """Allocate the bytes of a file. Raises OSError."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
        return
    written = 0
    while written < size:
        written += os.pwrite(fd, bytes(min(1 << 20, size - written)), written)


class OsDisk:
    """See `disk.Disk`. `on_fatal` is called with a message if a write or sync fails; it must not return."""

    def __init__(self, on_fatal: Fatal = end_process) -> None:
        self._on_fatal = on_fatal
        self.on_used_up: Callable[[], None] = lambda: None
        """Called if the limit of open files is reached."""
        self.on_not_removed: Callable[[str, OSError], None] = lambda path, error: None
        """Called on a thread if `remove_later` could not remove a path."""
        self.on_reserve_given_up: Callable[[str], None] = lambda path: None
        """Called with the path of the reserve after a write found no room."""
        self._reserve: str | None = None
        self._spare: int | None = None
        self._keeps_spare = False
        self._spare_lock = Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._removals: ThreadPoolExecutor | None = None
        self.calls = WaitingCalls(monotonic)
        self.pace = SyncPace(monotonic)
        self.debts = Debts()
        self._due: list[OsFile] = []
        self._is_sharing = False
        self.reads_cached_only = False
        self._settled = Wakeups()
        self._to_remove: deque[str] = deque()
        self._is_removing = False
        self._removal_lock = Lock()
        self._to_settle: dict[str, None] = {}
        self._settling: asyncio.Task[None] | None = None
        self._settling_next: asyncio.Task[None] | None = None
        self._asides: list[Job[None]] = []
        self._syncfs = find_syncfs()

    def open(self, path: str) -> OsFile:
        try:
            return OsFile(self, path)
        except OSError as error:
            if error.errno in NO_ROOM:
                self._make_room("creation", path, error)
                return self.open(path)
            if error.errno not in USED_UP:
                raise
            self.on_used_up()
            raise FilesUsedUp(f"{path}: {error.strerror}") from None

    def check_room(self, files: int) -> None:
        taken: list[int] = []
        try:
            while len(taken) < files:
                taken.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            if error.errno not in USED_UP:
                raise
            self.on_used_up()
            raise FilesUsedUp(error.strerror) from None
        finally:
            for fd in taken:
                os.close(fd)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            raise MissingFile(path) from None

    def modified_ms(self, path: str) -> int:
        try:
            return os.stat(path).st_mtime_ns // NS_PER_MS
        except FileNotFoundError:
            raise MissingFile(path) from None

    def set_modified(self, path: str, time_ms: int) -> None:
        try:
            os.utime(path, ns=(time_ms * NS_PER_MS, time_ms * NS_PER_MS))
        except FileNotFoundError:
            raise MissingFile(path) from None

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def mkdir(self, path: str, *, durable: bool = True) -> None:
        if os.path.isdir(path):
            return
        parent = os.path.dirname(os.path.abspath(path))
        self.mkdir(parent)
        try:
            os.mkdir(path)
        except FileExistsError:
            pass
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._make_room("creation", path, error)
            self.mkdir(path, durable=durable)
            return
        if durable:
            self.sync_dir(parent)

    def rename(self, old: str, new: str) -> None:
        try:
            with self.calls.waiting(old):
                os.replace(old, new)
        except FileNotFoundError:
            raise MissingFile(old) from None
        self.debts.forget(old)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError), self.calls.waiting(path):
            os.unlink(path)

    def remove_later(self, path: str) -> None:
        with self._removal_lock:
            self._to_remove.append(path)
            is_removing, self._is_removing = self._is_removing, True
        if not is_removing:
            self.submit_removal(self._remove_all).add_done_callback(lambda done: done.result())

    def _remove_all(self) -> None:
        """On a thread: remove one path after the other."""
        while (path := self._next_to_remove()) is not None:
            try:
                self.rmtree(path)
            except OSError as error:
                self.on_not_removed(path, error)
            except BaseException:
                self._is_removing = False  # the next call begins again
                raise

    def _next_to_remove(self) -> str | None:
        with self._removal_lock:
            self._is_removing = bool(self._to_remove)
            return self._to_remove.popleft() if self._to_remove else None

    def rmtree(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            if not os.path.isdir(path) or os.path.islink(path):
                with self.calls.waiting(path):
                    os.unlink(path)
                return
            with os.scandir(path) as entries:
                inside = [entry.path for entry in entries]
            for each in inside:
                self.rmtree(each)
            os.rmdir(path)

    def sync_dir_later(self, path: str) -> None:
        self.debts.add_names(path)

    def owes(self, path: str) -> bool:
        return bool(self.debts.of(path))

    def owes_names(self, directory: str) -> bool:
        return self.debts.has_names(directory)

    async def settle(self, directory: str) -> None:
        if not self.debts.of(f"{directory}/"):
            return
        if self._settling_next is None:
            settling = self._settle_together(self._settling)
            self._settling_next = asyncio.get_running_loop().create_task(settling, name="debts")
        self._to_settle[directory] = None
        await self._settled.after(self._settling_next)

    async def _settle_together(self, earlier: asyncio.Task[None] | None) -> None:
        """Pay what all owe that ask meanwhile. One at a time: thousands of directories must not keep threads busy."""
        if earlier is not None:
            await asyncio.wait((earlier,))
        self._settling, self._settling_next = self._settling_next, None
        directories, self._to_settle = self._to_settle, {}
        owed: dict[Debt, None] = {}
        try:
            for count, directory in enumerate(directories, 1):
                owed |= dict.fromkeys(self.debts.of(f"{directory}/"))
                if not count % PATHS_PER_TURN:
                    await asyncio.sleep(0)
            debts = list(owed)
            shared_s = await asyncio.wrap_future(self.submit(self._pay_together, debts, self.pace.may_share))
        except OSError as error:
            self.fail("fsync in directory", next(iter(directories)), error)
        finally:
            self._settling = None
        if shared_s is not None:
            self.pace.note_shared(shared_s, len(debts))
        for start in range(0, len(debts), PATHS_PER_TURN):
            self.debts.paid(debts[start : start + PATHS_PER_TURN])
            if start:
                await asyncio.sleep(0)

    def _pay_together(self, debts: Sequence[Debt], may_share: bool) -> float | None:
        """On a thread: pay by one syncfs in place of several syncs; returns its seconds, or None. Raises OSError."""
        if self._syncfs is not None and may_share and len(debts) > 1:
            on_devices = {os.stat(debt.path).st_dev: debt.path for debt in debts if os.path.exists(debt.path)}
            if len(on_devices) == 1:
                (path,) = on_devices.values()
                fd = self._open_with_spare(path)
                try:
                    return self._sync_shared(self._syncfs, fd, path)
                finally:
                    os.close(fd)
                    self._keep_spare()
        self.pay(debts)
        return None

    def settle_now(self, directory: str) -> None:
        debts = self.debts.of(f"{directory}/")
        try:
            self.pay(debts)
        except OSError as error:
            self.fail("fsync in directory", directory, error)
        self.debts.paid(debts)

    def sync_later(self, path: str) -> None:
        self.debts.add_file(path)

    async def write_aside(self, path: str, data: Buffer, *, private: bool = False) -> None:
        job = self.submit(partial(self.write_atomically, private=private), path, data)
        self._asides.append(job)
        job.add_done_callback(self._asides.remove)
        await asyncio.wrap_future(job)

    async def asides_done(self) -> None:
        if jobs := list(self._asides):
            await asyncio.wait([asyncio.wrap_future(job) for job in jobs])

    def finish_asides(self) -> None:
        for job in list(self._asides):
            job.exception()

    def write_later(self, path: str, data: Buffer) -> None:
        self.write_atomically(path, data, durable=False)
        self.debts.add_file(path)
        self.debts.add_names(os.path.dirname(path))

    def pay(self, debts: Sequence[Debt]) -> None:
        """Make durable what they name, in their order. On any thread. Raises OSError for a failed sync."""
        for debt in debts:
            try:
                fd = self._open_with_spare(debt.path)
            except FileNotFoundError:
                continue  # removed: that is a debt of its directory
            try:
                with self.calls.waiting(debt.path):
                    if debt.is_directory:
                        sync_names(fd)
                    else:
                        sync_data(fd)
            finally:
                os.close(fd)
                self._keep_spare()

    def _open_with_spare(self, path: str, flags: int = os.O_RDONLY, mode: int = MODE) -> int:
        """Open a file for a moment. At the limit of open files it takes the spare descriptor, or waits for a while
        until another thread gives it back."""
        tries_left = USED_UP_TRIES
        while True:
            try:
                return os.open(path, flags | os.O_CLOEXEC, mode)
            except OSError as error:
                if error.errno not in USED_UP or not tries_left:
                    raise
            tries_left -= 1
            if not self._free_spare():
                sleep(USED_UP_PAUSE_S)

    def sync_dir(self, path: str) -> None:
        with self._room_for_one():
            fd = self._open_with_spare(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                with self.calls.waiting(path):
                    sync_names(fd)
            except OSError as error:
                self.fail("fsync of directory", path, error)
            finally:
                os.close(fd)

    @contextlib.contextmanager
    def _room_for_one(self) -> Iterator[None]:
        """Free the spare descriptor, so that the block can open one file also at the limit of open files."""
        self._free_spare()
        try:
            yield
        finally:
            self._keep_spare()

    def _free_spare(self) -> bool:
        """Close the spare descriptor. False: another thread uses it."""
        with self._spare_lock:
            spare, self._spare = self._spare, None
        if spare is not None:
            os.close(spare)
        return spare is not None

    def _keep_spare(self) -> None:
        with self._spare_lock:
            if self._keeps_spare and self._spare is None:
                with contextlib.suppress(OSError):  # another thread took it; the next call tries again
                    self._spare = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)

    def read_bytes(self, path: str) -> bytes:
        try:
            with self.calls.waiting(path), open(path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            raise MissingFile(path) from None

    def write_atomically(self, path: str, data: Buffer, *, durable: bool = True, private: bool = False) -> None:
        temporary = path + TEMPORARY
        mode = PRIVATE_MODE if private else MODE
        with self._room_for_one(), self.calls.waiting(path):
            try:
                fd = self._open_with_spare(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
                try:
                    if private:
                        os.fchmod(fd, mode)  # a killed process may have left the file with another mode
                    rest = memoryview(data)
                    while len(rest):
                        rest = rest[os.write(fd, rest) :]
                    if durable:
                        sync_data(fd)
                finally:
                    os.close(fd)
                os.replace(temporary, path)
            except OSError as error:
                self._make_room("write", path, error)
                self.write_atomically(path, data, durable=durable, private=private)
                return
        if durable:
            self.sync_dir(os.path.dirname(path) or ".")

    def space(self, path: str) -> Space | None:
        try:
            found = os.statvfs(path)
        except FileNotFoundError:
            return None
        return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    def find_reserve(self, path: str) -> None:
        self._reserve = path

    def keep_reserve(self, path: str, size: int) -> bool:
        self._reserve = path
        try:
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(path)
                if found.st_size >= size and found.st_blocks * BLOCK_BYTES >= size:
                    return True
            fd = _open(path)
            try:
                _allocate(fd, size)
            finally:
                os.close(fd)
        except OSError:
            self.remove(path)
            return False
        return True

    def give_up_reserve(self, error: OSError) -> bool:
        """Remove the reserve if a write found no room. False: there is none, or the write failed otherwise."""
        if error.errno not in NO_ROOM or self._reserve is None:
            return False
        try:
            os.unlink(self._reserve)
        except FileNotFoundError:
            return False
        self.on_reserve_given_up(self._reserve)
        return True

    def _make_room(self, action: str, path: str, error: OSError) -> None:
        """Return if a write may be tried again; otherwise end the process."""
        if not self.give_up_reserve(error):
            self.fail(action, path, error)

    def check_directory(self, path: str) -> None:
        if not os.path.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), entry.path)

    def make_private(self, path: str) -> None:
        for each in (path, path + TEMPORARY):  # a killed process may have left the second
            try:
                if stat.S_IMODE(os.stat(each).st_mode) != PRIVATE_MODE:
                    os.chmod(each, PRIVATE_MODE)
            except FileNotFoundError:
                if each == path:
                    raise MissingFile(path) from None

    def lock(self, directory: str) -> Callable[[], None]:
        path = f"{directory}/{LOCK_FILE}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise DirectoryLocked(
                f"data directory {directory} is in use by process {holder or 'unknown'}; "
                "stop that process or choose another data directory"
            ) from None
        os.ftruncate(fd, 0)
        try:
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            if error.errno not in NO_ROOM:  # the id is for a message only
                os.close(fd)
                raise
        self._keeps_spare = True
        with self._room_for_one():
            """Open the spare descriptor."""

        def unlock() -> None:
            os.close(fd)
            self._keeps_spare = False
            with self._room_for_one():
                """Close the spare descriptor."""

        return unlock

    def close(self) -> None:
        """Wait for the threads, so that running removals finish."""
        for threads in (self._threads, self._removals):
            if threads is not None:
                threads.shutdown(wait=True)
        self._threads = self._removals = None

    def sync_if_quick(self, files: Sequence[File]) -> bool:
        ours = [file for file in files if isinstance(file, OsFile)]
        assert len(ours) == len(files), "files of another disk"
        if sum(file.unsynced_bytes for file in ours) > QUICK_BYTES or any(file.is_syncing for file in ours):
            return False
        if len(ours) > 1:
            return self._sync_together(ours)
        if not self.pace.is_quick or self.debts.of(ours[0].path):
            return False
        ours[0].sync_now()
        return True

    def sync_all_now(self, files: Sequence[File]) -> None:
        ours = [file for file in files if isinstance(file, OsFile)]
        if self._syncfs is not None and len(ours) > 1 and len({file.device for file in ours}) == 1:
            self._syncfs_now(self._syncfs, ours)
        else:
            for file in ours:
                file.sync_now()

    def sync_file_system(self, directory: str) -> bool:
        if self._syncfs is None:
            return False
        fd = self._open_with_spare(directory)
        try:
            self._sync_shared(self._syncfs, fd, directory)
        except OSError as error:
            self.fail("syncfs", directory, error)
        finally:
            os.close(fd)
            self._keep_spare()
        return True

    def _sync_together(self, files: Sequence[OsFile]) -> bool:
        """Sync the files by one syncfs of the whole file system, instead of one fdatasync per file."""
        if self._syncfs is None or not self.pace.is_quick_together or len({file.device for file in files}) > 1:
            return False
        self.pace.note_together(self._syncfs_now(self._syncfs, files))
        return True

    def _syncfs_now(self, syncfs: Callable[[int], int], files: Sequence[OsFile]) -> float:
        """Sync the file system of these files. Returns its seconds."""
        debts = [debt for file in files for debt in self.debts.of(file.path)]
        for file in files:
            file.note_synced()
        try:
            seconds = self._sync_shared(syncfs, files[0].descriptor, files[0].path)
        except OSError as error:
            self.fail("syncfs", files[0].path, error)
        self.debts.paid(debts)
        return seconds

    def sync_soon(self, file: OsFile) -> None:
        """Sync the file on a thread. All that ask in one turn of the loop share one syncfs, where that is quicker."""
        if not self._due:
            asyncio.get_running_loop().call_soon(self._begin_syncs)
        self._due.append(file)

    def _begin_syncs(self) -> None:
        if self._is_sharing:
            return  # one syncfs at a time: the next one is for all that came meanwhile
        due, self._due = self._due, []
        self._is_sharing = len(due) > PATHS_PER_TURN
        self._begin_some(deque(due), [], set())

    def _begin_some(self, due: deque[OsFile], files: list[OsFile], debts: set[Debt]) -> None:
        """Take a portion of the files of one sync, which begins once it has all of them."""
        for _ in range(min(len(due), PATHS_PER_TURN)):
            file = due.popleft()
            if file.begin_sync():
                files.append(file)
                debts.update(file.paying)
        if due:
            asyncio.get_running_loop().call_soon(self._begin_some, due, files, debts)
        else:
            self._begin_sync(files, len(files) + len(debts))

    def _begin_sync(self, files: Sequence[OsFile], count: int) -> None:
        self._is_sharing = False
        share = (
            self._syncfs if count > 1 and self.pace.may_share and len({file.device for file in files}) == 1 else None
        )
        if share is not None:
            self._is_sharing = True
            self._run(files, count, partial(self._sync_shared, share, files[0].descriptor, files[0].path))
        else:
            self._run_each(deque(files))

    def _run_each(self, files: deque[OsFile]) -> None:
        for _ in range(min(len(files), WAKEUPS_PER_TURN)):
            file = files.popleft()
            self._run([file], 1, partial(self._pay_and_sync, file.paying, file.descriptor, file.path))
        if files:
            asyncio.get_running_loop().call_soon(self._run_each, files)

    def _run(self, files: Sequence[OsFile], count: int, sync: Callable[[], float]) -> None:
        """`count`: of the syncs that this one stands for."""
        loop = asyncio.get_running_loop()

        def report(done: Job[float]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, no caller waits
                loop.call_soon_threadsafe(self._end_syncs, files, count, done)

        self.submit(sync).add_done_callback(report)

    def _end_syncs(self, files: Sequence[OsFile], count: int, job: Job[float]) -> None:
        error = job.exception()
        if isinstance(error, OSError):
            self.fail("syncfs" if count > 1 else "fdatasync", files[0].path, error)
        assert error is None, error
        if count > 1:
            self.pace.note_shared(job.result(), count)
        else:
            self.pace.note(job.result(), on_loop=False)
        self._end_some(deque(files), is_shared=count > 1)

    def _end_some(self, files: deque[OsFile], *, is_shared: bool) -> None:
        """Let the callers continue that wait for a portion of the files of one sync."""
        for _ in range(min(len(files), WAKEUPS_PER_TURN)):
            files.popleft().end_sync()
        if files:
            asyncio.get_running_loop().call_soon(partial(self._end_some, files, is_shared=is_shared))
        elif is_shared:
            self._is_sharing = False
            if self._due:
                self._begin_syncs()

    def _pay_and_sync(self, debts: Sequence[Debt], descriptor: int, path: str) -> float:
        """On a thread. Returns the seconds of the sync of the file."""
        self.pay(debts)
        with self.calls.waiting(path):
            return timed_sync(descriptor)

    def _sync_shared(self, syncfs: Callable[[int], int], descriptor: int, path: str) -> float:
        """One sync of the whole file system that `path` is on. Returns its seconds. Raises OSError."""
        begun = perf_counter()
        with self.calls.waiting(path):
            if syncfs(descriptor):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
        return perf_counter() - begun

    def oldest_call(self) -> WaitingCall | None:
        return self.calls.oldest()

    def submit(self, call: Callable[..., T], *arguments: object) -> Job[T]:
        """Run `call` on one of the threads."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="semel-disk")
        return self._threads.submit(call, *arguments)

    def submit_removal(self, call: Callable[..., T], *arguments: object) -> Job[T]:
        """As `submit`, on a thread of its own: syncs do not wait behind the removal of large files."""
        if self._removals is None:
            self._removals = ThreadPoolExecutor(1, thread_name_prefix="semel-disk-removal")
        return self._removals.submit(call, *arguments)

    def fail(self, action: str, path: str, error: OSError) -> NoReturn:
        """End the process for a failed write."""
        number = error.errno or 0
        self._on_fatal(f"{action} of {path} failed: {errno.errorcode.get(number, str(number))} ({error.strerror})")
