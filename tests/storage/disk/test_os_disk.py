"""The real disk: group commit, failures that end the process, the lock."""

import asyncio
import errno
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import time_ns
from typing import Any, NoReturn

import pytest
from semel_storage.disk.disk import DirectoryLocked, MissingFile, NotCached
from semel_storage.disk.os_disk import EXIT_STATUS, OsDisk
from semel_storage.disk.os_sync import find_syncfs


class EndOfProcess(Exception):  # noqa: N818 (stands for an end)
    pass


def end(message: str) -> NoReturn:
    raise EndOfProcess(message)


@pytest.fixture
def os_disk() -> Iterator[OsDisk]:
    disk = OsDisk(on_fatal=end)
    yield disk
    disk.close()


class CountingSync:
    """A replacement of os.fdatasync that counts calls, and can be held and made to fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = self.calls = 0
        self.gate = threading.Event()
        self.error: OSError | None = None
        monkeypatch.setattr("os.fdatasync", self)

    async def begun(self, calls: int) -> None:
        """Return once `count` syncs have begun."""
        while self.calls < calls:
            await asyncio.sleep(0.001)

    def __call__(self, fd: int) -> None:
        self.calls += 1
        assert self.gate.wait(10)
        self.count += 1
        if self.error is not None:
            raise self.error


def test_the_time_of_the_last_change_of_a_file(os_disk: OsDisk, tmp_path: Path) -> None:
    """An open, a sync and a rename leave it as it is."""
    path = f"{tmp_path}/f"
    file = os_disk.open(path)
    file.append(b"x")
    file.sync_now()
    file.close()
    assert abs(os_disk.modified_ms(path) - time_ns() // 1_000_000) < 60_000
    os_disk.set_modified(path, 1_600_000_000_123)
    os_disk.open(path).sync_now()
    os_disk.rename(path, path + "2")
    assert os_disk.modified_ms(path + "2") == 1_600_000_000_123
    for call in (os_disk.modified_ms, lambda gone: os_disk.set_modified(gone, 1)):
        with pytest.raises(MissingFile):
            call(path)


async def test_appends_are_read_back(os_disk: OsDisk, tmp_path: Path) -> None:
    file = os_disk.open(f"{tmp_path}/f")
    assert [file.append(b"abc", memoryview(b"de")), file.append(b"f")] == [0, 5]
    assert file.pread(100, 0) == b"abcdef"
    assert file.pread(2, 4) == b"ef"
    assert file.size() == 6
    file.truncate(4)
    assert file.append(b"X") == 4
    await file.sync()
    file.close()
    assert os_disk.read_bytes(f"{tmp_path}/f") == b"abcdX"
    assert os_disk.open(f"{tmp_path}/f").size() == 5


async def test_short_writes_are_completed(os_disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwrite
    monkeypatch.setattr("os.pwritev", lambda fd, chunks, at: write(fd, b"".join(chunks)[:3], at))
    monkeypatch.setattr("os.pwrite", lambda fd, data, at: write(fd, bytes(data)[:2], at))
    file = os_disk.open(f"{tmp_path}/f")
    file.append(b"abcd", b"efgh")
    assert file.pread(100, 0) == b"abcdefgh"


async def test_concurrent_callers_share_one_sync(
    os_disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncing = CountingSync(monkeypatch)
    file = os_disk.open(f"{tmp_path}/f")
    file.append(b"x")
    callers = [asyncio.ensure_future(file.sync()) for _ in range(10)]
    await asyncio.sleep(0)
    syncing.gate.set()
    await asyncio.gather(*callers)
    assert syncing.count == 1
    await file.sync()
    assert syncing.count == 1, "a clean file needs no sync"


async def test_append_during_a_sync_waits_for_the_next_one(
    os_disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncing = CountingSync(monkeypatch)
    file = os_disk.open(f"{tmp_path}/f")
    file.append(b"x")
    first = asyncio.ensure_future(file.sync())
    await syncing.begun(1)
    file.append(b"y")
    second = [asyncio.ensure_future(file.sync()) for _ in range(5)]
    await asyncio.sleep(0)
    done_after: list[int] = []
    for caller in (first, *second):
        caller.add_done_callback(lambda _: done_after.append(syncing.count))
    syncing.gate.set()
    await asyncio.gather(first, *second)
    assert syncing.count == 2
    assert done_after[1:] == [2] * 5


async def test_a_cancelled_caller_does_not_affect_the_others(
    os_disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncing = CountingSync(monkeypatch)
    file = os_disk.open(f"{tmp_path}/f")
    file.append(b"x")
    callers = [asyncio.ensure_future(file.sync()) for _ in range(3)]
    await asyncio.sleep(0)
    callers[0].cancel()
    await asyncio.sleep(0)
    syncing.gate.set()
    await asyncio.gather(*callers[1:])
    assert callers[0].cancelled()
    file.append(b"y")
    await file.sync()
    assert syncing.count == 2


async def test_a_file_that_is_closed_amid_a_sync_keeps_its_descriptor_until_the_end(
    os_disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing does not wait for the disk, and another file must not get the descriptor that a thread syncs."""
    syncing = CountingSync(monkeypatch)
    file = os_disk.open(f"{tmp_path}/f")
    file.append(b"x")
    first = asyncio.ensure_future(file.sync())
    await syncing.begun(1)
    file.append(b"y")
    second = asyncio.ensure_future(file.sync())
    await asyncio.sleep(0)
    descriptor = file.descriptor
    file.close()
    os.fstat(descriptor)
    syncing.gate.set()
    await asyncio.wait_for(asyncio.gather(first, second), 5)
    assert syncing.count == 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


@pytest.mark.skipif(find_syncfs() is None, reason="no syncfs that reports errors on this machine")
async def test_all_that_ask_in_one_turn_share_one_sync_on_a_thread(
    os_disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncing = CountingSync(monkeypatch)
    syncing.gate.set()
    files = [os_disk.open(f"{tmp_path}/{name}") for name in "abc"]
    for file in files:
        file.append(b"x")
        os_disk.sync_dir_later(str(tmp_path))
    await asyncio.gather(*(file.sync() for file in files))
    assert syncing.count == 0, "syncfs did it"
    assert not os_disk.owes(files[0].path)
    os_disk.pace.note_shared(1.0, 3)
    for file in files:
        file.append(b"y")
    await asyncio.gather(*(file.sync() for file in files))
    assert syncing.count == 3, "a slow one is followed by a pause"


@pytest.mark.skipif(find_syncfs() is None, reason="no syncfs that reports errors on this machine")
@pytest.mark.parametrize(("may_share", "syncs"), [(True, 0), (False, 10 + 1)])
async def test_directories_that_settle_in_one_turn_share_one_sync(
    os_disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, may_share: bool, syncs: int
) -> None:
    """With slow syncs, one sync for each of thousands of directories would keep the threads busy for minutes."""
    paid: list[int] = []
    monkeypatch.setattr("semel_storage.disk.os_disk.sync_names", paid.append)
    if not may_share:
        os_disk.pace.note_shared(1.0, 3)
    for number in range(10):
        (tmp_path / f"{number}").mkdir()
        os_disk.sync_dir_later(f"{tmp_path}/{number}")
    os_disk.sync_dir_later(str(tmp_path))
    jobs: list[object] = []
    submit = os_disk.submit
    monkeypatch.setattr(os_disk, "submit", lambda *call: (jobs.append(call), submit(*call))[1])
    await asyncio.gather(*(os_disk.settle(f"{tmp_path}/{number}") for number in range(10)))
    assert len(jobs) == 1
    assert len(paid) == syncs
    assert not any(os_disk.owes(f"{tmp_path}/{number}/f") for number in range(10))


async def test_a_debt_that_comes_while_others_settle_is_paid_by_the_next_one(os_disk: OsDisk, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        os_disk.sync_dir_later(f"{tmp_path}/{name}")
    first = asyncio.ensure_future(os_disk.settle(f"{tmp_path}/a"))
    await asyncio.sleep(0)  # it joins
    await asyncio.sleep(0)  # it begins
    os_disk.sync_dir_later(f"{tmp_path}/a")
    await asyncio.gather(first, os_disk.settle(f"{tmp_path}/b"))
    assert os_disk.owes_names(f"{tmp_path}/a")
    assert not os_disk.owes_names(f"{tmp_path}/b")
    os_disk.sync_later(f"{tmp_path}/a/removed")
    await os_disk.settle(f"{tmp_path}/a")
    assert not os_disk.owes(f"{tmp_path}/a/f")


async def test_debts_are_paid_before_a_file_counts_as_synced(os_disk: OsDisk, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    file = os_disk.open(f"{tmp_path}/d/f")
    os_disk.write_later(f"{tmp_path}/d/id", b"1")
    os_disk.sync_dir_later(str(tmp_path))
    assert os_disk.owes(file.path)
    os_disk.sync_later(f"{tmp_path}/d/removed")
    await file.sync()
    assert not os_disk.owes(file.path)
    os_disk.sync_later(f"{tmp_path}/d/id")
    assert not os_disk.owes(f"{tmp_path}/f"), "a directory does not owe what those below it owe"
    file.sync_now()
    assert not os_disk.owes(file.path)


@pytest.mark.proves("failed-sync")
async def test_failed_fsync_ends_the_process_and_is_not_retried(
    os_disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncing = CountingSync(monkeypatch)
    syncing.error = OSError(5, "Input/output error")
    syncing.gate.set()
    ended: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: ended.append(str(context["exception"])))
    file = os_disk.open(f"{tmp_path}/f")
    file.append(b"x")
    waiting = asyncio.ensure_future(file.sync())
    while not ended:
        await asyncio.sleep(0.001)
    assert ended == [f"fdatasync of {tmp_path}/f failed: EIO (Input/output error)"]
    assert not waiting.done(), "no caller gets a success"
    assert syncing.count == 1
    waiting.cancel()


def test_failed_write_ends_the_process(os_disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    file = os_disk.open(f"{tmp_path}/f")
    monkeypatch.setattr("os.pwritev", full)
    with pytest.raises(EndOfProcess, match="ENOSPC"):
        file.append(b"x")
    monkeypatch.setattr("os.write", full)
    with pytest.raises(EndOfProcess, match=r"checkpoint failed: ENOSPC"):
        os_disk.write_atomically(f"{tmp_path}/checkpoint", b"x")
    monkeypatch.setattr("os.fdatasync", full)
    with pytest.raises(EndOfProcess):
        file.sync_now()
    with pytest.raises(EndOfProcess):
        file.truncate(0)


def test_a_write_without_room_gives_up_the_reserve_and_is_tried_again(
    os_disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kind of write; the second one without room ends the process, because the reserve is gone."""
    reserve, given_up = tmp_path / "reserve", list[str]()
    os_disk.on_reserve_given_up = given_up.append

    def only_with_the_room_of_the_reserve(call: Callable[..., int]) -> Callable[..., int]:
        def write(*arguments: Any) -> int:
            if reserve.exists():
                raise OSError(28, "No space left on device")
            return call(*arguments)

        return write

    file = os_disk.open(f"{tmp_path}/f")
    for name, use in (
        ("os.pwritev", lambda: file.append(b"ab", b"c")),
        ("os.write", lambda: os_disk.write_atomically(f"{tmp_path}/checkpoint", b"whole")),
        ("os.mkdir", lambda: os_disk.mkdir(f"{tmp_path}/directory")),
    ):
        assert os_disk.keep_reserve(str(reserve), 8192)
        assert reserve.stat().st_blocks * 512 >= 8192
        with monkeypatch.context() as patch:
            module, _, function = name.partition(".")
            assert module == "os"
            patch.setattr(name, only_with_the_room_of_the_reserve(getattr(os, function)))
            use()
        assert not reserve.exists()
    assert given_up == [str(reserve)] * 3
    assert (file.pread(9, 0), file.size()) == (b"abc", 3)
    assert (tmp_path / "checkpoint").read_bytes() == b"whole"
    assert (tmp_path / "directory").is_dir()


def test_a_directory_that_others_have_damaged_is_named(os_disk: OsDisk, tmp_path: Path) -> None:
    os_disk.mkdir(f"{tmp_path}/fine")
    os_disk.open(f"{tmp_path}/fine/file")
    os_disk.check_directory(f"{tmp_path}/fine")
    os_disk.open(f"{tmp_path}/file").append(b"x")
    os_disk.mkdir(f"{tmp_path}/nested/inner")
    for path, words in (
        ("file", "Not a directory"),
        ("nested", "Is a directory.*inner"),
        ("missing", "Not a directory"),
    ):
        with pytest.raises(OSError, match=words):
            os_disk.check_directory(f"{tmp_path}/{path}")


def test_a_path_that_cannot_be_removed_later_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: str) -> NoReturn:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("os.rmdir", denied)
    disk, reported = OsDisk(), list[str]()
    disk.on_not_removed = lambda path, error: reported.append(f"{path}: {error.strerror}")
    disk.mkdir(f"{tmp_path}/doomed")
    disk.remove_later(f"{tmp_path}/doomed")
    disk.close()
    assert reported == [f"{tmp_path}/doomed: Permission denied"]


@pytest.mark.proves("failed-sync")
def test_real_failure_ends_a_real_process(tmp_path: Path) -> None:
    """Every write to /dev/full fails."""
    program = """
from semel_storage.disk.os_disk import OsDisk
OsDisk().open("/dev/full").append(b"x")
print("still alive")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == EXIT_STATUS
    assert ended.stdout == ""
    assert "/dev/full failed: ENOSPC" in ended.stderr


def test_write_atomically_replaces_the_whole_file(os_disk: OsDisk, tmp_path: Path) -> None:
    for data in (b"first and longer", b"second", b""):
        os_disk.write_atomically(f"{tmp_path}/f", data)
        assert os_disk.read_bytes(f"{tmp_path}/f") == data
    assert os_disk.listdir(str(tmp_path)) == ["f"]


def test_a_private_file_is_readable_for_its_user_alone(os_disk: OsDisk, tmp_path: Path) -> None:
    """Also if a killed process has left the temporary file with another mode, and whatever the umask."""
    path = tmp_path / "f"
    left = tmp_path / "f.tmp"
    left.write_bytes(b"secret")
    left.chmod(0o644)
    os_disk.write_atomically(str(path), b"secret", private=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    left.touch(mode=0o644)
    os_disk.make_private(str(path))
    assert {stat.S_IMODE(each.stat().st_mode) for each in (path, left)} == {0o600}
    with pytest.raises(MissingFile):
        os_disk.make_private(f"{tmp_path}/g")


@pytest.mark.proves("rename-without-sync")
def test_rename_without_directory_fsync_is_never_taken_for_durable(
    os_disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of system calls: write and sync of the bytes, rename, sync of the directory."""
    asked: list[tuple[str, str]] = []

    def noted(name: str, call: Callable[..., None]) -> Callable[..., None]:
        def wrapped(what: int | str, *rest: object) -> None:
            place = os.readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else what
            asked.append((name, os.path.relpath(place, tmp_path)))
            call(what, *rest)

        return wrapped

    for name in ("fsync", "fdatasync", "replace", "mkdir"):
        monkeypatch.setattr(f"os.{name}", noted(name, getattr(os, name)))
    os_disk.mkdir(f"{tmp_path}/t-0")
    assert asked == [("mkdir", "t-0"), ("fsync", ".")]
    asked.clear()
    os_disk.write_atomically(f"{tmp_path}/t-0/checkpoint", b"x")
    assert asked == [("fdatasync", "t-0/checkpoint.tmp"), ("replace", "t-0/checkpoint.tmp"), ("fsync", "t-0")]
    asked.clear()
    os_disk.rename(f"{tmp_path}/t-0/checkpoint", f"{tmp_path}/t-0/other")
    os_disk.sync_dir(f"{tmp_path}/t-0")
    assert asked == [("replace", "t-0/checkpoint"), ("fsync", "t-0")]


def test_names(os_disk: OsDisk, tmp_path: Path) -> None:
    root = str(tmp_path)
    os_disk.mkdir(f"{root}/a/b")
    os_disk.mkdir(f"{root}/a/b")
    os_disk.open(f"{root}/a/b/f").close()
    os_disk.rename(f"{root}/a/b", f"{root}/c")
    assert os_disk.listdir(f"{root}/c") == ["f"]
    assert os_disk.listdir(f"{root}/nothing") == []
    os_disk.remove_later(f"{root}/c/f")
    os_disk.remove(f"{root}/c/f")
    os_disk.rmtree(f"{root}/a")
    os_disk.rmtree(f"{root}/a")
    assert not os_disk.exists(f"{root}/a")
    os_disk.mkdir(f"{root}/d/e", durable=False)
    os_disk.open(f"{root}/d/e/f").close()
    os_disk.remove_later(f"{root}/d")
    os_disk.close()
    assert os_disk.listdir(root) == ["c"]
    for missing in (os_disk.read_bytes, os_disk.size):
        with pytest.raises(MissingFile):
            missing(f"{root}/none")
    with pytest.raises(MissingFile):
        os_disk.rename(f"{root}/none", f"{root}/other")


def test_locked_directory_names_its_holder(os_disk: OsDisk, tmp_path: Path) -> None:
    program = f"""
import sys
from semel_storage.disk.os_disk import OsDisk
OsDisk().lock({str(tmp_path)!r})
print("locked", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(DirectoryLocked, match=f"in use by process {holder.pid};"):
            os_disk.lock(str(tmp_path))
        holder.kill()
    unlock = os_disk.lock(str(tmp_path))
    with pytest.raises(DirectoryLocked, match=f"process {os.getpid()}"):
        os_disk.lock(str(tmp_path))
    unlock()
    os_disk.lock(str(tmp_path))()


@pytest.mark.proves("read-of-a-hanging-disk")
def test_reads_that_would_wait_for_the_disk_are_refused_while_that_is_asked_for(
    os_disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = os_disk.open(f"{tmp_path}/f")
    file.append(b"0123456789" * 1000)
    os_disk.reads_cached_only = True
    assert file.pread(4, 9_996) == b"6789", "it was just written: the kernel has it in memory"
    assert file.pread(100, 9_990) == b"0123456789", "fewer bytes at the end"
    real, asked = os.preadv, []

    def half(fd: int, buffers: list[memoryview], at: int, flags: int) -> int:
        asked.append(flags)
        if at >= 5_000:
            raise BlockingIOError(errno.EAGAIN, "would wait")
        return real(fd, [buffers[0][: 5_000 - at]], at, flags)

    monkeypatch.setattr("os.preadv", half)
    with pytest.raises(NotCached, match=file.path):
        file.pread(6_000, 0)
    assert asked == [os.RWF_NOWAIT] * 2
    os_disk.reads_cached_only = False
    assert len(file.pread(6_000, 0)) == 6_000


def test_a_file_system_that_cannot_tell_what_is_in_memory_reads_as_usual(
    os_disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr("os.preadv", refuse)
    file = os_disk.open(f"{tmp_path}/f")
    file.append(b"0123456789")
    os_disk.reads_cached_only = True
    assert file.pread(4, 3) == b"3456"
