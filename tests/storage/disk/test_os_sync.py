"""When a disk counts as fast, and the sync of several files by one call."""

from __future__ import annotations

import errno
import os
import platform
from collections.abc import Iterator
from pathlib import Path

import pytest
from semel_storage.disk import os_sync
from semel_storage.disk.os_disk import QUICK_BYTES, OsDisk
from semel_storage.disk.os_sync import PAUSE_S, QUICK_S, SLOW_TOGETHER_S, SYNCS_REMEMBERED, SyncPace, find_syncfs

HALF = SYNCS_REMEMBERED // 2


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(os_sync, "monotonic", lambda: self.now_s)


def quick(disk: OsDisk) -> OsDisk:
    for _ in range(SYNCS_REMEMBERED):
        disk.pace.note(QUICK_S / 5)
    return disk


def test_a_disk_is_quick_when_most_of_its_last_syncs_were() -> None:
    pace = SyncPace()
    assert not pace.is_quick
    for _ in range(HALF + 1):
        pace.note(QUICK_S / 5)
    assert pace.is_quick
    for _ in range(HALF):
        pace.note(1.0)
    assert pace.is_quick, "a few that took long may be others' work"
    pace.note(1.0)
    assert not pace.is_quick


def test_the_pause_after_a_slow_syncfs_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, pace = Clock(monkeypatch), SyncPace()
    for _ in range(SYNCS_REMEMBERED):
        pace.note(0.0)
    for pause_s in (PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S):
        assert pace.is_quick_together
        pace.note_together(2 * SLOW_TOGETHER_S)
        clock.now_s += pause_s - 0.25
        assert not pace.is_quick_together
        clock.now_s += 0.25
    for _ in range(10):
        pace.note_together(0.0)
    pace.note_together(2 * SLOW_TOGETHER_S)
    clock.now_s += PAUSE_S
    assert pace.is_quick_together, "quick ones have shortened the pause again"


@pytest.mark.parametrize("release", ["5.14.0", "4.19.1-generic", "what"])
def test_syncfs_is_not_used_on_kernels_that_do_not_report_errors(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "release", lambda: release)
    assert find_syncfs() is None


@pytest.mark.skipif(find_syncfs() is None, reason="no syncfs that reports errors on this machine")
def test_several_files_are_synced_with_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = quick(OsDisk())
    files = [disk.open(str(tmp_path / name)) for name in "abc"]
    for file in files:
        file.append(b"x" * 100)
    monkeypatch.setattr("semel_storage.disk.os_sync.os.fdatasync", lambda fd: pytest.fail("not one by one"))
    assert disk.sync_if_quick(files)
    assert [file.unsynced_bytes for file in files] == [0, 0, 0]


def test_threads_sync_many_bytes(tmp_path: Path) -> None:
    disk = quick(OsDisk())
    file = disk.open(str(tmp_path / "a"))
    file.append(bytes(QUICK_BYTES + 1))
    assert not disk.sync_if_quick([file])
    assert file.unsynced_bytes == QUICK_BYTES + 1


def test_a_failed_syncfs_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class EndError(Exception):
        pass

    def end(message: str) -> None:
        raise EndError(message)

    monkeypatch.setattr("semel_storage.disk.os_disk.find_syncfs", lambda: lambda fd: -1)
    disk = quick(OsDisk(end))  # type: ignore[arg-type]
    files = [disk.open(str(tmp_path / name)) for name in "ab"]
    for file in files:
        file.append(b"x")
    with pytest.raises(EndError, match="syncfs"):
        disk.sync_if_quick(files)


# --- other systems ---


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def test_macos_gets_the_sync_that_empties_the_drives_cache(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(os_sync, "_FULL_SYNC", 51)
    monkeypatch.setattr(os_sync.fcntl, "fcntl", lambda fd, call: asked.append((fd, call)))
    os_sync.sync_data(descriptor)
    os_sync.sync_names(descriptor)
    assert asked == [(descriptor, 51)] * 2


@pytest.mark.parametrize(("number", "falls_back"), [(errno.ENOTSUP, True), (errno.EIO, False)])
def test_a_file_system_without_the_full_sync_gets_fsync(
    descriptor: int, monkeypatch: pytest.MonkeyPatch, number: int, falls_back: bool
) -> None:
    def refuse(fd: int, call: int) -> None:
        raise OSError(number, "refused")

    synced: list[int] = []
    monkeypatch.setattr(os_sync, "_FULL_SYNC", 51)
    monkeypatch.setattr(os_sync.fcntl, "fcntl", refuse)
    monkeypatch.setattr(os, "fsync", synced.append)
    if falls_back:
        os_sync.sync_data(descriptor)
        assert synced == [descriptor]
    else:
        with pytest.raises(OSError, match="refused"):
            os_sync.sync_data(descriptor)
        assert not synced


def test_a_system_without_fdatasync_gets_fsync(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os_sync, "_HAS_FDATASYNC", False)
    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.setattr(os, "fsync", synced.append)
    assert os_sync.timed_sync(descriptor) >= 0
    assert synced == [descriptor]
