"""A host's disk: `MemoryDisk` with syncs that take time, devices that fail or fill up, and a stricter loss of power.

A blocking sync stops the whole process for its duration. The disk keeps the promises of `semel_storage.disk.disk` and
no others: see `power_loss`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

import msgspec
from semel_protocol.batch import CorruptBatch, crc_ok, iterate
from semel_storage.disk.debts import Debts
from semel_storage.disk.disk import Buffer, File, FilesUsedUp, Space
from semel_storage.disk.memory_disk import SECTOR_BYTES, Aside, MemoryDisk, MemoryFile, _Inode
from semel_storage.disk.sync_pace import SYNCS_REMEMBERED, SyncPace
from semel_storage.disk.waiting_calls import WaitingCall
from semel_storage.log_directory import OPEN_FILES
from semel_storage.segments.segment import LOG, offset_of

if TYPE_CHECKING:
    from sim.stalls import LoopStalls
    from sim.world import SimWorld

NS = 1_000_000_000
NS_PER_MS = 1_000_000
FREED_SECTORS_MAX = 200
HANG_LOOK_S = 0.2
UNLIMITED_BYTES = 1 << 40
Exit = Callable[[str], NoReturn]


class DiskWeather(msgspec.Struct):
    """The present behaviour of a disk; faults change it.

    `sync_ms`: least and most time of a sync. `slow_ms`: the same of a slow disk, whose times the broker's own measure
    judges (`SyncPace`), and which holds also the removal of a segment; None for another disk. `slowdown`: a factor.
    `hangs_until_ns`: no sync ends before this time. `full_bytes`: the capacity; None for no
    limit. `failing_syncs`: every sync fails with EIO. `stale_tails`: a sector that a power loss takes may show old
    contents of the disk in place of zeros: sectors of files that were truncated or removed, or random bytes. Where
    the next batch of a log was, they never show a whole batch of another log: no broker could see the difference.
    `opening_ms`: the most time for which the opening of a log that was written before holds the process.
    `files_used_up`: no other log can be opened.
    """

    sync_ms: tuple[float, float] = (0.05, 4.0)
    slow_ms: tuple[float, float] | None = None
    hangs_until_ns: int = 0
    slowdown: float = 1.0
    full_bytes: int | None = None
    failing_syncs: bool = False
    stale_tails: bool = False
    opening_ms: float = 0.0
    files_used_up: bool = False

    def heal(self) -> None:
        """Remove the capacity limit, the slowness, the sync failures and the limit of open files."""
        self.files_used_up = False
        self.slowdown, self.full_bytes, self.failing_syncs = 1.0, None, False
        self.slow_ms, self.hangs_until_ns = None, 0


class SimFile(MemoryFile):
    """See `semel_storage.disk.disk.File`."""

    _disk: SimDisk

    def append(self, *chunks: Buffer) -> int:
        disk = self._disk
        size = sum(map(len, chunks))
        if not disk.has_room(size):
            whole = b"".join(chunks)
            super().append(whole[: disk.rng.randrange(len(whole) + 1)])
            disk.fail("write", self.path)
        position = super().append(*chunks)
        disk.changed(self.path, chunks)
        return position

    def truncate(self, n: int, *, durable: bool = True) -> None:
        if durable and self._disk.weather.failing_syncs:
            self._disk.fail("truncate", self.path)
        self._disk.free(self.path, self._inode.data, n)
        super().truncate(n, durable=durable)
        if durable:
            self._disk.block()

    async def sync(self) -> None:
        if self._closed:
            return
        self._check()
        inode = self._inode
        covered = len(inode.data)
        disk = self._disk
        debts = disk.debts.of(self.path)
        if self.is_synced() and not debts:
            return
        boot = disk.boots
        sync_ms = disk.sync_ms()
        hung_ms = await disk.wait(self.path, [*(disk.sync_ms() for _ in debts), sync_ms])
        if boot != disk.boots or self._closed:
            return
        if disk.weather.failing_syncs:
            disk.lose_unsynced(inode)
        disk.pay(debts)
        self._sync_up_to(min(covered, len(inode.data)))
        disk.pace.note((sync_ms + hung_ms) / 1000, on_loop=False)
        disk.world.mark(covered)

    def sync_now(self) -> None:
        self.sync_in_no_time()
        self._disk.block()

    def sync_in_no_time(self) -> None:
        if self._disk.weather.failing_syncs:
            self._disk.lose_unsynced(self._inode)
        super().sync_now()


class SimDisk(MemoryDisk):
    """See `semel_storage.disk.disk.Disk`. `end_process` is called after a failed write or sync, `stand_still` with the
    duration in ms of a blocking sync.

    `changed`: called for each append with its bytes, and with () for each file that is replaced or renamed.
    `burnt_down`: called when the `fuse` (see `MemoryDisk`) has burnt down; it must not return. `in_use`: a process runs
    that may write. Code of an ended process that still unwinds changes nothing.
    """

    def __init__(self, world: SimWorld, name: str, end_process: Exit, stand_still: Callable[[float], None]) -> None:
        super().__init__()
        self.world, self.name = world, name
        self.rng = world.random("disk", name)
        self.weather = DiskWeather()
        self.in_use = True
        self.burnt_down: Callable[[], object] = lambda: self.fail("change", "")
        self.changed: Callable[[str, Sequence[Buffer]], object] = lambda path, chunks: None
        self.stand_still = stand_still
        self._end_process = end_process
        self.stale: dict[str, bytes] = {}
        """Files with stale sectors from a power loss, by path, with their contents if these sectors were zeros. Cleared
        by a successful start of the broker.
        """
        self.stalls: LoopStalls | None = None
        """Records each call that holds the broker's loop."""
        self.opens_refused = 0
        """Logs that could not be opened for lack of files."""
        self.pace = SyncPace(lambda: world.now_ns / NS)
        self._is_on_thread = False
        self._waiting: dict[object, tuple[int, str]] = {}
        """The calls that wait: the time at which each began, and its path."""
        self._reserve = ""
        self._freed: deque[bytes] = deque(maxlen=FREED_SECTORS_MAX)

    def open(self, path: str) -> SimFile:
        self.check_file(path)
        return SimFile(self, path, self._names.setdefault(path, _Inode(self.clock())))

    def sync_if_quick(self, files: Sequence[File]) -> bool:
        """True and synced in half of the cases; never on a disk that a fault makes slow. Callers must work with both
        answers. With `slow_ms` the broker's measure decides, which does not know how long the next sync takes.
        """
        if any(self.debts.of(file.path) for file in files):
            return False
        if self.weather.slow_ms is not None:
            if not (self.pace.is_quick_together if len(files) > 1 else self.pace.is_quick):
                return False
        elif self.weather.slowdown > 1 or self.rng.random() < 0.5:
            return False
        for file in files:
            assert isinstance(file, SimFile)
            file.sync_in_no_time()
        if self.weather.slow_ms is None:
            self.stand_still(self.weather.sync_ms[0])
            return True
        sync_ms = self.block(is_small=True)
        if len(files) > 1:
            self.pace.note_together(sync_ms / 1000)
        else:
            self.pace.note(sync_ms / 1000, on_loop=True)
        return True

    def turn_slow(self, slow_ms: tuple[float, float]) -> None:
        """From now on syncs take this long. The broker has measured a fast disk until now."""
        self.weather.slow_ms = slow_ms
        for _ in range(SYNCS_REMEMBERED):
            self.pace.note(0.0, on_loop=False)

    def sync_all_now(self, files: Sequence[File]) -> None:
        for file in files:
            assert isinstance(file, SimFile)
            file.sync_in_no_time()
        self.block()

    def sync_file_system(self, directory: str) -> bool:
        self._check_syncs(directory)
        self.debts = Debts()
        for path in self._directories.tree(directory):
            super().sync_dir(path)
            for inode in self._names.inside(path).values():
                inode.before, inode.synced_size = None, len(inode.data)
        self.block()
        return True

    def check_directory(self, path: str) -> None:
        super().check_directory(path)
        if self.weather.opening_ms:
            self.stand_still(self.weather.opening_ms * self.rng.random() ** 2)

    def check_room(self, files: int) -> None:
        if self.weather.files_used_up and files == OPEN_FILES:
            self.opens_refused += 1
            raise FilesUsedUp("Too many open files")

    def used_bytes(self) -> int:
        return sum(len(inode.data) for inode in self._names.values())

    def space(self, path: str) -> Space:
        full_bytes = self.weather.full_bytes
        if full_bytes is None:
            return Space(UNLIMITED_BYTES, UNLIMITED_BYTES)
        return Space(max(0, full_bytes - self.used_bytes()), full_bytes)

    def find_reserve(self, path: str) -> None:
        self._reserve = path

    def keep_reserve(self, path: str, size: int) -> bool:
        self._reserve = path
        if path not in self._names:
            self.put(path, bytes(size))
        return True

    def has_room(self, size: int) -> bool:
        """Whether `size` bytes can be written. Gives up the reserve if it is needed."""
        full_bytes = self.weather.full_bytes
        if full_bytes is None or self.used_bytes() + size <= full_bytes:
            return True
        if self._reserve not in self._names:
            return False
        self.take(self._reserve)
        self.world.count("came/full disk: the reserve was given up")
        return self.used_bytes() + size <= full_bytes

    def sync_ms(self) -> float:
        """The duration of the next sync, unless the disk hangs."""
        weather = self.weather
        low, high = weather.slow_ms or weather.sync_ms
        return (low + (high - low) * self.rng.random() ** 3) * (1.0 if weather.slow_ms else weather.slowdown)

    async def wait(self, path: str, each_ms: Sequence[float]) -> float:
        """Wait for syncs on a thread, one after the other. None ends while the disk hangs: returns the ms of that."""
        call, world, weather = object(), self.world, self.weather
        total_ns = int(sum(each_ms) * NS_PER_MS)
        self._waiting[call] = world.now_ns + total_ns - int(each_ms[-1] * NS_PER_MS), path
        try:
            await asyncio.sleep(total_ns / NS)
            due_ns = world.now_ns
            while (left_ns := weather.hangs_until_ns - world.now_ns) > 0:
                await asyncio.sleep(min(left_ns / NS, HANG_LOOK_S))
        finally:
            self._waiting.pop(call, None)
        return (world.now_ns - due_ns) / NS_PER_MS

    def _hangs_for_ms(self) -> float:
        """The time from now on in which no sync ends."""
        return (self.weather.hangs_until_ns - self.world.now_ns) / NS_PER_MS

    def kill(self) -> None:
        super().kill()
        self._waiting.clear()

    def oldest_call(self) -> WaitingCall | None:
        begun_ns, path = min(self._waiting.values(), default=(self.world.now_ns, ""))
        return WaitingCall(path, max(0.0, (self.world.now_ns - begun_ns) / NS)) if path else None

    def block(self, *, is_small: bool = False) -> float:
        """A call that blocks the process; returns its duration in ms. `is_small`: a small sync of decision 10."""
        sync_ms = max(self.sync_ms(), self._hangs_for_ms())
        if self.stalls is not None:
            self.stalls.note(sync_ms, is_small=is_small)
        self.stand_still(sync_ms)
        return sync_ms

    def fail(self, action: str, path: str) -> NoReturn:
        self._end_process(f"{action} of {path} failed")

    def burn(self) -> None:
        if not self.in_use:
            self.fail("write by a dead process", "")
        if self.fuse == 0:
            self.burnt_down()
        super().burn()
        self.failing_syncs = self.weather.failing_syncs

    def write_atomically(self, path: str, data: Buffer, *, durable: bool = True, private: bool = False) -> None:
        self._write(path, data, durable=durable, private=private)
        if durable:
            self.block()

    def _write(self, path: str, data: Buffer, *, durable: bool, private: bool) -> None:
        if not self.has_room(len(data)):
            self.fail("write", path)
        if durable and self.weather.failing_syncs:
            self.fail("fdatasync", path)
        super().write_atomically(path, data, durable=durable, private=private)
        self.changed(path, ())

    async def write_aside(self, path: str, data: Buffer, *, private: bool = False) -> None:
        aside = Aside(path, bytes(data), private)
        self.asides.append(aside)
        await self.wait(path, [self.sync_ms(), self.sync_ms()])
        self.finish_aside(aside)

    def finish_aside(self, aside: Aside) -> None:
        if aside in self.asides:
            self.asides.remove(aside)
            self.check_parent(aside.path)
            self._write(aside.path, aside.data, durable=True, private=aside.private)
            aside.end()

    async def settle(self, directory: str) -> None:
        debts, boot = self.debts.of(f"{directory}/"), self.boots
        if debts:
            await self.wait(directory, [self.sync_ms() for _ in debts])
            if boot == self.boots:
                self._check_syncs(directory)
                self.pay(debts)

    def settle_now(self, directory: str) -> None:
        debts = self.debts.of(f"{directory}/")
        if debts:
            self._check_syncs(directory)
            self.pay(debts)
            self.stand_still(max(sum(self.sync_ms() for _ in debts), self._hangs_for_ms()))

    def _check_syncs(self, path: str) -> None:
        if self.weather.failing_syncs:
            self.fail("fsync of directory", path)

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        self.changed(new, ())

    def sync_dir(self, path: str) -> None:
        self._check_syncs(path)
        super().sync_dir(path)
        self.block()

    def remove(self, path: str) -> None:
        if path in self._names:
            self.free(path, self._names[path].data)
            if path.endswith(LOG):
                self._hold_by_removal()
        super().remove(path)

    def rmtree(self, path: str) -> None:
        self._hold_by_removal()
        super().rmtree(path)

    def remove_later(self, path: str) -> None:
        self._is_on_thread = True
        try:
            super().remove_later(path)
        finally:
            self._is_on_thread = False

    def _hold_by_removal(self) -> None:
        """The unlink of a large file waits for the file system's journal."""
        if self.weather.slow_ms is not None and not self._is_on_thread:
            self.block()

    def free(self, path: str, data: bytearray, start: int = 0) -> None:
        """Release the sectors of a file from `start` on: their contents may appear in stale sectors."""
        if self.weather.stale_tails and path.endswith(".log"):
            first = start // SECTOR_BYTES * SECTOR_BYTES
            self._freed.extend(bytes(data[at : at + SECTOR_BYTES]) for at in range(first, len(data), SECTOR_BYTES))

    # Faults

    def lose_unsynced(self, inode: _Inode) -> None:
        """EIO: the kernel marks pages as clean that it could not write, and drops some of them."""
        inode.crash(self.rng)

    def power_loss(self) -> None:
        """Keep all synced data. Of unsynced data any part may be lost.

        Unsynced names survive all, not at all, or each by chance. Of the unsynced sectors of a file any subset
        survives. A lost sector reads as zeros, or, with `stale_tails`, as data that once was elsewhere on the disk.
        """
        if share := self.rng.choice((0.0, 0.0, 1.0, 0.5)):
            self.let_names_through(self.rng, share)
        files = {path: inode for path, inode in self._durable_names.items() if inode.before is None}
        before = {path: bytes(inode.data) for path, inode in files.items()}
        synced = {path: inode.synced_size for path, inode in files.items()}
        self.crash(self.rng)
        self._waiting.clear()
        for path in sorted(before.keys() & self._names.keys()):
            if len(before[path]) > synced[path]:
                self._count_loss(path, synced[path], before[path])
                if self.weather.stale_tails:
                    self._leave_stale(path, synced[path], before[path])
        self.world.note(self.name, f"disk after power loss: {len(self._names)} files, {self.used_bytes()} bytes")

    def paths(self) -> list[str]:
        """The paths of all files."""
        return sorted(self._names)

    def is_durable(self, path: str) -> bool:
        """Whether a power loss can take neither the file nor any of its bytes."""
        inode = self._names[path]
        is_synced = inode.before is None and inode.synced_size == len(inode.data)
        return self._durable_names.get(path) is inode and is_synced

    def put(self, path: str, data: Buffer) -> None:
        """Write a whole file durably, from outside of the process."""
        inode = self._names[path] = self._durable_names[path] = _Inode(self.clock())
        inode.data += data
        inode.synced_size = len(inode.data)

    def take(self, path: str) -> None:
        """Remove a file durably."""
        self._names.pop(path, None)
        self._durable_names.pop(path, None)

    def rot(self, path: str, at: int) -> None:
        """Flip one bit of a durable byte, without any error."""
        self._inode(path).data[at] ^= 1 << self.rng.randrange(8)
        self.world.note(self.name, f"bit rot in {path} at {at}")

    def _count_loss(self, path: str, synced: int, before: bytes) -> None:
        """Count whether the unsynced end of a file was lost, torn, holed or survived whole."""
        after, kind = bytes(self._names[path].data), path.rpartition(".")[2]
        survived = next((at for at in range(len(after), synced, -1) if after[at - 1] == before[at - 1] != 0), synced)
        what = "lost" if survived == synced else "whole" if after == before else "torn"
        if what == "torn" and after[:survived] != before[:survived]:
            what = "holed"  # bytes after the hole survived
        self.world.count(f"came/power loss: unsynced end of a .{kind} {what}")

    def _leave_stale(self, path: str, synced: int, before: bytes) -> None:
        data = self._names[path].data
        with_zeros, start = bytes(data), synced
        while start < len(data):
            end = min(len(data), (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
            if data[start:end] != before[start:end] and self.rng.random() < 0.5:
                old = self.rng.choice(self._freed)[start % SECTOR_BYTES :][: end - start] if self._freed else b""
                if len(old) < end - start or self.rng.random() < 0.3:
                    old = self.rng.randbytes(end - start)
                data[start:end] = old
                self.world.count("came/power loss: stale sectors")
                self.stale[path] = with_zeros
            start = end
        if path.endswith(LOG) and path in self.stale:  # no batch of another log: see `DiskWeather`
            end = _end_of_batches(path, data)
            if end > _end_of_batches(path, with_zeros) and data[:end] != before[:end]:
                data[:] = with_zeros
                del self.stale[path]


def _end_of_batches(path: str, data: Buffer) -> int:
    """The length of the whole batches at the start of a segment that could be those of its log."""
    end, expected = 0, offset_of(path.rpartition("/")[2])
    try:
        for header, batch in iterate(data):
            if header.base_offset < expected or not crc_ok(batch, header):
                break
            end, expected = end + len(batch), header.next_offset
    except CorruptBatch:
        pass  # it ends here
    return end
