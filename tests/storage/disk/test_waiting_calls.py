"""The waiting disk calls: the oldest one, whichever others begin and end meanwhile."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from semel_storage.disk import os_disk
from semel_storage.disk.os_disk import OsDisk
from semel_storage.disk.waiting_calls import WaitingCall, WaitingCalls


def test_the_oldest_call_is_the_one_that_began_first() -> None:
    now_s = [5.0]
    calls = WaitingCalls(lambda: now_s[0])
    assert calls.oldest() is None
    with calls.waiting("b"):
        now_s[0] = 7.0
        with calls.waiting("a"):
            now_s[0] = 8.0
            assert calls.oldest() == WaitingCall("b", 3.0)
        with ExitStack() as later:
            later.enter_context(calls.waiting("c"))
            assert calls.oldest() == WaitingCall("b", 3.0)
    assert calls.oldest() is None


def test_a_call_that_fails_waits_no_more() -> None:
    calls = WaitingCalls(lambda: 0.0)
    with pytest.raises(OSError, match="EIO"), calls.waiting("a"):
        raise OSError("EIO")
    assert calls.oldest() is None


async def test_each_kind_of_call_of_the_disk_is_seen_while_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsDisk()
    seen: dict[str, str] = {}

    def note(name: str) -> None:
        call = disk.oldest_call()
        seen[name] = "" if call is None else call.path.removeprefix(f"{tmp_path}")

    monkeypatch.setattr(os_disk, "timed_sync", lambda fd: note("sync of a file") or 0.0)
    monkeypatch.setattr(os_disk, "sync_data", lambda fd: note("sync of a small file"))
    monkeypatch.setattr(os_disk, "sync_names", lambda fd: note("sync of a directory"))
    monkeypatch.setattr(os_disk.os, "unlink", lambda path: note("removal"))
    monkeypatch.setattr(disk, "_syncfs", lambda fd: note("sync of all files") or 0)
    file, other = disk.open(f"{tmp_path}/file"), disk.open(f"{tmp_path}/other")
    disk.mkdir(f"{tmp_path}/inner", durable=False)
    file.append(b"x")
    await file.sync()
    disk.sync_all_now([file, other])
    disk.sync_later(f"{tmp_path}/file")
    await disk.settle(f"{tmp_path}/inner")  # several debts at once share a sync
    disk.sync_dir_later(f"{tmp_path}/inner")
    await disk.settle(f"{tmp_path}/inner")
    disk.rmtree(f"{tmp_path}/other")
    assert seen == {
        "sync of a file": "/file",
        "sync of all files": "/file",
        "sync of a small file": "/file",
        "sync of a directory": "/inner",
        "removal": "/other",
    }
    assert disk.oldest_call() is None
    disk.close()


async def test_syncs_do_not_wait_behind_removals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, goes_on = OsDisk(), threading.Event()
    file = disk.open(f"{tmp_path}/file")
    file.append(b"x")
    monkeypatch.setattr(os_disk.os, "unlink", lambda path: goes_on.wait(10))
    for name in "abcdefgh":
        disk.open(f"{tmp_path}/{name}").close()
        disk.remove_later(f"{tmp_path}/{name}")
    await file.sync()
    assert file.unsynced_bytes == 0
    goes_on.set()
    disk.close()
