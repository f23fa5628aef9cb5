"""The cleaner: the log that it takes next, its saved progress, and that it blocks no other work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
from broker.harness import Harness
from broker.wire import EventLog
from msgspec.structs import replace
from semel_broker.config.loading import BrokerConfig
from semel_broker.partitions.cleaner import CLEANER_OFFSET, Cleaner
from semel_broker.partitions.disk_space import DiskSpace
from semel_broker.partitions.partition import Partition
from semel_broker.partitions.replicas import Replicas
from semel_broker.world import World
from semel_protocol.batch import MAGIC_AT, read_header
from semel_storage.disk.disk import Space
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.log.log import Log
from semel_storage.log_directory import LogDirectory
from semel_storage.segments.log_config import LogConfig
from support.logs import NOW_MS, Pair, batch_of, pairs_of

COMPACTED = LogConfig(cleanup_policy=("compact",), delete_retention_ms=1000)
DAY_MS = 86_400_000


class CleanerSetup:
    """A cleaner over partitions on a memory disk; the clock is the test's."""

    def __init__(self, disk: MemoryDisk | None = None, **settings: int) -> None:
        self.now_ms = NOW_MS
        self.events = EventLog()
        self.disk = MemoryDisk() if disk is None else disk
        self.world = World(
            now_ms=lambda: self.now_ms, monotonic=lambda: 0.0, rng=Random(1), disk=self.disk, log=self.events
        )
        self.config = BrokerConfig(**settings)
        self.logs = LogDirectory.open(self.disk, "data", node_id=1, cluster_id="c", directory_id="d")
        self.partitions: list[Partition] = []
        self.cleaner = self.new_cleaner()

    def new_cleaner(self, space: DiskSpace | None = None) -> Cleaner:
        return Cleaner(
            self.world, self.config, partitions=lambda: self.partitions, checkpoint=self.logs.checkpoint, space=space
        )

    def partition(self, topic: str, config: LogConfig = COMPACTED, *, fsync: bool = False) -> Partition:
        def open_log() -> Log:
            return self.logs.open_log(topic, 0, config, now_ms=self.now_ms)

        made = Partition(topic, 0, open_log=open_log, world=self.world, fsync=fsync)
        made.open()
        self.partitions.append(made)
        return made

    def delete(self, partition: Partition) -> None:
        self.partitions.remove(partition)
        partition.retire()
        self.logs.delete_log(partition.topic, 0, unique="1")

    def restart(self) -> None:
        self.logs.close()
        self.logs = LogDirectory.open(self.disk, "data", node_id=1, cluster_id="c", directory_id="d")
        topics = [(partition.topic, partition.log.config) for partition in self.partitions]
        self.partitions.clear()
        for topic, config in topics:
            self.partition(topic, config)
        self.cleaner = self.new_cleaner()


def fill(partition: Partition, *segments: list[Pair]) -> None:
    """Each list as one batch in a sealed segment of its own."""
    for pairs in segments:
        batch = batch_of(pairs)
        partition.append(batch, header=read_header(batch))
        partition.log.roll()


@pytest.fixture
async def setup() -> CleanerSetup:
    return CleanerSetup()


# Sweeps


async def test_segments_past_retention_go_and_the_log_line_says_why(setup: CleanerSetup) -> None:
    partition = setup.partition("t", LogConfig(retention_ms=1000))
    fill(partition, [(None, b"a")], [(None, b"b")])
    await partition.log.durability.sync()
    setup.now_ms += DAY_MS
    await setup.cleaner.sweep_segments()
    assert partition.log_start_offset == partition.end_offset == 2
    (event,) = setup.events.of("segments_deleted")
    assert {"topic": "t", "segments": 2, "reason": "retention.ms", "log_start_offset": 2}.items() <= event.items()


async def test_retention_stops_at_the_high_watermark(setup: CleanerSetup) -> None:
    partition = setup.partition("t", LogConfig(retention_ms=1000), fsync=True)
    setup.disk.hold_syncs()
    fill(partition, [(None, b"a")], [(None, b"b")])
    setup.now_ms += DAY_MS
    await setup.cleaner.sweep_segments()
    assert partition.log_start_offset == 0
    setup.disk.release_syncs()
    await partition.committed(2)
    await setup.cleaner.sweep_segments()
    assert partition.log_start_offset == 2


@pytest.mark.parametrize(
    "config",
    [
        LogConfig(segment_ms=1000, retention_ms=-1),
        LogConfig(cleanup_policy=("compact",), max_compaction_lag_ms=1000),
    ],
    ids=["segment.ms", "max.compaction.lag.ms"],
)
async def test_an_active_segment_that_is_open_for_too_long_is_rolled(setup: CleanerSetup, config: LogConfig) -> None:
    partition = setup.partition("t", config)
    batch = batch_of([(b"a", b"1")])
    partition.append(batch, header=read_header(batch))
    await setup.cleaner.sweep_segments()
    assert len(partition.log.segments) == 1
    setup.now_ms += 1001
    await setup.cleaner.sweep_segments()
    assert [segment.base_offset for segment in partition.log.segments] == [0, 1]


async def test_a_journal_does_not_grow_up_to_its_segment_size_before_it_is_compacted(setup: CleanerSetup) -> None:
    """segment.bytes of the internal topics is 100 MiB. A start reads all of each of their 50 partitions."""
    setup.config.limits = replace(setup.config.limits, journal_uncompacted_bytes_max=10_000)
    journal, topic = setup.partition("__transaction_state"), setup.partition("prices")
    for number in range(300):
        for partition in (journal, topic):
            batch = batch_of([(b"key", b"value %d" % number)])
            partition.append(batch, header=read_header(batch))
    size = journal.log.size
    await setup.cleaner.sweep_segments()
    assert len(topic.log.segments) == 1, "what other topics do is for their settings to say"
    await setup.logs.checkpoint()
    assert await setup.cleaner.compact_dirtiest()
    assert journal.log.size < size / 100
    await setup.cleaner.sweep_segments()
    assert journal.log.active.size == 0
    assert [value for _, _, value in pairs_of(journal.log)] == [b"value 299"]


async def test_silent_producers_are_forgotten(setup: CleanerSetup) -> None:
    setup.config.producer_id_expiration_ms = 1000
    partition = setup.partition("t")
    batch = batch_of([(b"a", b"1")], producer=(5, 0, 0))
    partition.append(batch, header=read_header(batch))
    await setup.cleaner.sweep_producers()
    assert len(partition.log.producers.all()) == 1
    setup.now_ms += 1000
    await setup.cleaner.sweep_producers()
    assert partition.log.producers.all() == []


async def test_sweeps_pass_over_a_partition_that_is_deleted_meanwhile(setup: CleanerSetup) -> None:
    first, second = setup.partition("a", LogConfig(retention_ms=1)), setup.partition("b", LogConfig(retention_ms=1))
    for partition in (first, second):
        fill(partition, [(None, b"x")])
    await setup.logs.checkpoint()
    setup.now_ms += DAY_MS
    sweep = asyncio.ensure_future(setup.cleaner.sweep_segments())
    await asyncio.sleep(0)
    setup.delete(second)
    await sweep
    assert [event["topic"] for event in setup.events.of("segments_deleted")] == ["a"]


# Compaction


async def test_the_dirtiest_log_comes_first_and_an_overdue_one_before_all(setup: CleanerSetup) -> None:
    little, much = setup.partition("little"), setup.partition("much")
    overdue = setup.partition("overdue", LogConfig(cleanup_policy=("compact",), max_compaction_lag_ms=1000))
    setup.partition("plain", LogConfig())
    for partition in (little, much, overdue):
        fill(partition, [(b"a", b"x" * 100)])
    await setup.logs.checkpoint()
    for _ in range(3):
        assert await setup.cleaner.compact_dirtiest()
    assert not await setup.cleaner.compact_dirtiest(), "all are clean"
    fill(little, [(b"b", b"y" * 120)])
    fill(much, [(b"b", b"y" * 500)])
    fill(overdue, [(b"b", b"y")])
    setup.now_ms += 5000
    await setup.logs.checkpoint()
    setup.events.lines.clear()
    while await setup.cleaner.compact_dirtiest():
        pass
    assert [event["topic"] for event in setup.events.of("log_compacted")] == ["overdue", "much", "little"]


async def test_compaction_continues_where_it_stopped_after_a_restart(setup: CleanerSetup) -> None:
    partition = setup.partition("t")
    fill(partition, [(b"a", b"1")], [(b"a", b"2")])
    await setup.logs.checkpoint()
    assert await setup.cleaner.compact_dirtiest()
    setup.restart()
    assert not await setup.cleaner.compact_dirtiest()
    assert setup.disk.read_bytes(f"data/t-0/{CLEANER_OFFSET}") == b"0\n1\nt 0 2\n"
    assert pairs_of(setup.partitions[0].log) == [(1, b"a", b"2")]


async def test_an_unusable_offset_file_only_repeats_the_compaction(setup: CleanerSetup) -> None:
    partition = setup.partition("t")
    fill(partition, [(b"a", b"1")], [(b"a", b"2")])
    await setup.logs.checkpoint()
    setup.disk.write_atomically(f"data/t-0/{CLEANER_OFFSET}", b"rubbish")
    assert await setup.cleaner.compact_dirtiest()
    assert len(setup.events.of("cleaner_offset_unusable")) == 1


async def test_a_new_topic_with_an_old_name_is_compacted_from_offset_zero(setup: CleanerSetup) -> None:
    for value in (b"1", b"2"):
        partition = setup.partition("t")
        fill(partition, [(b"a", value)], [(b"a", None), (b"b", value)])
        await setup.logs.checkpoint()
        assert await setup.cleaner.compact_dirtiest()
        assert pairs_of(partition.log) == [(1, b"a", None), (2, b"b", value)]
        setup.delete(partition)
    assert [event["from_offset"] for event in setup.events.of("log_compacted")] == [0, 0]


async def test_a_log_deleted_under_compaction_ends_the_round_quietly(setup: CleanerSetup) -> None:
    partition = setup.partition("t")
    fill(partition, *[[(b"a", b"x" * 40_000)] for _ in range(8)])
    await setup.logs.checkpoint()
    compaction = asyncio.ensure_future(setup.cleaner.compact_dirtiest())
    for _ in range(3):
        await asyncio.sleep(0)
    setup.delete(partition)
    assert await compaction is False
    assert len(setup.events.of("compaction_aborted")) == 1
    assert setup.disk.listdir("data/t-0") == []


def led_with(partition: Partition, *, follower_at: int) -> None:
    """Make this broker the leader, with a follower in sync."""
    partition.become_leader(1, Replicas(1, [1, 2], [1, 2], epoch_start_offset=0, now_ms=0))
    partition.is_whole = True
    partition.note_replica(2, 1, follower_at, 0)


@pytest.mark.proves("replica-away-for-long")
async def test_tombstones_that_a_replica_has_not_fetched_are_kept(setup: CleanerSetup) -> None:
    partition = setup.partition("t", replace(COMPACTED, min_cleanable_dirty_ratio=0.0))
    fill(partition, [(b"a", b"1")], [(b"a", None)])
    led_with(partition, follower_at=2)
    for number in range(4):
        fill(partition, [(b"b%d" % number, b"x")])
        partition.note_replica(2, 1, partition.end_offset, 0)
        if number < 3:
            partition.note_replica(2, 1, 1, 0)  # it has lost what it had: its fetches say so
        await setup.logs.checkpoint()
        assert await setup.cleaner.compact_dirtiest()
        assert ((1, b"a", None) in pairs_of(partition.log)) is (number < 3)
        setup.now_ms += DAY_MS


async def test_a_round_ends_when_a_replica_is_not_in_sync_any_more(setup: CleanerSetup) -> None:
    partition = setup.partition("t")
    fill(partition, [(b"a", b"1")], [(b"a", None)], *[[(b"b", b"x" * 40_000)] for _ in range(8)])
    led_with(partition, follower_at=10)
    await setup.logs.checkpoint()
    assert await setup.cleaner.compact_dirtiest()
    setup.now_ms += DAY_MS
    fill(partition, *[[(b"b", b"x" * 40_000)] for _ in range(8)])
    partition.note_replica(2, 1, partition.end_offset, 0)
    await setup.logs.checkpoint()
    compaction = asyncio.ensure_future(setup.cleaner.compact_dirtiest())
    for _ in range(3):
        await asyncio.sleep(0)
    partition.is_whole = False
    assert await compaction is False
    (event,) = setup.events.of("compaction_aborted")
    assert "in sync" in str(event["reason"])
    assert (1, b"a", None) in pairs_of(partition.log)


@pytest.mark.parametrize("part", ["a record", "a header, and the snapshots"])
async def test_a_log_that_cannot_be_read_is_left_alone_and_the_others_are_not(setup: CleanerSetup, part: str) -> None:
    bad, good = setup.partition("bad"), setup.partition("good")
    for partition in (bad, good):
        fill(partition, [(b"a", b"1")], [(b"a", b"2")])
    await setup.logs.checkpoint()
    path = bad.log.segments[0].path(".log")
    data = bytearray(setup.disk.read_bytes(path))
    data[-1 if part == "a record" else MAGIC_AT] = 0xFF
    setup.disk.overwrite(path, data)
    for name in setup.disk.listdir(bad.log.directory):
        if part != "a record" and name.endswith(".snapshot"):
            setup.disk.overwrite(f"{bad.log.directory}/{name}", bytes(100))
    assert await setup.cleaner.compact_dirtiest() is False
    assert await setup.cleaner.compact_dirtiest() is True
    assert await setup.cleaner.compact_dirtiest() is False
    assert [event["topic"] for event in setup.events.of("log_uncleanable")] == ["bad"]
    assert [event["topic"] for event in setup.events.of("log_compacted")] == ["good"]


async def test_other_tasks_run_while_a_log_is_compacted(setup: CleanerSetup) -> None:
    partition = setup.partition("t")
    fill(partition, *[[(b"k%d" % n, b"x" * 1000) for n in range(100)] for _ in range(10)])
    await setup.logs.checkpoint()
    turns = 0
    compaction = asyncio.ensure_future(setup.cleaner.compact_dirtiest())
    while not compaction.done():
        await asyncio.sleep(0)
        turns += 1
        fill(partition, [(b"k1", b"meanwhile")])
    assert turns >= 20
    found = pairs_of(partition.log)
    assert len(found) == 100 + turns, "every key once, and what came meanwhile"


# The tasks


@pytest.fixture
async def quick() -> AsyncIterator[CleanerSetup]:
    """A running cleaner with intervals of one millisecond."""
    setup = CleanerSetup(
        log_retention_check_interval_ms=1,
        log_flush_offset_checkpoint_interval_ms=1,
        producer_id_expiration_check_interval_ms=1,
        log_cleaner_backoff_ms=1,
    )
    setup.cleaner.start()
    yield setup
    await setup.cleaner.stop()


async def until(setup: CleanerSetup, event: str) -> dict[str, object]:
    async with asyncio.timeout(10):
        while not setup.events.of(event):
            await asyncio.sleep(0.001)
    return setup.events.of(event)[0]


async def test_sweeps_and_compaction_run_by_the_clock(quick: CleanerSetup) -> None:
    old, keyed = quick.partition("old", LogConfig(retention_ms=1000)), quick.partition("keyed")
    fill(keyed, [(b"a", b"1")], [(b"a", b"2")])
    await until(quick, "log_compacted")
    assert pairs_of(keyed.log) == [(1, b"a", b"2")]
    fill(old, [(None, b"x")])
    quick.now_ms += DAY_MS
    await until(quick, "segments_deleted")


async def test_one_failing_sweep_does_not_stop_the_others(quick: CleanerSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("semel_broker.partitions.cleaner.retention", fail)
    partition = quick.partition("keyed")
    fill(partition, [(b"a", b"1")], [(b"a", b"2")])
    assert (await until(quick, "log_sweep_failed"))["sweep"] == "sweep_segments"
    await until(quick, "log_compacted")


async def test_a_bug_in_compaction_is_logged_and_that_log_left_alone(
    quick: CleanerSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("semel_broker.partitions.cleaner.compact", fail)
    fill(quick.partition("keyed"), [(b"a", b"1")], [(b"a", b"2")])
    await until(quick, "compaction_failed")
    await asyncio.sleep(0.02)
    assert len(quick.events.of("compaction_failed")) == 1


async def test_stop_in_the_middle_of_a_compaction_leaves_the_log_whole(setup: CleanerSetup) -> None:
    partition = setup.partition("t")
    fill(partition, *[[(b"k%d" % (n % 3), b"x" * 40_000)] for n in range(12)])
    await setup.logs.checkpoint()
    before = pairs_of(partition.log)
    setup.cleaner.start()
    async with asyncio.timeout(10):
        while not any(name.endswith(".cleaned") for name in setup.disk.listdir("data/t-0")):
            await asyncio.sleep(0)
    await setup.cleaner.stop()
    assert not any(name.endswith(".cleaned") for name in setup.disk.listdir("data/t-0"))
    assert pairs_of(partition.log) == before


# In a broker


async def test_a_compacted_topic_of_a_running_broker(tmp_path: Path) -> None:
    harness = Harness(
        tmp_path / "data", log_cleaner_backoff_ms="5", log_flush_offset_checkpoint_interval_ms="5", durability="os"
    )
    await harness.start()
    try:
        wire = await harness.wire()
        await wire.create_topic("keyed", cleanup_policy="compact", segment_bytes="1024")
        for n in range(40):
            await wire.produce("keyed", batch_of([(b"k%d" % (n % 4), b"%d" % n + b"x" * 200)], timestamp_ms=NOW_MS))
        async with asyncio.timeout(10):
            while len(await wire.values("keyed")) > 10:
                await asyncio.sleep(0.01)
        values = await wire.values("keyed")
        assert [int(value.rstrip(b"x")) for value in values[-4:] if value] == [36, 37, 38, 39]
        await harness.restart()
        wire = await harness.wire()
        assert (await wire.values("keyed"))[-4:] == values[-4:]
    finally:
        await harness.stop()


# A disk without room


class LimitedDisk(MemoryDisk):
    """A disk with the number of free bytes that the test sets."""

    free_bytes = 1 << 30

    def space(self, path: str) -> Space | None:
        return Space(self.free_bytes, 1 << 30)


@pytest.fixture
async def full() -> CleanerSetup:
    """A broker with a full disk."""
    setup = CleanerSetup(LimitedDisk(), log_min_free_bytes=1000)
    setup.cleaner = setup.new_cleaner(DiskSpace(setup.world, setup.config, "data"))
    return setup


def leave(setup: CleanerSetup, free_bytes: int) -> None:
    assert isinstance(setup.disk, LimitedDisk)
    assert setup.cleaner._space is not None
    setup.disk.free_bytes = free_bytes
    setup.cleaner._space.look()


async def test_a_log_is_compacted_only_where_its_copy_leaves_half_of_the_mark(full: CleanerSetup) -> None:
    partition = full.partition("t")
    fill(partition, [(b"a", b"1"), (b"a", b"2")], [(b"a", b"3")])
    await full.logs.checkpoint()
    size = partition.log.size
    leave(full, 500 + size - 1)
    assert not await full.cleaner.compact_dirtiest()
    leave(full, 500 + size)
    assert await full.cleaner.compact_dirtiest()
    assert partition.log.size < size


async def test_a_small_log_is_compacted_where_a_large_one_has_no_room(full: CleanerSetup) -> None:
    large, small = full.partition("large"), full.partition("small")
    fill(large, [(b"a", bytes(1000)), (b"a", bytes(1000))], [(b"a", b"3")])
    fill(small, [(b"a", b"1"), (b"a", b"2")], [(b"a", b"3")])
    await full.logs.checkpoint()
    leave(full, 500 + small.log.size)
    assert await full.cleaner.compact_dirtiest()
    assert not await full.cleaner.compact_dirtiest()
    assert [event["topic"] for event in full.events.of("log_compacted")] == ["small"]
    leave(full, 500 + large.log.size)
    assert await full.cleaner.compact_dirtiest()


@pytest.mark.parametrize("free_bytes", [0, 499, 999])
async def test_retention_deletes_and_the_checkpoint_is_written_on_a_full_disk(
    full: CleanerSetup, free_bytes: int
) -> None:
    partition = full.partition("t", LogConfig(retention_ms=1000))
    fill(partition, [(None, b"a")], [(None, b"b")])
    await partition.log.durability.sync()
    leave(full, free_bytes)
    full.now_ms += DAY_MS
    await full.cleaner.sweep_segments()
    await full.logs.checkpoint()
    assert partition.log_start_offset == partition.end_offset == 2
    assert full.logs.partitions() == [("t", 0)]
    assert not full.events.of("log_sweep_failed")


async def test_a_log_that_cannot_be_compacted_is_left_alone_also_after_a_time_without_room(full: CleanerSetup) -> None:
    partition = full.partition("t")
    fill(partition, [(b"a", b"1")], [(b"a", b"2")])
    await full.logs.checkpoint()
    path = partition.log.segments[0].path(".log")
    full.disk.overwrite(path, full.disk.read_bytes(path)[:-1] + b"\xff")
    for free_bytes in (1 << 30, 0, 1 << 30):
        leave(full, free_bytes)
        assert not await full.cleaner.compact_dirtiest()
    assert len(full.events.of("log_uncleanable")) == 1
