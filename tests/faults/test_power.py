"""Power losses of the real process: the recording, the model of the surviving data, the judge, and some losses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from faults.held_disk import why_not
from faults.power.judge import FoundAfterLoss, FoundPartition, problems
from faults.power.losses import draw_points, record, try_points
from faults.power.lost_power import FileSystem, Survives
from faults.power.recorded_disk import DiskCall, DiskCallKind, RecordedDisk
from faults.power.work import AcknowledgedWork

CALLS = """
import ctypes, os, shutil, sys
os.chdir(sys.argv[1])
root = sys.argv[2]
os.mkdir(f"{root}/d")
fd = os.open(f"{root}/d/f", os.O_RDWR | os.O_CREAT)
os.pwritev(fd, [b"ab", b"cd"], 0)
os.pwrite(fd, b"X", 1)
os.write(fd, b"Y")
os.fdatasync(fd)
os.ftruncate(fd, 3)
os.replace(f"{root}/d/f", f"{root}/d/g")
os.fsync(os.open(f"{root}/d", os.O_RDONLY))
ctypes.CDLL(None).syncfs(fd)
open(f"{root}/h", "w").close()
os.unlink(f"{root}/h")
open("outside", "w").write("not recorded")
shutil.rmtree(f"{root}/d")
"""
POINTS = 8


def call(
    kind: DiskCallKind, path: str = "", other: str = "", *, inode: int = 0, number: int = 0, data: bytes = b""
) -> DiskCall:
    return DiskCall(kind, path, other, inode, number, data)


def system(*records: DiskCall) -> FileSystem:
    found = FileSystem()
    for each in records:
        found.apply(each)
    return found


@pytest.mark.real_time
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_each_call_below_the_root_is_recorded(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    disk = RecordedDisk(tmp_path / "recorded", root)
    subprocess.run([*disk.prefix, sys.executable, "-c", CALLS, str(tmp_path), str(root)], check=True, timeout=60)
    found = list(disk.records())
    assert len(found) == disk.count
    inode = found[1].inode
    assert [(each.kind, each.path, each.other, each.number, each.data) for each in found] == [
        (DiskCallKind.MKDIR, "d", "", 0, b""),
        (DiskCallKind.CREATE, "d/f", "", 0, b""),
        (DiskCallKind.WRITE, "", "", 0, b"abcd"),
        (DiskCallKind.WRITE, "", "", 1, b"X"),
        (DiskCallKind.WRITE, "", "", 0, b"Y"),
        (DiskCallKind.SYNC, "", "", 0, b""),
        (DiskCallKind.SYNCED, "", "", 0, b""),
        (DiskCallKind.TRUNCATE, "", "", 3, b""),
        (DiskCallKind.RENAME, "d/f", "d/g", 0, b""),
        (DiskCallKind.SYNC, "d", "", 0, b""),
        (DiskCallKind.SYNCED, "", "", 0, b""),
        (DiskCallKind.SYNC_ALL, "", "", 0, b""),
        (DiskCallKind.SYNCED, "", "", 0, b""),
        (DiskCallKind.CREATE, "h", "", 0, b""),
        (DiskCallKind.UNLINK, "h", "", 0, b""),
        (DiskCallKind.UNLINK, "d/g", "", 0, b""),
        (DiskCallKind.RMDIR, "d", "", 0, b""),
    ]
    assert {
        each.inode for each in found if each.kind in (DiskCallKind.WRITE, DiskCallKind.TRUNCATE, DiskCallKind.SYNC)
    } == {inode, 0}
    assert [each.inode for each in found if each.kind is DiskCallKind.SYNCED] == [6, 10, 12], (
        "the numbers of their begins"
    )
    disk.close()


FILE = [call(DiskCallKind.CREATE, "f", inode=1), call(DiskCallKind.WRITE, inode=1, data=b"abc")]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (FILE, {}),
        ([*FILE, call(DiskCallKind.SYNC, inode=1), call(DiskCallKind.SYNCED, inode=3)], {}),
        ([*FILE, call(DiskCallKind.SYNC), call(DiskCallKind.SYNCED, inode=3)], {"f": b""}),
        ([*FILE, call(DiskCallKind.SYNC_ALL), call(DiskCallKind.SYNCED, inode=3)], {"f": b"abc"}),
        ([*FILE, call(DiskCallKind.SYNC_ALL)], {}),
        ([FILE[0], call(DiskCallKind.SYNC_ALL), FILE[1], call(DiskCallKind.SYNCED, inode=2)], {"f": b""}),
    ],
    ids=["unsynced", "bytes", "names", "both", "not ended", "written after the begin"],
)
def test_only_what_was_synced_is_sure_to_survive(records: list[DiskCall], expected: dict[str, bytes]) -> None:
    assert system(*records).after_loss(Random(1), Survives.NOTHING) == expected


def test_a_directory_that_is_renamed_keeps_what_is_durable_in_it() -> None:
    made = [
        call(DiskCallKind.MKDIR, "d"),
        call(DiskCallKind.CREATE, "d/f", inode=1),
        call(DiskCallKind.SYNC_ALL),
        call(DiskCallKind.SYNCED, inode=3),
    ]
    moved = [*made, call(DiskCallKind.RENAME, "d", "e")]
    assert system(*moved).after_loss(Random(1), Survives.NOTHING) == {"d": None, "d/f": b""}
    assert system(*moved).after_loss(Random(1), Survives.ALL) == {"e": None, "e/f": b""}
    assert system(*moved, call(DiskCallKind.SYNC), call(DiskCallKind.SYNCED, inode=6)).owed == 0


def test_names_and_bytes_survive_apart_and_sector_by_sector() -> None:
    records = [
        call(DiskCallKind.CREATE, "f", inode=1),
        call(DiskCallKind.WRITE, inode=1, data=b"x" * 1024),
        call(DiskCallKind.SYNC_ALL),
        call(DiskCallKind.SYNCED, inode=3),
        call(DiskCallKind.WRITE, inode=1, number=1024, data=b"y" * 1024),
        call(DiskCallKind.RENAME, "f", "g"),
        call(DiskCallKind.CREATE, "h", inode=2),
    ]
    found = [system(*records).after_loss(Random(seed), Survives.SOME) for seed in range(200)]
    names = {tuple(each) for each in found}
    assert names == {("f",), ("g",), ("f", "h"), ("g", "h")}
    ends = {data for each in found if (data := each.get("f")) is not None}
    assert all(data[:1024] == b"x" * 1024 for data in ends), "what is durable stays"
    assert {data[1024:] for data in ends} >= {
        b"y" * 512 + bytes(512),
        bytes(512) + b"y" * 512,
        b"y" * 1024,
        bytes(1024),
    }


def test_a_truncation_that_is_not_synced_has_happened_or_not() -> None:
    records = [
        *FILE,
        call(DiskCallKind.SYNC_ALL),
        call(DiskCallKind.SYNCED, inode=3),
        call(DiskCallKind.TRUNCATE, inode=1, number=1),
    ]
    found = {system(*records).after_loss(Random(seed), Survives.SOME)["f"] for seed in range(100)}
    assert found >= {b"a", b"abc"}


P0 = ("first", 0)
A = (0, None, "a")
EMPTY = FoundPartition(0, 0, [])
STORED = AcknowledgedWork(sent={"a": (P0, 0)}, stored=[(3, P0, 0, "a")])
ABORTED = AcknowledgedWork(sent={"a": (P0, 0)}, transactions=[(None, False, ["a"])])
COMMITTING = AcknowledgedWork(sent={"a": (P0, 0), "b": (P0, 0)}, transactions=[(None, True, ["a", "b"])])


@pytest.mark.parametrize(
    ("answers", "log", "expected"),
    [
        (STORED, FoundPartition(0, 1, [A]), []),
        (STORED, EMPTY, ["first-0 ends at 0, stored was offset 0"]),
        (STORED, FoundPartition(0, 1, []), ["first-0 has lost 'a' at 0"]),
        (AcknowledgedWork(sent={"a": (P0, 0)}, stored=[(9, P0, 0, "a")]), EMPTY, []),
        (AcknowledgedWork(), FoundPartition(0, 1, [A]), ["first-0 has 'a', which was sent to None"]),
        (
            AcknowledgedWork(deleted=[(3, P0, 2)]),
            FoundPartition(1, 2, []),
            ["first-0 starts at 1, and was deleted before 2"],
        ),
        (ABORTED, FoundPartition(0, 1, [A]), ["'a' of an aborted transaction is visible"]),
        (COMMITTING, FoundPartition(0, 1, [A]), ["a transaction is torn: ['a'] of ['a', 'b']"]),
        (AcknowledgedWork(committed=[(3, P0, 7)]), EMPTY, ["the group has offset None of first-0, committed was 7"]),
        (
            AcknowledgedWork(topics=[(3, 4, "first", False)]),
            EMPTY,
            ["topic first was deleted, and is there"],
        ),
        (AcknowledgedWork(topics=[(1, 2, "other", True)]), EMPTY, ["topic other was created, and is not there"]),
        (AcknowledgedWork(topics=[(1, 2, "other", True), (4, 9, "other", False)]), EMPTY, []),
    ],
)
def test_answers_must_hold(answers: AcknowledgedWork, log: FoundPartition, expected: list[str]) -> None:
    assert list(problems(answers, 5, FoundAfterLoss({P0: log}, {}))) == expected


@pytest.mark.real_time
@pytest.mark.thorough
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
async def test_nothing_acknowledged_is_lost_and_a_disk_that_lies_is_noticed(tmp_path: Path) -> None:
    """The test takes a minute: each loss needs a start of the broker."""
    recording = await record(tmp_path / "recorded")
    wrong: dict[str, list[str]] = {}
    points = draw_points(recording.records, POINTS, Random(7))
    await try_points(recording, points, tmp_path / "honest", lambda point, found: wrong.update({str(point): found}))
    assert {point: found for point, found in wrong.items() if found} == {}
    assert len(wrong) == POINTS
    recording.records = [each for each in recording.records if each.kind is not DiskCallKind.SYNCED]
    last = [point for point in draw_points(recording.records, 400, Random(7)) if point.survives is Survives.NOTHING][
        -1:
    ]
    assert await try_points(recording, last, tmp_path / "lying", lambda point, found: None) == 1
