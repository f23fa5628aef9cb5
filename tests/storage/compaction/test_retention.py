"""Retention: the decision, and the log after the deletion."""

from collections.abc import Callable
from random import Random

import msgspec
import pytest
from semel_storage.checkpoints import RECOVERY_POINT
from semel_storage.compaction.retention import Deleted, Expired, apply_retention, deletable
from semel_storage.disk.memory_disk import MachineStopped
from semel_storage.segments.log_config import LogConfig
from support.logs import NOW_MS, DataDirectory, pairs_of

DAY_MS = 86_400_000


class FakeSegment(msgspec.Struct, frozen=True):
    """Stands for a segment."""

    base_offset: int
    next_offset: int
    size: int
    max_timestamp: int
    modified_ms: int = NOW_MS


def undated(base_offset: int, changed_ms_ago: int) -> FakeSegment:
    """A segment without timestamps, whose file changed that long ago."""
    return FakeSegment(base_offset, base_offset + 10, 100, -1, NOW_MS - changed_ms_ago)


def three(*ages_ms: int, size: int = 100, active_size: int = 100) -> list[FakeSegment]:
    """Segments of ten offsets each with these ages; the last is the active one. A negative age: no timestamps."""
    last = len(ages_ms) - 1
    return [
        FakeSegment(
            10 * n,
            10 * n + (10 if n < last or active_size else 0),
            size if n < last else active_size,
            NOW_MS - age if age >= 0 else -1,
        )
        for n, age in enumerate(ages_ms)
    ]


BY_TIME = LogConfig(retention_ms=1000)
BY_SIZE = LogConfig(retention_ms=-1, retention_bytes=150)
FOR_EVER = LogConfig(retention_ms=-1, retention_bytes=-1)
COMPACTED = LogConfig(cleanup_policy=("compact",), retention_ms=1, retention_bytes=0)
BOTH = LogConfig(cleanup_policy=("compact", "delete"), retention_ms=1000)


@pytest.mark.parametrize(
    ("segments", "config", "start_offset", "high_watermark", "expected"),
    [
        pytest.param(three(3000, 2000, 500), BY_TIME, 0, 30, Expired(2, "retention.ms"), id="older-than-retention-ms"),
        pytest.param(three(1001, 1000, 0), BY_TIME, 0, 30, Expired(1, "retention.ms"), id="exactly-that-old-stays"),
        pytest.param(three(500, 3000, 0), BY_TIME, 0, 30, Expired(), id="no-gap-opens"),
        pytest.param(three(3000, 3000, 3000), BY_TIME, 0, 30, Expired(3, "retention.ms"), id="active-one-too"),
        pytest.param(
            three(3000, 3000, 3000, active_size=0), BY_TIME, 0, 20, Expired(2, "retention.ms"), id="empty-active-stays"
        ),
        pytest.param(three(3000, 3000, 3000), BY_TIME, 0, 15, Expired(1, "retention.ms"), id="high-watermark-bounds"),
        pytest.param(three(3000, 3000, 3000), BY_TIME, 0, 9, Expired(), id="all-above-high-watermark"),
        pytest.param(three(-1, 3000, 0), BY_TIME, 0, 30, Expired(), id="undated-and-changed-now"),
        pytest.param(
            [undated(0, 1001), *three(3000, 3000, 0)[1:]], BY_TIME, 0, 30, Expired(2, "retention.ms"), id="undated-old"
        ),
        pytest.param([undated(0, 1000), undated(10, 9)], BY_TIME, 0, 20, Expired(), id="undated-exactly-that-old"),
        pytest.param([undated(0, 5000), undated(10, 2000)], BY_TIME, 0, 20, Expired(2, "retention.ms"), id="undated"),
        pytest.param(three(-5000, 0, 0), BY_TIME, 0, 30, Expired(), id="future-stays"),
        pytest.param(three(0, 0, 0), BY_SIZE, 0, 30, Expired(1, "retention.bytes"), id="only-while-enough-stays"),
        pytest.param(
            three(0, 0, 0, active_size=50), BY_SIZE, 0, 30, Expired(1, "retention.bytes"), id="exactly-enough"
        ),
        pytest.param(three(0, 0, active_size=49), BY_SIZE, 0, 20, Expired(), id="below-retention-bytes"),
        pytest.param(three(9 * DAY_MS, DAY_MS, 0), FOR_EVER, 0, 30, Expired(), id="minus-one-means-no-limit"),
        pytest.param(three(9 * DAY_MS, DAY_MS, 0), FOR_EVER, 20, 30, Expired(2, "start_offset"), id="below-start"),
        pytest.param(three(0, 0, 0), FOR_EVER, 19, 30, Expired(1, "start_offset"), id="start-within-a-segment"),
        pytest.param(three(0, 0, 0), FOR_EVER, 30, 30, Expired(2, "start_offset"), id="active-stays-below-start"),
        pytest.param(three(5000, 5000, 0), COMPACTED, 0, 30, Expired(), id="compact-keeps-all"),
        pytest.param(three(5000, 5000, 0), COMPACTED, 10, 30, Expired(1, "start_offset"), id="compact-below-start"),
        pytest.param(three(5000, 5000, 0), BOTH, 0, 30, Expired(2, "retention.ms"), id="compact-and-delete"),
    ],
)
def test_deletable_segments(
    segments: list[FakeSegment], config: LogConfig, start_offset: int, high_watermark: int, expected: Expired
) -> None:
    found = deletable(segments, config, start_offset=start_offset, high_watermark=high_watermark, now_ms=NOW_MS)
    assert found == expected


async def filled(config: LogConfig) -> DataDirectory:
    """Three segments with offsets 0-1, 2-3 and 4-5, a second apart, all durable."""
    data = DataDirectory(config)
    for n in range(3):
        if n:
            data.log.roll()
        data.append([(None, b"v%d" % (2 * n)), (None, b"v%d" % (2 * n + 1))])
        data.now_ms += 1000
    await data.log.durability.sync()
    return data


@pytest.mark.parametrize("timestamp_ms", [-1, -2, -5])
@pytest.mark.parametrize("restarts", [False, True])
async def test_undated_records_are_deleted_by_the_last_change_of_their_file(timestamp_ms: int, restarts: bool) -> None:
    """As in Kafka (`LogSegment.largestTimestamp`). A restart, and recovery after a killed process, change no file."""
    data = DataDirectory(LogConfig(retention_ms=1500))
    for n in range(3):
        data.append([(None, b"v%d" % n)], timestamp_ms=timestamp_ms)
        data.log.roll()
        data.now_ms += 1000
    await data.log.durability.checkpoint()
    if restarts:
        data.restart()
        data.kill_and_open()
    assert apply_retention(data.log, high_watermark=3, now_ms=data.now_ms - 1500) is None
    done = apply_retention(data.log, high_watermark=3, now_ms=data.now_ms)
    assert done is not None
    assert (done.segments, done.start_offset, done.reason) == (2, 2, "retention.ms")


async def test_undated_records_do_not_keep_dated_segments_behind_them() -> None:
    data = DataDirectory(LogConfig(retention_ms=1500))
    data.append([(None, b"undated")], timestamp_ms=-1)
    data.log.roll()
    data.append([(None, b"dated")])
    await data.log.durability.sync()
    data.now_ms += 1501
    done = apply_retention(data.log, high_watermark=2, now_ms=data.now_ms)
    assert done is not None
    assert (done.segments, done.start_offset) == (2, 2)


async def test_deleted_segments_stay_deleted_after_a_restart() -> None:
    data = await filled(LogConfig(retention_ms=1500))
    done = apply_retention(data.log, high_watermark=6, now_ms=data.now_ms)
    assert done is not None
    assert (done.segments, done.start_offset, done.reason) == (2, 4, "retention.ms")
    assert apply_retention(data.log, high_watermark=6, now_ms=data.now_ms) is None
    data.restart()
    assert (data.log.start_offset, data.log.end_offset) == (4, 6)
    assert [value for _, _, value in pairs_of(data.log)] == [b"v4", b"v5"]


async def test_a_log_of_expired_segments_is_emptied_and_keeps_its_end_offset() -> None:
    data = await filled(LogConfig(retention_ms=1))
    done = apply_retention(data.log, high_watermark=6, now_ms=data.now_ms + DAY_MS)
    assert isinstance(done, Deleted)
    assert (done.segments, done.start_offset) == (3, 6)
    assert data.append([(None, b"next")]).base_offset == 6
    data.restart()
    assert pairs_of(data.log) == [(6, None, b"next")]


async def test_unsynced_segments_stay_also_below_the_high_watermark() -> None:
    data = DataDirectory(LogConfig(retention_ms=1))
    data.append([(None, b"a")])
    assert apply_retention(data.log, high_watermark=1, now_ms=data.now_ms + DAY_MS) is None
    await data.log.durability.sync()
    assert apply_retention(data.log, high_watermark=1, now_ms=data.now_ms + DAY_MS) is not None


@pytest.mark.proves("retention-of-a-last-batch")
async def test_retention_deleting_a_producers_last_batch_does_not_refuse_its_next_one() -> None:
    data = DataDirectory(LogConfig(retention_ms=1))
    data.append([(None, b"a")], producer=(7, 0, 0))
    await data.log.durability.sync()
    assert apply_retention(data.log, high_watermark=1, now_ms=data.now_ms + DAY_MS) is not None
    assert data.append([(None, b"b")], producer=(7, 0, 1)).base_offset == 1
    data.restart()
    assert data.append([(None, b"b")], producer=(7, 0, 1)).duplicate
    assert data.append([(None, b"c")], producer=(7, 0, 2)).base_offset == 2


def by_age(data: DataDirectory) -> None:
    assert apply_retention(data.log, high_watermark=3, now_ms=data.now_ms + DAY_MS) is not None


def by_request(data: DataDirectory) -> None:
    data.log.delete_records_before(3)


def written_without_a_recovery_point() -> DataDirectory:
    """Three segments with one producer each, and an active one. No snapshot is durable, as after a killed process."""
    data = DataDirectory(LogConfig(retention_ms=1000))
    for producer_id in range(3):
        data.append([(None, b"x")], producer=(producer_id, 0, 0))
        data.log.roll()
    data.append([(None, b"x")], timestamp_ms=data.now_ms + DAY_MS)
    data.disk.kill()
    data.disk.remove(f"data/{RECOVERY_POINT}")
    data.open()
    assert data.log.durability.recovery_point == 0
    return data


def check_producers(data: DataDirectory) -> None:
    assert data.log.end_offset == 4
    for producer_id in range(3):
        assert data.append([(None, b"x")], producer=(producer_id, 0, 0)).duplicate, producer_id


@pytest.mark.proves("deletion-of-segments")
@pytest.mark.parametrize("delete", [by_age, by_request])
@pytest.mark.parametrize("seed", range(4))
def test_a_power_loss_during_a_deletion_of_segments_loses_no_producer(
    delete: Callable[[DataDirectory], None], seed: int
) -> None:
    """Each removal of a name may be durable or not. The remaining segments do not contain a producer whose last batch
    was in the first one, so its retry would be stored twice."""
    for change in range(100):
        data, rng = written_without_a_recovery_point(), Random(100 * seed + change)
        data.disk.fuse = change
        try:
            delete(data)
        except MachineStopped:
            data.disk.let_names_through(rng, rng.choice((0.5, 1.0)))
            data.crash_and_open()
        else:
            break
        check_producers(data)
    assert 5 < change < 99


@pytest.mark.proves("deletion-of-segments")
@pytest.mark.parametrize("delete", [by_age, by_request])
def test_a_power_loss_while_recovery_finishes_a_deletion_loses_no_producer(
    delete: Callable[[DataDirectory], None],
) -> None:
    for first in range(100):
        for second in range(100):
            data, rng = written_without_a_recovery_point(), Random(100 * first + second)
            data.disk.fuse = first
            try:
                delete(data)
            except MachineStopped:
                data.disk.kill()
            else:
                assert 5 < first < 99
                return
            data.disk.fuse = second
            try:
                data.open()
            except MachineStopped:
                data.disk.let_names_through(rng, rng.choice((0.5, 1.0)))
                data.crash_and_open()
                check_producers(data)
            else:
                check_producers(data)
                break
