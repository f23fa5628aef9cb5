"""A leader epoch history that contradicts the batches is rebuilt when the log opens."""

import asyncio

import pytest
from semel_protocol.batch import stamp
from semel_storage import checkpoints
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.segments.log_config import LogConfig
from storage.batches import DIRECTORY, make_batch, open_log, put

SMALL = LogConfig(segment_bytes=900, index_interval_bytes=100)
PATH = f"{DIRECTORY}/{checkpoints.LEADER_EPOCH}"
TRUTH = [(0, 0), (2, 12), (3, 14), (7, 40)]


def written() -> MemoryDisk:
    """A closed log of four epochs in several segments."""
    disk = MemoryDisk()
    log = open_log(disk, SMALL)
    for n in range(60):
        epoch = max(epoch for epoch, start in TRUTH if start <= n)
        put(log, make_batch(value=b"%d" % n), leader_epoch=epoch)
    assert len(log.segments) > 4
    asyncio.run(log.durability.sync())
    log.close()
    disk.kill()
    return disk


def lies() -> list[list[tuple[int, int]]]:
    """Variants of the file with one changed number or one missing line."""
    found = []
    for at, (epoch, start) in enumerate(TRUTH):
        for lie in ((epoch + 1, start), (epoch ^ 4, start), (epoch, start + 1), (epoch, max(0, start - 1))):
            found.append([*TRUTH[:at], lie, *TRUTH[at + 1 :]])
        found.append([*TRUTH[:at], *TRUTH[at + 1 :]])
    return [rows for rows in [*found, []] if rows == sorted(rows) and rows != TRUTH]


@pytest.mark.parametrize("rows", lies(), ids=str)
def test_a_history_that_the_batches_contradict_is_rebuilt(rows: list[tuple[int, int]]) -> None:
    disk = written()
    disk.write_atomically(PATH, checkpoints.encode_epochs(rows))
    told: list[str] = []
    log = open_log(disk, SMALL, clean=True, recovery_point=60, event=lambda name, **_: told.append(name))
    assert log.epochs.entries == TRUTH
    assert told == ["log_damaged"]
    log.close()
    assert checkpoints.read_epochs(disk, PATH) == TRUTH


def test_a_correct_history_is_not_changed() -> None:
    told: list[str] = []
    log = open_log(written(), SMALL, clean=True, recovery_point=60, event=lambda name, **_: told.append(name))
    assert log.epochs.entries == TRUTH
    assert not told


@pytest.mark.parametrize("start", [1, 12, 13, 39, 41, 59])
def test_deleted_batches_do_not_contradict_the_history(start: int) -> None:
    disk = written()
    log = open_log(disk, SMALL, clean=True, recovery_point=60)
    log.delete_records_before(start)
    kept = list(log.epochs.entries)
    log.close()
    told: list[str] = []
    again = open_log(
        disk,
        SMALL,
        clean=True,
        recovery_point=60,
        start_offset=start,
        event=lambda name, **_: told.append(name),
    )
    assert again.epochs.entries == kept
    assert not told


@pytest.mark.parametrize("offsets", [[0, 20, 50], [5, 13], [13, 59], [41]])
def test_compacted_batches_do_not_contradict_the_history(offsets: list[int]) -> None:
    """Some epochs have no batch left, or none at their start offset."""
    disk = MemoryDisk()
    config = LogConfig(cleanup_policy=("compact",))
    log = open_log(disk, config)
    for offset in offsets:
        epoch = max(epoch for epoch, start in TRUTH if start <= offset)
        batch = bytearray(make_batch())
        stamp(batch, offset, epoch)
        log.append_replicated(bytes(batch), now_ms=0)
    asyncio.run(log.durability.sync())
    log.close()
    disk.write_atomically(PATH, checkpoints.encode_epochs([row for row in TRUTH if row[1] <= offsets[-1]]))
    told: list[str] = []
    again = open_log(disk, config, clean=True, recovery_point=log.end_offset, event=lambda name, **_: told.append(name))
    assert [row for row in again.epochs.entries if row[1] <= offsets[-1]]
    assert not told
