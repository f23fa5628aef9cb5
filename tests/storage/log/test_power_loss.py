"""The machine stops before each change to the disk in turn; acknowledged records are never lost."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest
from semel_storage.disk.memory_disk import MachineStopped, MemoryDisk
from semel_storage.log_directory import LogDirectory
from semel_storage.segments.log_config import LogConfig
from storage.batches import NOW_MS, make_batch, put, read_all

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150)
PRODUCER, GONE = 3, 4
"""GONE writes the first record only, which retention deletes. Its state outlives that (KIP-360)."""
CHANGES_MAX = 1000
SEEDS = 5


def value_of(offset: int, generation: int) -> bytes:
    return b"%d.%d " % (generation, offset) + b"x" * (offset * 37 % 200)


class LogWorkload:
    """The operations of a busy broker on one log; remembers what is guaranteed at any moment."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.durable = 0
        self.start = 0
        self.start_max = 0
        self.floor = 10**9
        """The lowest end that an unfinished truncation may leave."""

    def open(self) -> LogDirectory:
        directory = LogDirectory.open(self.disk, "data", node_id=1, cluster_id="c", directory_id="d")
        directory.open_log("t", 0, CONFIG, now_ms=NOW_MS, checkpoint_bytes=1500)
        return directory

    async def run(self) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # the background sync stops as well
        directory = self.open()
        log = directory.logs["t", 0]
        put(log, make_batch(value=value_of(0, 0), producer_id=GONE))
        self.append(directory, 7, 0)
        await log.durability.sync()
        self.durable = log.end_offset
        self.append(directory, 8, 0)
        await directory.checkpoint()
        self.durable = log.end_offset
        self.append(directory, 3, 0)
        self.floor, self.durable = 13, 13
        log.truncate_to(13)
        self.append(directory, 6, 1)
        await log.durability.sync()
        self.floor, self.durable = 10**9, log.end_offset
        self.start_max = 9
        log.delete_records_before(9)
        self.start = 9
        self.append(directory, 4, 1)
        directory.close()
        self.durable = log.end_offset
        directory = self.open()
        log = directory.logs["t", 0]
        assert directory.was_clean
        self.append(directory, 7, 1)
        log.roll()
        await log.durability.sync()
        self.durable = log.end_offset
        self.start_max = log.segments[2].base_offset
        log.delete_segments(log.segments[:2])
        directory.delete_log("other", 0, unique="1")
        self.append(directory, 7, 1)
        log.roll()
        directory.abandon()
        directory = self.open()
        log = directory.logs["t", 0]
        self.durable = log.end_offset
        self.start_max = log.end_offset
        log.delete_segments(log.segments[:-1])
        await directory.checkpoint()
        self.append(directory, 1, 1)
        log.roll()
        self.append(directory, 2, 1)

    def append(self, directory: LogDirectory, count: int, generation: int) -> None:
        log = directory.logs["t", 0]
        for _ in range(count):
            offset = log.end_offset
            put(log, make_batch(value=value_of(offset, generation), producer_id=PRODUCER, sequence=offset))

    def check(self) -> None:
        directory = self.open()
        log = directory.logs["t", 0]
        assert log.end_offset >= min(self.durable, self.floor)
        assert self.start <= log.start_offset <= self.start_max
        records = read_all(log)
        assert [offset for offset, _ in records] == list(range(log.start_offset, log.end_offset))
        for offset, value in records:
            assert value in (value_of(offset, 0), value_of(offset, 1))
        sequence = log.end_offset
        if (producer := log.producers.get(PRODUCER)) is not None:
            assert producer.last_sequence == log.end_offset - 1
        assert self.durable == 0 or log.producers.get(GONE) is not None
        self.append(directory, 1, 1)
        retry = make_batch(value=value_of(sequence, 1), producer_id=PRODUCER, sequence=sequence)
        assert put(log, retry).base_offset == sequence
        directory.close()


@pytest.mark.proves("rename-without-sync", "snapshot-of-an-empty-log")
@pytest.mark.parametrize(
    "stop",
    [
        pytest.param(lambda disk, _: disk.kill(), id="process-killed"),
        pytest.param(lambda disk, _: disk.crash(), id="all-unsynced-lost"),
        *[
            pytest.param(lambda disk, change, seed=seed: disk.crash(Random(seed + change)), id=f"some-lost-{seed}")
            for seed in range(0, SEEDS * CHANGES_MAX, CHANGES_MAX)
        ],
    ],
)
def test_a_stop_before_any_change_loses_no_acknowledged_record(stop: Callable[[MemoryDisk, int], None]) -> None:
    for change in range(CHANGES_MAX):
        disk = MemoryDisk()
        life = LogWorkload(disk)
        disk.fuse = change
        try:
            asyncio.run(life.run())
        except MachineStopped:
            stop(disk, change)
            life.check()
        else:
            break
    assert 100 < change < CHANGES_MAX - 1


@pytest.mark.proves("segment-name-not-durable")
def test_records_synced_after_a_killed_process_survive_a_power_loss() -> None:
    """A process killed between creating a file and making its name durable leaves the name to the next process."""
    for change in range(CHANGES_MAX):
        disk = MemoryDisk()
        life = LogWorkload(disk)
        disk.fuse = change
        try:
            asyncio.run(life.run())
        except MachineStopped:
            disk.kill()
        else:
            break
        directory = life.open()
        log = directory.logs["t", 0]
        life.append(directory, 3, 1)
        asyncio.run(log.durability.sync())
        kept = read_all(log)
        disk.crash()
        assert read_all(life.open().logs["t", 0]) == kept, f"stopped before change {change}"
    assert 100 < change < CHANGES_MAX - 1
