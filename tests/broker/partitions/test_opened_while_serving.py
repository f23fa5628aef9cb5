"""While a broker serves, logs are opened and followers begin elsewhere: the loop waits for no disk meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest
from broker.partitions.test_partition import replicated
from broker.wire import batch
from semel_broker.partitions.partition import Partition
from semel_broker.world import World
from semel_protocol.batch import read_header
from semel_protocol.errors import KafkaError
from semel_storage.disk.disk import Disk
from semel_storage.disk.memory_disk import SECTOR_BYTES, MemoryDisk
from semel_storage.log.log import Log
from semel_storage.segments.log_config import LogConfig
from support.virtual_time import disk_here

pytestmark = pytest.mark.usefixtures("loop_syncs_refused")

COMPACTED = LogConfig(cleanup_policy=("compact",))
FILE = "00000000000000000000.log"


OF_A_SECTOR = next(bytes(length) for length in range(SECTOR_BYTES) if len(batch(bytes(length))) == SECTOR_BYTES)
"""A value whose batch takes one sector of the disk."""


def make(disk: Disk, path: str, **settings: object) -> Partition:
    """A partition whose log opens as in a broker that serves."""

    disk.mkdir(path, durable=False)

    def open_log() -> Log:
        return Log.open(disk, path, COMPACTED, now_ms=0, settles_later=True, **settings)  # type: ignore[arg-type]

    world = World(now_ms=lambda: 0, monotonic=lambda: 0.0, rng=Random(1), disk=disk)
    return Partition("t", 0, open_log=open_log, world=world, fsync=True)


def put(partition: Partition, value: bytes) -> int:
    data = batch(value)
    return partition.append(data, header=read_header(data)).base_offset


async def written(disk: Disk, path: str) -> None:
    partition = make(disk, path)
    put(partition, b"one")
    put(partition, b"two")
    await partition.synced()
    await partition.close()
    partition.log.abandon()


async def test_a_torn_tail_is_cut_before_anything_is_read_or_appended(tmp_path: Path) -> None:
    disk, path = disk_here(), str(tmp_path / "t-0")
    await written(disk, path)
    file = tmp_path / "t-0" / FILE
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:70])
    partition = make(disk, path)
    partition.open()
    refused = pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER")
    with refused:
        partition.check_leading()
    with refused:
        partition.read(0, bytes_max=1000)
    await partition.changed()
    assert file.read_bytes() == whole
    assert (partition.high_watermark, put(partition, b"three")) == (2, 2)
    await partition.synced()
    assert partition.log.is_settled
    await partition.close()


async def test_what_was_cut_does_not_come_back_behind_new_records() -> None:
    """After a power loss that takes the end of the next append."""
    for seed in range(20):
        disk = MemoryDisk()
        disk.mkdir("t-0")
        file = disk.open(f"t-0/{FILE}")
        file.append(replicated(OF_A_SECTOR, base_offset=0), bytes(SECTOR_BYTES), replicated(b"lost", base_offset=2))
        file.sync_now()
        disk.sync_dir("t-0")
        disk.kill()
        partition = make(disk, "t-0", recovery_point=0)
        partition.open()
        await partition.changed()
        assert partition.end_offset == 1
        await asyncio.sleep(0)
        put(partition, OF_A_SECTOR)
        disk.crash(Random(seed))
        again = Log.open(disk, "t-0", COMPACTED, now_ms=0, recovery_point=0)
        assert again.end_offset <= 2
        assert b"lost" not in again.read(0, up_to=again.end_offset, bytes_max=10_000)


async def follower(disk: Disk, path: str, *, begins_at: int) -> Partition:
    partition = make(disk, path)
    partition.open()
    partition.become_follower(leader=2, epoch=1)
    if begins_at:
        partition.restart_at(begins_at, ())
        await partition.changed()
    return partition


async def test_a_follower_begins_inside_a_batch_of_its_leader(tmp_path: Path) -> None:
    partition = await follower(disk_here(), str(tmp_path / "t-0"), begins_at=7)
    data = replicated(*[b"x"] * 10, base_offset=0)
    partition.append_replicated(data, leader_epoch=1, high_watermark=10, log_start_offset=7)
    assert partition.is_changing
    await partition.changed()
    await partition.synced()
    assert (partition.log_start_offset, partition.end_offset, partition.high_watermark) == (7, 10, 10)
    assert partition.log.segments[0].base_offset == 0
    assert partition.read_replica(7, bytes_max=10_000) == data
    await partition.close()


async def test_such_batches_are_not_appended_once_another_broker_leads(tmp_path: Path) -> None:
    partition = await follower(disk_here(), str(tmp_path / "t-0"), begins_at=7)
    data = replicated(*[b"x"] * 10, base_offset=0)
    partition.append_replicated(data, leader_epoch=1, high_watermark=10, log_start_offset=7)
    partition.become_follower(leader=3, epoch=2)
    await partition.changed()
    assert (partition.end_offset, partition.role.value) == (0, "follower")
    await partition.close()


async def test_an_empty_segment_is_replaced_where_a_relative_offset_would_be_too_large(tmp_path: Path) -> None:
    """The leader's log was compacted."""
    partition = await follower(disk_here(), str(tmp_path / "t-0"), begins_at=0)
    for offset in (1 << 32, (1 << 32) + 1):
        partition.append_replicated(replicated(b"x", base_offset=offset), leader_epoch=1, high_watermark=0)
    await partition.synced()
    assert (partition.end_offset, len(partition.log.segments)) == ((1 << 32) + 2, 1)
    await partition.close()
