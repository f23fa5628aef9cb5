"""The library that holds the disk calls of a process: slow, hanging and failing calls, and their counts."""

from __future__ import annotations

import errno
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.held_disk import ALL, FOR_EVER, RENAME, SYNCS, HeldDisk, why_not

pytestmark = [pytest.mark.real_time, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
CALLS = """
import ctypes, os, sys, threading, time
os.chdir(sys.argv[1])
file, folder = os.open("a", os.O_RDWR | os.O_CREAT), os.open(".", os.O_RDONLY)
syncfs = ctypes.CDLL(None, use_errno=True).syncfs
def checked(status):
    if status:
        raise OSError(ctypes.get_errno(), "syncfs")
calls = {
    "fsync": lambda: os.fsync(folder),
    "fdatasync": lambda: os.fdatasync(file),
    "syncfs": lambda: checked(syncfs(file)),
    "ftruncate": lambda: os.ftruncate(file, 0),
    "rename": lambda: os.replace("a", "b"),
    "unlink": lambda: os.unlink("b"),
    "unlinkat": lambda: (os.close(os.open("c", os.O_CREAT)), os.unlink("c", dir_fd=folder)),
}
def make(name):
    began = time.monotonic()
    try:
        calls[name]()
        how = "ok"
    except OSError as error:
        how = str(error.errno)
    print(name, how, int((time.monotonic() - began) * 1000), flush=True)
for name in calls:
    make(name)
thread = threading.Thread(target=make, args=("fdatasync",))
thread.start()
thread.join()
"""
COUNT = 8


@pytest.fixture
def held(tmp_path: Path) -> Iterator[HeldDisk]:
    held = HeldDisk(tmp_path)
    yield held
    held.close()


def start(held: HeldDisk, directory: Path) -> subprocess.Popen[str]:
    command = [*held.prefix, sys.executable, "-c", CALLS, str(directory)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def outcomes(process: subprocess.Popen[str]) -> list[tuple[str, str, int]]:
    """Each call: its name, "ok" or its error, and the milliseconds that it took."""
    told, _ = process.communicate(timeout=20)
    return [(name, how, int(ms)) for name, how, ms in map(str.split, told.splitlines())]


def test_each_call_takes_longer_and_is_counted(held: HeldDisk, tmp_path: Path) -> None:
    held.set(calls=ALL, ms=50)
    found = outcomes(start(held, tmp_path))
    assert [(name, how) for name, how, ms in found if ms >= 50] == [(name, "ok") for name, _, _ in found]
    assert len(found) == COUNT
    assert held.counts == (0, COUNT, COUNT - 1)


def test_other_calls_are_let_through(held: HeldDisk, tmp_path: Path) -> None:
    held.set(calls=RENAME, ms=500)
    name, _, ms = max(outcomes(start(held, tmp_path)), key=lambda outcome: outcome[2])
    assert (name, ms >= 500) == ("rename", True)
    assert held.counts == (0, 1, 1)


def test_a_hanging_call_continues_when_it_is_released(held: HeldDisk, tmp_path: Path) -> None:
    held.set(hangs=True)
    process = start(held, tmp_path)
    while held.counts.held == 0:
        assert process.poll() is None
        time.sleep(0.01)  # another process
    assert held.counts.made == 1
    held.set()
    assert {how for _, how, _ in outcomes(process)} == {"ok"}


@pytest.mark.parametrize(
    ("failures", "failed"), [(1, ["fsync"]), (FOR_EVER, ["fsync", "fdatasync", "syncfs", "fdatasync"])]
)
def test_syncs_fail_once_or_for_ever(held: HeldDisk, tmp_path: Path, failures: int, failed: list[str]) -> None:
    held.set(calls=SYNCS, error=errno.ENOSPC, failures=failures)
    found = outcomes(start(held, tmp_path))
    assert [name for name, how, _ in found if how == str(errno.ENOSPC)] == failed
    assert {how for name, how, _ in found if name not in failed} == {"ok"}
