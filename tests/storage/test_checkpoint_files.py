"""The checkpoint files are written once for all noted changes, and never with an older state after a newer one."""

from __future__ import annotations

import asyncio

import pytest
from semel_storage import checkpoints
from semel_storage.checkpoint_files import CheckpointFiles
from semel_storage.checkpoints import LOG_START_OFFSET, RECOVERY_POINT
from semel_storage.disk.disk import Buffer
from semel_storage.disk.memory_disk import DiskFailed, MemoryDisk

POINTS, STARTS = f"data/{RECOVERY_POINT}", f"data/{LOG_START_OFFSET}"


class ReplacementsDisk(MemoryDisk):
    """Counts the files that were replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.mkdir("data")
        self.written: list[str] = []

    def write_atomically(self, path: str, data: Buffer, *, durable: bool = True, private: bool = False) -> None:
        self.written.append(path)
        super().write_atomically(path, data, durable=durable, private=private)


@pytest.fixture
def disk() -> ReplacementsDisk:
    return ReplacementsDisk()


async def test_all_that_was_noted_before_is_durable_and_each_file_was_written_once(disk: ReplacementsDisk) -> None:
    files = CheckpointFiles(disk, "data")
    for number in range(1000):
        files.note_point(("t", number), 7)
    files.note_start(("t", 3), 5)
    await asyncio.gather(*(files.saved() for _ in range(20)))
    assert disk.written == [POINTS, STARTS]
    disk.crash()
    again = CheckpointFiles(disk, "data")
    assert (len(again.points), again.starts) == (1000, {("t", 3): 5})


async def test_what_is_noted_during_a_write_shares_the_next_one(disk: ReplacementsDisk) -> None:
    files = CheckpointFiles(disk, "data")
    files.note_point(("t", 0), 1)
    first = asyncio.ensure_future(files.saved())
    while not disk.asides:
        await asyncio.sleep(0)
    later = []
    for number in range(1, 5):
        files.note_point(("t", number), 1)
        later.append(asyncio.ensure_future(files.saved()))
    await asyncio.gather(first, *later)
    assert disk.written == [POINTS, POINTS]
    assert checkpoints.read_offsets(disk, POINTS) == {("t", number): 1 for number in range(5)}


async def test_nothing_is_written_without_a_change(disk: ReplacementsDisk) -> None:
    files = CheckpointFiles(disk, "data")
    files.note_point(("t", 0), 1)
    await files.saved()
    files.note_point(("t", 0), 1)
    files.note_start(("t", 0), None)
    await files.saved()
    files.save_now()
    assert disk.written == [POINTS]


async def test_a_state_that_is_being_written_never_replaces_a_newer_one(disk: ReplacementsDisk) -> None:
    files = CheckpointFiles(disk, "data")
    files.note_point(("t", 0), 27)
    files.save_soon()
    while not disk.asides:
        await asyncio.sleep(0)
    files.note_point(("t", 0), 5)  # the log was truncated
    files.save_now()
    await files.idle()
    assert checkpoints.read_offsets(disk, POINTS) == {("t", 0): 5}


@pytest.mark.parametrize("turns", range(12))
async def test_a_state_that_is_encoded_in_portions_never_replaces_a_newer_one(
    disk: ReplacementsDisk, turns: int
) -> None:
    files = CheckpointFiles(disk, "data")
    rows = {("t", number): 27 for number in range(3 * checkpoints.ROWS_PER_STEP)}
    for key, offset in rows.items():
        files.note_point(key, offset)
        files.note_start(key, offset)
    files.save_soon()
    for _ in range(turns):
        await asyncio.sleep(0)
    files.note_point(("t", 0), 5)
    files.note_start(("t", 0), 5)
    files.save_now()
    await files.idle()
    for path in (POINTS, STARTS):
        assert checkpoints.read_offsets(disk, path) == {**rows, ("t", 0): 5}


async def test_a_caller_that_is_cancelled_does_not_end_the_write(disk: ReplacementsDisk) -> None:
    files = CheckpointFiles(disk, "data")
    files.note_point(("t", 0), 1)
    callers = [asyncio.ensure_future(files.saved()) for _ in range(2)]
    await asyncio.sleep(0)
    callers[0].cancel()
    await callers[1]
    assert checkpoints.read_offsets(disk, POINTS) == {("t", 0): 1}


async def test_what_a_write_that_failed_should_have_written_is_in_the_next_one(disk: ReplacementsDisk) -> None:
    files = CheckpointFiles(disk, "data")
    files.note_point(("t", 0), 1)
    disk.failing_writes = True
    with pytest.raises(DiskFailed):
        await files.saved()
    disk.failing_writes = False
    await files.saved()
    assert checkpoints.read_offsets(disk, POINTS) == {("t", 0): 1}
