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
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future as Job
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import NoReturn, TypeVar

from semel_storage.disk.disk import TEMPORARY, Buffer, DirectoryLocked, File, FilesUsedUp, MissingFile, Space
from semel_storage.disk.last_words import print_last
from semel_storage.disk.os_sync import SyncPace, find_syncfs, sync_data, sync_names, timed_sync

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
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
BLOCK_BYTES = 512
"""The unit of `st_blocks`."""

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
        self._fd = _open(path)
        status = os.fstat(self._fd)
        self._size = status.st_size
        self.device = status.st_dev
        self._dirty = False
        self._synced_size = self._size
        self._job: Job[float] | None = None
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
        return os.pread(self._fd, n, at)

    def size(self) -> int:
        return self._size

    def truncate(self, n: int) -> None:
        try:
            os.ftruncate(self._fd, n)
            sync_data(self._fd)
        except OSError as error:
            self._disk.fail("truncate", self.path, error)
        self._size = self._synced_size = n

    async def sync(self) -> None:
        if self._running is None:
            if not self._dirty:
                return
            shared = asyncio.get_running_loop().create_future()
            self._start(shared)
        elif not self._dirty:
            shared = self._running
        else:
            if self._next is None:
                self._next = asyncio.get_running_loop().create_future()
            shared = self._next
        await asyncio.wait((shared,))
        shared.result()

    def sync_now(self) -> None:
        self.note_synced()
        try:
            self._disk.pace.note(timed_sync(self._fd))
        except OSError as error:
            self._disk.fail("fdatasync", self.path, error)

    @property
    def descriptor(self) -> int:
        return self._fd

    @property
    def unsynced_bytes(self) -> int:
        return self._size - self._synced_size

    @property
    def is_syncing(self) -> bool:
        """Whether a thread is syncing this file."""
        return self._running is not None

    def note_synced(self) -> None:
        """Mark all bytes as synced; the caller syncs them now."""
        self._dirty = False
        self._synced_size = self._size

    def close(self) -> None:
        if self._fd < 0:
            return
        if self._job is not None:
            self._job.exception()  # waits: a running sync must not use a descriptor that another file gets
        os.close(self._fd)
        self._fd = -1
        self._dirty = False

    def _start(self, shared: "asyncio.Future[None]") -> None:
        """Sync on a thread; all callers wait for the future `shared`."""
        self.note_synced()
        self._running = shared
        loop = shared.get_loop()
        job = self._disk.submit(timed_sync, self._fd)
        self._job = job

        def report(done: Job[float]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, no caller waits
                loop.call_soon_threadsafe(self._finish, done)

        job.add_done_callback(report)

    def _finish(self, job: Job[float]) -> None:
        error = job.exception()
        if isinstance(error, OSError):
            self._disk.fail("fdatasync", self.path, error)
        assert error is None, error
        self._disk.pace.note(job.result())
        waiting, self._running, self._job = self._running, None, None
        following, self._next = self._next, None
        if following is not None:
            if self._fd < 0:
                following.set_result(None)  # closed in the meantime: its log was deleted
            else:
                self._start(following)
        assert waiting is not None
        if not waiting.done():
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
        self._threads: ThreadPoolExecutor | None = None
        self.pace = SyncPace()
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
            os.replace(old, new)
        except FileNotFoundError:
            raise MissingFile(old) from None

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_later(self, path: str) -> None:
        self.submit(self.rmtree, path).add_done_callback(lambda done: self._report_removal(path, done))

    def _report_removal(self, path: str, done: Job[None]) -> None:
        error = done.exception()
        if isinstance(error, OSError):
            self.on_not_removed(path, error)
        elif error is not None:
            raise error

    def rmtree(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)

    def sync_dir(self, path: str) -> None:
        with self._room_for_one():
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                sync_names(fd)
            except OSError as error:
                self.fail("fsync of directory", path, error)
            finally:
                os.close(fd)

    @contextlib.contextmanager
    def _room_for_one(self) -> Iterator[None]:
        """Free the spare descriptor, so that the block can open one file also at the limit of open files."""
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        try:
            yield
        finally:
            if self._keeps_spare:
                with contextlib.suppress(OSError):  # another thread took it; the next call tries again
                    self._spare = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)

    def read_bytes(self, path: str) -> bytes:
        try:
            with open(path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            raise MissingFile(path) from None

    def write_atomically(self, path: str, data: Buffer, *, durable: bool = True, private: bool = False) -> None:
        temporary = path + TEMPORARY
        mode = PRIVATE_MODE if private else MODE
        with self._room_for_one():
            try:
                fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
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
        if error.errno not in NO_ROOM or self._reserve is None or not os.path.exists(self._reserve):
            return False
        os.unlink(self._reserve)
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
        if self._threads is not None:
            self._threads.shutdown(wait=True)
            self._threads = None

    def sync_if_quick(self, files: Sequence[File]) -> bool:
        ours = [file for file in files if isinstance(file, OsFile)]
        assert len(ours) == len(files), "files of another disk"
        if sum(file.unsynced_bytes for file in ours) > QUICK_BYTES or any(file.is_syncing for file in ours):
            return False
        if len(ours) > 1:
            return self._sync_together(ours)
        if self.pace.is_quick:
            ours[0].sync_now()
        return self.pace.is_quick

    def _sync_together(self, files: Sequence[OsFile]) -> bool:
        """Sync the files by one syncfs of the whole file system, instead of one fdatasync per file."""
        if self._syncfs is None or not self.pace.is_quick_together or len({file.device for file in files}) > 1:
            return False
        begun = perf_counter()
        for file in files:
            file.note_synced()
        if self._syncfs(files[0].descriptor):
            number = ctypes.get_errno()
            self.fail("syncfs", files[0].path, OSError(number, os.strerror(number)))
        self.pace.note_together(perf_counter() - begun)
        return True

    def submit(self, call: Callable[..., T], *arguments: object) -> Job[T]:
        """Run `call` on one of the threads."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="semel-disk")
        return self._threads.submit(call, *arguments)

    def fail(self, action: str, path: str, error: OSError) -> NoReturn:
        """End the process for a failed write."""
        number = error.errno or 0
        self._on_fatal(f"{action} of {path} failed: {errno.errorcode.get(number, str(number))} ({error.strerror})")
