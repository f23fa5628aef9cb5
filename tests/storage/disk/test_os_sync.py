"""Syncs by the calls of the system: small ones at once, several files by one call."""

from __future__ import annotations

import errno
import os
import platform
from collections.abc import Iterator
from pathlib import Path

import pytest
from semel_storage.disk import os_sync
from semel_storage.disk.os_disk import QUICK_BYTES, OsDisk
from semel_storage.disk.os_sync import find_syncfs
from semel_storage.disk.sync_pace import QUICK_S, SLOW_S, SYNCS_REMEMBERED


def quick(disk: OsDisk) -> OsDisk:
    for _ in range(SYNCS_REMEMBERED):
        disk.pace.note(QUICK_S / 5, on_loop=False)
    return disk


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


def test_the_first_slow_sync_on_the_loop_is_the_last_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = quick(OsDisk())
    files = [disk.open(str(tmp_path / name)) for name in "abcd"]
    for file in files:
        file.append(b"x")
    monkeypatch.setattr("semel_storage.disk.os_disk.timed_sync", lambda fd: SLOW_S)
    assert [disk.sync_if_quick([file]) for file in files] == [True, False, False, False]
    assert [file.unsynced_bytes for file in files] == [0, 1, 1, 1]


@pytest.mark.skipif(find_syncfs() is None, reason="no syncfs that reports errors on this machine")
def test_the_first_slow_sync_of_several_files_is_the_last_on_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = quick(OsDisk())
    files = [disk.open(str(tmp_path / name)) for name in "ab"]
    now_s = iter((0.0, SLOW_S))
    monkeypatch.setattr("semel_storage.disk.os_disk.perf_counter", lambda: next(now_s))
    for expected in (True, False):
        for file in files:
            file.append(b"x")
        assert disk.sync_if_quick(files) is expected
    assert not disk.sync_if_quick(files[:1]), "a small sync is left to threads, too"


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
