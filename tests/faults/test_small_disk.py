"""Tests of the small disk: it gets full, outlives the processes that use it, and is removed with `close`."""

from __future__ import annotations

import errno
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.small_disk import SmallDisk, why_not

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "disk", 1 << 20)
    yield disk
    disk.close()


def run(disk: SmallDisk, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*disk.prefix, "sh", "-c", script, "sh", str(disk.path)], capture_output=True, text=True)


def test_what_a_process_inside_writes_stays_and_is_seen_from_outside(disk: SmallDisk) -> None:
    assert run(disk, 'echo hello > "$1/file"').returncode == 0
    assert (disk.outside / "file").read_text() == "hello\n"
    assert run(disk, 'cat "$1/file"').stdout == "hello\n"
    assert list(disk.path.iterdir()) == [], "no other process sees it"


def test_a_full_disk_refuses_a_write_and_takes_it_when_it_is_free_again(disk: SmallDisk) -> None:
    assert disk.fill() > 0
    with pytest.raises(OSError, match=r".*") as error:
        (disk.outside / "more").write_bytes(bytes(8192))
    assert error.value.errno == errno.ENOSPC
    disk.free()
    (disk.outside / "more").write_bytes(bytes(8192))


def test_some_room_can_be_left(disk: SmallDisk) -> None:
    disk.fill(leave_bytes=64 << 10)
    assert 0 <= shutil.disk_usage(disk.outside).free - (64 << 10) < 64 << 10


def test_what_is_on_it_can_be_kept(disk: SmallDisk, tmp_path: Path) -> None:
    (disk.outside / "file").write_text("hello")
    disk.keep(tmp_path / "kept")
    assert (tmp_path / "kept" / "file").read_text() == "hello"
