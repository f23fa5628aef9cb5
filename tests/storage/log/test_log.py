"""Append, read, roll, lookup and truncation of one log on the memory disk."""

import asyncio

import pytest
from semel_protocol.batch import crc_ok, iterate, read_header
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.records import decode_batch
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.log.durability import NoCheckpoint
from semel_storage.log.log import Log
from semel_storage.segments.log_config import LogConfig
from storage.batches import DIRECTORY, NOW_MS, headers_of, make_batch, open_log, put, read_all

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=100)


def fill(log: Log, batches: int, count: int = 2) -> None:
    for n in range(batches):
        put(log, make_batch(count, value=b"value-%d" % n))


def test_offsets_are_consecutive(disk: MemoryDisk) -> None:
    log = open_log(disk)
    assert [put(log, make_batch(n)).base_offset for n in (1, 3, 2)] == [0, 1, 4]
    assert (log.start_offset, log.end_offset) == (0, 6)


def test_stored_batch_carries_its_offset_and_leader_epoch_and_keeps_its_crc(disk: MemoryDisk) -> None:
    log = open_log(disk)
    put(log, make_batch(2))
    put(log, make_batch(2), leader_epoch=7)
    data = log.read(2, up_to=4, bytes_max=1000)
    header = read_header(data)
    assert (header.base_offset, header.partition_leader_epoch) == (2, 7)
    assert crc_ok(data, header)


def test_appended_buffer_is_not_changed(disk: MemoryDisk) -> None:
    log = open_log(disk, LogConfig(message_timestamp_type="LogAppendTime"))
    put(log, make_batch())
    batch = bytearray(make_batch())
    before = bytes(batch)
    log.append(memoryview(batch), header=read_header(batch), leader_epoch=3, now_ms=NOW_MS)
    assert bytes(batch) == before


def test_log_append_time_stamps_every_record(disk: MemoryDisk) -> None:
    log = open_log(disk, LogConfig(message_timestamp_type="LogAppendTime"))
    result = put(log, make_batch(2, timestamps=[5, 6]), now_ms=1234)
    assert result.log_append_time_ms == 1234
    data = log.read(0, up_to=2, bytes_max=1000)
    header = read_header(data)
    assert header.log_append_time
    assert header.max_timestamp == 1234
    assert crc_ok(data, header)
    assert [record.timestamp for record in decode_batch(data)] == [1234, 1234]


def test_batch_above_segment_bytes_is_refused(disk: MemoryDisk) -> None:
    log = open_log(disk, SMALL)
    with pytest.raises(KafkaError) as refused:
        put(log, make_batch(value=b"x" * 600))
    assert refused.value.code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.end_offset == 0


@pytest.mark.parametrize("bytes_max", [1, 100, 250, 10_000])
def test_reads_from_any_offset_give_every_record_once(disk: MemoryDisk, bytes_max: int) -> None:
    log = open_log(disk, SMALL)
    fill(log, 40)
    assert len(log.segments) > 5
    expected = [(offset, b"value-%d" % (offset // 2)) for offset in range(80)]
    assert read_all(log, bytes_max=bytes_max) == expected
    for offset in range(80):
        first = headers_of(log.read(offset, up_to=80, bytes_max=bytes_max))[0]
        assert first.base_offset <= offset <= first.last_offset


def test_reads_are_the_same_without_cached_positions(disk: MemoryDisk) -> None:
    log = open_log(disk, SMALL)
    fill(log, 40)
    for offset in range(80):
        for up_to in (offset + 1, offset + 3, 80):
            warm = log.read(offset, up_to=min(80, up_to), bytes_max=300)
            log.segments.forget()
            assert log.read(offset, up_to=min(80, up_to), bytes_max=300) == warm


def test_read_never_reaches_up_to(disk: MemoryDisk) -> None:
    log = open_log(disk, SMALL)
    fill(log, 20)
    for up_to in range(41):
        for offset in range(up_to):
            headers = headers_of(log.read(offset, up_to=up_to, bytes_max=10_000))
            assert all(header.next_offset <= up_to for header in headers)
            # a batch that straddles up_to is not readable yet, every whole one is
            assert (headers[-1].next_offset if headers else offset - offset % 2) == up_to - up_to % 2
    assert log.read(40, up_to=40, bytes_max=100) == b""


def test_read_gives_complete_batches_within_bytes_max_or_one(disk: MemoryDisk) -> None:
    log = open_log(disk)
    sizes = []
    for n in range(10):
        batch = make_batch(value=b"x" * (100 * n))
        sizes.append(len(batch))
        put(log, batch)
    for bytes_max in range(1, sum(sizes) + 10, 37):
        data = log.read(0, up_to=10, bytes_max=bytes_max)
        assert sum(header.size for header in headers_of(data)) == len(data)
        count = len(headers_of(data))
        assert len(data) <= bytes_max or count == 1
        assert count == 10 or sum(sizes[: count + 1]) > bytes_max
    assert log.read(0, up_to=10, bytes_max=5, at_least_one=False) == b""


@pytest.mark.parametrize("offset", [-1, 3, 100])
def test_offset_outside_of_the_log_is_out_of_range(disk: MemoryDisk, offset: int) -> None:
    log = open_log(disk)
    put(log, make_batch(2))
    with pytest.raises(KafkaError) as refused:
        log.read(offset, up_to=2, bytes_max=100)
    assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_segment_ms_rolls_by_record_time(disk: MemoryDisk) -> None:
    log = open_log(disk, LogConfig(segment_ms=1000))
    for timestamp in (0, 900, 1000, 1001, 1500, 2500):
        put(log, make_batch(timestamps=[timestamp]))
    assert [segment.base_offset for segment in log.segments] == [0, 3, 5]
    assert not log.roll_if_due(now_ms=3500)
    assert log.roll_if_due(now_ms=3501)
    assert not log.roll_if_due(now_ms=9999), "an empty segment has no age"


@pytest.mark.parametrize("timestamp_ms", [-1, -2, -5])
def test_segment_ms_rolls_by_the_first_append_if_the_first_batch_is_undated(
    disk: MemoryDisk, timestamp_ms: int
) -> None:
    """As in Kafka (`LogSegment.timeWaitedForRoll`): by the broker's clock, also if later batches are dated."""
    log = open_log(disk, LogConfig(segment_ms=1000))
    put(log, make_batch(timestamps=[timestamp_ms]), now_ms=5000)
    put(log, make_batch(timestamps=[100]), now_ms=6000)
    assert len(log.segments) == 1
    assert not log.roll_if_due(now_ms=6000)
    put(log, make_batch(timestamps=[timestamp_ms]), now_ms=6001)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert not log.roll_if_due(now_ms=7001)
    assert log.roll_if_due(now_ms=7002)
    follower = open_log(MemoryDisk(), LogConfig(segment_ms=1000))
    data = log.read(0, up_to=3, bytes_max=1)
    follower.append_replicated(data, now_ms=9000)
    follower.append_replicated(log.read(1, up_to=3, bytes_max=1), now_ms=10_001)
    assert len(follower.segments) == 2


def test_segment_ms_of_an_undated_segment_continues_after_a_restart(disk: MemoryDisk) -> None:
    """Since the last change of its file."""
    config, clock = LogConfig(segment_ms=1000), [5000]
    disk.clock = lambda: clock[0]
    log = open_log(disk, config)
    put(log, make_batch(timestamps=[-1]), now_ms=5000)
    log.close()
    clock[0] = 5900
    again = open_log(disk, config, recovery_point=1, clean=True)
    assert not again.roll_if_due(now_ms=6000)
    assert again.roll_if_due(now_ms=6001)


def test_full_index_rolls_the_segment(disk: MemoryDisk) -> None:
    log = open_log(disk, LogConfig(index_interval_bytes=0, segment_index_bytes=24))
    fill(log, 10)
    assert len(log.segments) > 2
    assert all(segment.time_index.size <= 24 for segment in log.segments)


def test_relative_offset_overflow_rolls_the_segment(disk: MemoryDisk) -> None:
    log = open_log(disk, start_offset=0)
    put(log, make_batch())
    log.end_offset = 2**31 - 2  # as compaction leaves it: few records, far apart
    put(log, make_batch(2))
    assert [segment.base_offset for segment in log.segments] == [0]
    put(log, make_batch(1))
    assert [segment.base_offset for segment in log.segments] == [0, 2**31]


# Durability


async def test_sync_covers_every_segment_that_was_rolled_since(disk: MemoryDisk) -> None:
    log = open_log(disk, SMALL)
    fill(log, 40)
    assert log.durability.synced_offset == 0
    await log.durability.sync()
    assert log.durability.synced_offset == 80
    disk.crash()
    assert len(read_all(open_log(disk, SMALL))) == 80


async def test_synced_offset_is_the_end_offset_of_the_sync_call(disk: MemoryDisk) -> None:
    log = open_log(disk)
    put(log, make_batch())
    disk.hold_syncs()
    syncing = asyncio.ensure_future(log.durability.sync())
    await asyncio.sleep(0)
    put(log, make_batch())
    assert log.durability.synced_offset == 0
    disk.release_syncs()
    await syncing
    assert (log.durability.synced_offset, log.end_offset) == (1, 2)


async def test_truncation_during_a_sync_lowers_the_synced_offset(disk: MemoryDisk) -> None:
    log = open_log(disk)
    for _ in range(5):
        put(log, make_batch())
    disk.hold_syncs()
    syncing = asyncio.ensure_future(log.durability.sync())
    await asyncio.sleep(0)
    log.truncate_to(2)
    put(log, make_batch(value=b"other"))
    disk.release_syncs()
    await syncing
    assert log.durability.synced_offset == 3
    disk.crash()
    assert [value for _, value in read_all(open_log(disk))] == [b"v", b"v", b"other"]


@pytest.mark.parametrize("end", ["close", "abandon"])
async def test_log_may_be_closed_while_a_sync_is_awaited(disk: MemoryDisk, end: str) -> None:
    log = open_log(disk, SMALL, checkpoint_bytes=100)
    fill(log, 5)
    disk.hold_syncs()
    syncing = asyncio.ensure_future(log.durability.sync())
    await asyncio.sleep(0)
    getattr(log, end)()
    disk.rename(DIRECTORY, "data/doomed")
    disk.release_syncs()
    await asyncio.wait_for(syncing, 1)
    assert disk.listdir(DIRECTORY) == []


async def test_recovery_point_follows_the_synced_bytes(disk: MemoryDisk) -> None:
    log = open_log(disk, checkpoint_bytes=1000)
    saved: list[int] = []

    class Files(NoCheckpoint):
        def save_soon(self) -> None:
            saved.append(log.durability.recovery_point)

    log.durability.checkpoint_files = Files()
    for _ in range(100):
        put(log, make_batch(producer_id=-1))
        await log.durability.sync()
        assert log.durability.recovery_point <= log.durability.synced_offset
    assert saved == sorted(saved)
    assert log.durability.recovery_point > 80
    disk.crash()
    again = open_log(disk, recovery_point=saved[-1])
    assert again.end_offset == 100


async def test_unsynced_bytes_are_synced_in_the_background(disk: MemoryDisk) -> None:
    log = open_log(disk, checkpoint_bytes=1000)
    for _ in range(50):
        put(log, make_batch())
        await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.sleep(0)
    assert log.durability.recovery_point > 0, (
        "no caller awaits a sync with durability = os, but recovery must not scan all"
    )
    log.close()


# Time


def test_first_record_at_or_after_a_timestamp(disk: MemoryDisk) -> None:
    log = open_log(disk, LogConfig(segment_bytes=400, index_interval_bytes=50))
    stamps = [10, 20, 15, 30, 25, 40, 40, 5, 60, 55, 70, 70, 80, 1, 90]
    for at in range(0, len(stamps), 3):
        put(log, make_batch(3, timestamps=stamps[at : at + 3]))
    assert len(log.segments) > 1
    for up_to in range(0, 16, 3):
        for wanted in range(100):
            expected = next(((at, stamp) for at, stamp in enumerate(stamps[:up_to]) if stamp >= wanted), None)
            assert log.offset_for_timestamp(wanted, up_to=up_to) == expected, (wanted, up_to)


def test_record_with_the_largest_timestamp(disk: MemoryDisk) -> None:
    log = open_log(disk, LogConfig(segment_bytes=400, index_interval_bytes=50))
    assert log.max_timestamp(up_to=0) is None
    stamps = [10, 20, 15, 30, 90, 40, 40, 5, 60, 55, 70, 70, 80, 1, 90]
    for at in range(0, len(stamps), 3):
        put(log, make_batch(3, timestamps=stamps[at : at + 3]))
    for start in (0, 2, 5, 9):
        log.delete_records_before(start)
        for up_to in range(start - start % 3 + 3, 16, 3):
            stamp, negative = max((stamp, -at) for at, stamp in enumerate(stamps[:up_to]) if at >= start)
            assert log.max_timestamp(up_to=up_to) == (-negative, stamp), (start, up_to)


# Cutting


@pytest.mark.proves("state-after-truncation")
def test_truncation_removes_data_epochs_and_producer_state(disk: MemoryDisk) -> None:
    log = open_log(disk, SMALL)
    for n in range(30):
        put(log, make_batch(producer_id=9, sequence=n), leader_epoch=n // 10)
    log.truncate_to(14)
    assert log.end_offset == 14
    assert log.epochs.entries == [(0, 0), (1, 10)]
    assert log.producers.all()[0].last_sequence == 13
    assert put(log, make_batch(producer_id=9, sequence=14)).base_offset == 14
    assert [offset for offset, _ in read_all(log)] == list(range(15))


def test_truncation_within_a_batch_removes_the_whole_batch(disk: MemoryDisk) -> None:
    log = open_log(disk)
    fill(log, 3)
    log.truncate_to(3)
    assert log.end_offset == 2
    assert len(read_all(log)) == 2


def test_truncation_survives_a_crash(disk: MemoryDisk) -> None:
    log = open_log(disk, SMALL)
    fill(log, 30)
    asyncio.run(log.durability.sync())
    log.truncate_to(6)
    disk.crash()
    assert open_log(disk, SMALL).end_offset == 6


def test_truncation_of_everything(disk: MemoryDisk) -> None:
    log = open_log(disk, SMALL)
    fill(log, 30)
    log.truncate_to(0)
    assert (log.start_offset, log.end_offset, len(log.segments)) == (0, 0, 1)
    fill(log, 30)
    assert len(read_all(log)) == 60


def test_deleting_records_raises_the_start_offset_and_deletes_segments(disk: MemoryDisk) -> None:
    log = open_log(disk, SMALL)
    fill(log, 40)
    bases = [segment.base_offset for segment in log.segments]
    log.delete_records_before(bases[2] + 1)
    assert log.start_offset == bases[2] + 1
    assert [segment.base_offset for segment in log.segments] == bases[2:]
    assert read_all(log)[0][0] == bases[2] + 1
    names = disk.listdir(DIRECTORY)
    assert not [name for name in names if name.startswith(f"{bases[0]:020d}.")]
    log.delete_records_before(3)
    assert log.start_offset == bases[2] + 1, "the start offset never goes back"


def test_deleting_all_records_leaves_an_empty_log_that_can_be_appended(disk: MemoryDisk) -> None:
    log = open_log(disk, SMALL)
    fill(log, 5)
    log.delete_records_before(10)
    assert read_all(log) == []
    assert log.max_timestamp(up_to=10) is None
    assert put(log, make_batch()).base_offset == 10


def test_files_contain_exactly_the_batches_of_the_log(disk: MemoryDisk) -> None:
    log = open_log(disk, SMALL)
    fill(log, 40)
    stored = b"".join(disk.read_bytes(segment.path(".log")) for segment in log.segments)
    assert [header.base_offset for header, _ in iterate(stored)] == list(range(0, 80, 2))


def test_files_have_kafkas_names(disk: MemoryDisk) -> None:
    log = open_log(disk, SMALL)
    fill(log, 10)
    log.close()
    names = disk.listdir(DIRECTORY)
    second = f"{log.segments[1].base_offset:020d}"
    for name in ("0" * 20 + ".log", "0" * 20 + ".index", "0" * 20 + ".timeindex", second + ".snapshot"):
        assert name in names
    assert "leader-epoch-checkpoint" in names
    assert disk.read_bytes(f"{DIRECTORY}/leader-epoch-checkpoint") == b"0\n1\n0 0\n"
