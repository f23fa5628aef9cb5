"""All appends of one turn of the loop are synced together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import pytest
from broker.wire import batch
from semel_broker.partitions.flusher import HURRIES_ALONE, SINGLY_MAX, Flusher
from semel_broker.partitions.partition import Partition
from semel_broker.world import World
from semel_protocol.batch import read_header
from semel_storage.disk.disk import File
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.log.log import Log
from semel_storage.segments.log_config import LogConfig


class BusyDisk(MemoryDisk):
    """A disk whose syncs are fast for up to `together_max` files at once."""

    def __init__(self) -> None:
        super().__init__()
        self.is_quick = True
        self.together_max = 100
        self.calls: list[int] = []

    def sync_if_quick(self, files: Sequence[File]) -> bool:
        if len(files) > self.together_max or not super().sync_if_quick(files):
            return False
        self.calls.append(len(files))
        return True


class FlusherSetup:
    def __init__(self) -> None:
        self.disk = BusyDisk()
        self.flusher = Flusher(self.disk)
        self.world = World(now_ms=lambda: 0, monotonic=lambda: 0.0, rng=Random(1), disk=self.disk)

    def partition(self, index: int) -> Partition:
        def open_log() -> Log:
            return Log.open(self.disk, f"t-{index}", LogConfig(), now_ms=0)

        return Partition("t", index, open_log=open_log, world=self.world, fsync=True, flusher=self.flusher)

    def partitions(self, count: int) -> list[Partition]:
        return [self.partition(index) for index in range(count)]


@pytest.fixture
async def setup() -> FlusherSetup:
    return FlusherSetup()


def put(partition: Partition, *, lazily: bool = False) -> None:
    data = batch(b"x")
    partition.append(data, header=read_header(data), lazily=lazily)


async def committed(partitions: Sequence[Partition], end: int) -> None:
    async with asyncio.timeout(5):
        for partition in partitions:
            await partition.committed(end)


async def test_partitions_of_one_turn_share_one_sync_of_a_quick_disk(setup: FlusherSetup) -> None:
    partitions = setup.partitions(20)
    for partition in partitions:
        put(partition)
        put(partition)
    assert [partition.high_watermark for partition in partitions] == [0] * 20
    await asyncio.sleep(0)
    assert setup.disk.calls == [20]
    assert [partition.log.durability.synced_offset for partition in partitions] == [2] * 20


async def test_a_few_are_synced_one_by_one_where_that_is_quick(setup: FlusherSetup) -> None:
    setup.disk.together_max = 1
    partitions = setup.partitions(SINGLY_MAX)
    for partition in partitions:
        put(partition)
    await committed(partitions, 1)
    assert setup.disk.calls == [1] * SINGLY_MAX


@pytest.mark.parametrize(("is_quick", "count"), [(True, SINGLY_MAX + 1), (False, 1)])
async def test_many_files_or_a_slow_disk_are_synced_in_threads(setup: FlusherSetup, is_quick: bool, count: int) -> None:
    setup.disk.together_max, setup.disk.is_quick = 1, is_quick
    partitions = setup.partitions(count)
    for partition in partitions:
        put(partition)
    await committed(partitions, 1)
    assert setup.disk.calls == []


async def test_a_partition_that_is_closed_is_synced_by_its_end(setup: FlusherSetup) -> None:
    stays, goes = setup.partitions(2)
    put(stays)
    put(goes)
    await goes.close()
    assert goes.high_watermark == 1
    await committed([stays], 1)
    assert sum(setup.disk.calls) == 1


async def test_a_lazy_append_is_synced_with_the_next_one_or_by_itself_after_a_while(setup: FlusherSetup) -> None:
    lazy, other = setup.partitions(2)
    put(lazy, lazily=True)
    put(other)
    await committed([other], 1)
    assert (lazy.high_watermark, setup.disk.calls) == (0, [1])
    put(lazy)
    await committed([lazy], 2)
    assert setup.disk.calls == [1, 1]
    put(other, lazily=True)
    await committed([other], 2)
    assert setup.disk.calls == [1, 1, 1]


async def test_a_single_waiting_caller_is_synced_within_the_turn(setup: FlusherSetup) -> None:
    one, two = setup.partitions(2)
    put(one)
    put(two)
    one.hurry()
    assert (one.high_watermark, two.high_watermark) == (1, 1)
    assert setup.disk.calls == [2]


async def test_several_waiting_callers_share_the_sync_at_the_end_of_the_turn(setup: FlusherSetup) -> None:
    partitions = setup.partitions(HURRIES_ALONE + 3)
    for partition in partitions:
        put(partition)
        partition.hurry()
    assert setup.disk.calls == [1] * HURRIES_ALONE
    await committed(partitions, 1)
    assert setup.disk.calls == [*[1] * HURRIES_ALONE, 3]
    put(partitions[0])
    partitions[0].hurry()
    assert partitions[0].high_watermark == 1, "there was company of late"
    await asyncio.sleep(0)
    put(partitions[0])
    partitions[0].hurry()
    assert partitions[0].high_watermark == 3, "there no longer is"
