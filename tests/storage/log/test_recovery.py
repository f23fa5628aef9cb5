"""Recovery after a crash: torn tails, missing or wrong indexes and snapshots, and damage."""

import asyncio
import random

import pytest
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.log.log import CHECKPOINT_BYTES, Log
from semel_storage.log.recovery import CorruptLog
from semel_storage.segments.log_config import LogConfig
from storage.batches import DIRECTORY, NOW_MS, make_batch, open_log, put, read_all

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=100)
FIRST = f"{DIRECTORY}/{0:020d}"


class Events:
    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, object]]] = []

    def __call__(self, event: str, **facts: object) -> None:
        self.seen.append((event, facts))

    def names(self) -> list[str]:
        return [name for name, _ in self.seen]


def log_of(disk: MemoryDisk, batches: int, config: LogConfig | None = None) -> Log:
    """A log of idempotent batches with one record each; each value contains its offset."""
    log = open_log(disk, config)
    for n in range(batches):
        put(log, make_batch(producer_id=5, sequence=n, value=b"value-%d" % n))
    return log


def expect(log: Log, count: int) -> None:
    """Check that the log has exactly the first `count` batches and the state derived from them."""
    assert read_all(log) == [(n, b"value-%d" % n) for n in range(count)]
    assert log.end_offset == log.durability.synced_offset == count
    if count:
        (producer,) = log.producers.all()
        assert producer.last_sequence == count - 1
        assert [place.base_offset for place in producer.batches] == list(range(max(0, count - 5), count))
        assert log.max_timestamp(up_to=count) == (0, NOW_MS)
    again = put(log, make_batch(producer_id=5, sequence=count, value=b"value-%d" % count))
    assert (again.base_offset, again.duplicate) == (count, False)


# The torn tail


def sizes_of(disk: MemoryDisk) -> tuple[bytes, int]:
    """The file of a log with four batches, and where the last one starts."""
    log = log_of(disk, 4)
    data = disk.read_bytes(FIRST + ".log")
    return data, log.segments[0].position_of(3)


def reopened(data: bytes, recovery_point: int | None = None) -> tuple[Log, Events]:
    disk = MemoryDisk()
    disk.mkdir(DIRECTORY)
    disk.open(FIRST + ".log")
    disk.overwrite(FIRST + ".log", data)
    events = Events()
    return open_log(disk, recovery_point=recovery_point, event=events), events


@pytest.mark.proves("torn-write")
def test_a_torn_tail_is_truncated_at_every_byte(disk: MemoryDisk) -> None:
    data, last = sizes_of(disk)
    for cut in range(last, len(data)):
        log, events = reopened(data[:cut])
        expect(log, 3)
        assert events.names() == (["log_tail_cut"] if cut > last else [])
        if cut > last:
            assert events.seen[0][1]["bytes_cut"] == cut - last
            assert events.seen[0][1]["file"] == FIRST + ".log"


@pytest.mark.parametrize("change", [0x00, 0x01, 0x80, 0xFF], ids=hex)
def test_every_wrong_byte_of_the_last_batch_truncates_it(disk: MemoryDisk, change: int) -> None:
    data, last = sizes_of(disk)
    outside_of_the_crc = [*range(last, last + 8), *range(last + 12, last + 16)]
    for at in range(last, len(data)):
        wrong = bytearray(data)
        wrong[at] = wrong[at] ^ change if change else 0
        if bytes(wrong) == data or at in outside_of_the_crc:
            continue
        log, _ = reopened(bytes(wrong))
        expect(log, 3)


def test_a_last_batch_with_a_lower_offset_is_truncated(disk: MemoryDisk) -> None:
    data, last = sizes_of(disk)
    log, _ = reopened(data[:last] + (2).to_bytes(8, "big") + data[last + 8 :])
    expect(log, 3)


@pytest.mark.proves("torn-write")
def test_zeros_from_any_byte_of_the_last_batch_on_truncate_it(disk: MemoryDisk) -> None:
    data, last = sizes_of(disk)
    for at in range(last, len(data)):
        if any(data[at:]):
            log, _ = reopened(data[:at] + bytes(len(data) - at))
            expect(log, 3)


@pytest.mark.parametrize("length", [1, 11, 12, 60, 61, 512, 5000])
def test_a_zero_filled_tail_is_truncated(disk: MemoryDisk, length: int) -> None:
    data, _ = sizes_of(disk)
    log, events = reopened(data + bytes(length))
    expect(log, 4)
    assert events.seen[0][1]["bytes_cut"] == length


@pytest.mark.parametrize("length", [1, 17, 60, 61, 512, 5000])
def test_a_garbage_tail_is_truncated(disk: MemoryDisk, length: int) -> None:
    data, _ = sizes_of(disk)
    log, _ = reopened(data + random.Random(length).randbytes(length))
    expect(log, 4)


@pytest.mark.proves("stale-sectors-in-a-tail")
@pytest.mark.parametrize(("offset", "garbage_bytes"), [(900, 18), (900, 60), (4, 61), (4, 300)])
def test_a_tail_of_stale_sectors_is_truncated_despite_a_valid_batch_in_it(
    disk: MemoryDisk, offset: int, garbage_bytes: int
) -> None:
    """A power loss may leave stale bytes of another log; a batch in them could not follow the lost batch."""
    data, _ = sizes_of(disk)
    stale = bytearray(make_batch(producer_id=9, sequence=3, value=b"of another log"))
    stale[:8] = offset.to_bytes(8, "big")
    log, _ = reopened(data + b"\x07" * garbage_bytes + stale)
    expect(log, 4)


def test_file_of_nothing_but_garbage_is_an_empty_log() -> None:
    log, _ = reopened(b"\x07" * 1000)
    expect(log, 0)


def test_a_torn_batch_larger_than_the_scan_window_is_truncated(disk: MemoryDisk) -> None:
    log = log_of(disk, 2)
    put(log, make_batch(value=b"x" * (5 << 20)))
    data = disk.read_bytes(FIRST + ".log")
    expect(reopened(data[:-1])[0], 2)
    whole, _ = reopened(data)
    assert whole.end_offset == 3


# Indexes and snapshots


def crash_and_open(disk: MemoryDisk, recovery_point: int | None, **options: object) -> Log:
    disk.kill()
    return open_log(disk, SMALL, recovery_point=recovery_point, **options)


@pytest.mark.proves("stale-index")
@pytest.mark.parametrize("recovery_point", [None, 0, 13, 30, 40])
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint"])
@pytest.mark.parametrize("damage", ["missing", "empty", "short", "zeros", "garbage", "longer"])
def test_derived_file_that_is_damaged_is_rebuilt(
    disk: MemoryDisk, suffix: str, damage: str, recovery_point: int | None
) -> None:
    log = log_of(disk, 40, SMALL)
    log.durability.write_snapshot()
    for name in disk.listdir(DIRECTORY):
        path = f"{DIRECTORY}/{name}"
        if not name.endswith(suffix):
            continue
        data = disk.read_bytes(path)
        if damage == "missing" or suffix.startswith("leader"):
            disk.remove(path)
        else:
            garbage = random.Random(name).randbytes(len(data))
            disk.overwrite(
                path,
                {
                    "empty": b"",
                    "short": data[: len(data) // 2],
                    "zeros": bytes(len(data)),
                    "garbage": garbage,
                    "longer": data + garbage,
                }[damage],
            )
    log = crash_and_open(disk, recovery_point)
    for up_to in (7, 23, 40):
        assert log.max_timestamp(up_to=up_to) == (0, NOW_MS)
        assert log.offset_for_timestamp(NOW_MS, up_to=up_to) == (0, NOW_MS)
    expect(log, 40)


@pytest.mark.proves("stale-index")
def test_snapshot_newer_than_the_log_is_removed(disk: MemoryDisk) -> None:
    log = log_of(disk, 10)
    log.durability.write_snapshot()
    data = disk.read_bytes(FIRST + ".log")
    disk.overwrite(FIRST + ".log", data[: log.segments[0].position_of(7)])
    disk.kill()
    expect(open_log(disk, recovery_point=3), 7)
    assert f"{10:020d}.snapshot" not in disk.listdir(DIRECTORY)


@pytest.mark.proves("stale-index")
def test_an_index_newer_than_the_log_is_truncated(disk: MemoryDisk) -> None:
    log = log_of(disk, 40, SMALL)
    log.durability.write_snapshot()
    segment = log.active
    position = segment.position_of(segment.base_offset + 2)
    path = segment.path(".log")
    disk.overwrite(path, disk.read_bytes(path)[:position])
    expect(crash_and_open(disk, segment.base_offset), segment.base_offset + 2)


async def test_recovery_reads_only_bytes_after_the_checkpoint(disk: MemoryDisk) -> None:
    log = log_of(disk, 500)
    await log.durability.checkpoint()
    for n in range(500, 510):
        put(log, make_batch(producer_id=5, sequence=n, value=b"value-%d" % n))
    disk.kill()
    log = open_log(disk, recovery_point=log.durability.recovery_point)
    assert log.durability.recovery_point == 500
    assert log.producers.all()[0].last_sequence == 509
    replayed_bytes = CHECKPOINT_BYTES - log.durability.snapshot_due_bytes
    assert replayed_bytes < len(make_batch(value=b"value-1000")) * 70
    expect(log, 510)


@pytest.mark.proves("rename-without-sync")
def test_missing_segment_name_after_power_loss_loses_only_what_was_not_synced(disk: MemoryDisk) -> None:
    """The disk loses renames and new files without a directory sync; the log relies on neither."""
    log = log_of(disk, 40, SMALL)
    asyncio.run(log.durability.sync())
    log.close()
    disk.crash()
    expect(open_log(disk, SMALL, recovery_point=40), 40)


def test_leftovers_of_deletions_and_atomic_writes_are_removed(disk: MemoryDisk) -> None:
    log_of(disk, 3)
    for name in ("7.log.deleted", "leader-epoch-checkpoint.tmp", f"{99:020d}.index"):
        disk.open(f"{DIRECTORY}/{name}")
    disk.kill()
    expect(open_log(disk), 3)
    assert not [name for name in disk.listdir(DIRECTORY) if name.endswith((".deleted", ".tmp")) or "99" in name]


def test_recovery_syncs_bytes_that_a_killed_process_left_in_the_page_cache(disk: MemoryDisk) -> None:
    """Readers see these records from now on, so a power loss must not remove them."""
    log_of(disk, 40, SMALL)
    disk.kill()
    assert open_log(disk, SMALL, recovery_point=0).durability.synced_offset == 40
    disk.crash()
    expect(open_log(disk, SMALL, recovery_point=0), 40)


# Damage


def damage(disk: MemoryDisk, log: Log, offset: int, *, at: int = 70) -> tuple[str, int]:
    """Flip one bit of the batch at `offset`."""
    segment = next(s for s in reversed(log.segments) if s.base_offset <= offset)
    position = segment.position_of(offset)
    data = bytearray(disk.read_bytes(segment.path(".log")))
    data[position + at] ^= 0x10
    disk.kill()
    disk.overwrite(segment.path(".log"), data)
    return segment.path(".log"), position


@pytest.mark.proves("torn-write")
@pytest.mark.parametrize("at", [16, 17, 21, 40, 65])
def test_damage_followed_by_valid_batches_is_refused(disk: MemoryDisk, at: int) -> None:
    log = log_of(disk, 20)
    path, position = damage(disk, log, 11, at=at)
    with pytest.raises(CorruptLog) as refused:
        open_log(disk)
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert refused.value.path == path
    assert refused.value.position == position
    assert path in refused.value.message
    assert "11" in refused.value.message


def test_a_damaged_length_followed_by_valid_batches_is_refused(disk: MemoryDisk) -> None:
    for at in (8, 9, 10, 11):
        disk = MemoryDisk()
        damage(disk, log_of(disk, 20), 11, at=at)
        with pytest.raises(CorruptLog):
            open_log(disk)


def test_damage_before_a_later_segment_is_refused(disk: MemoryDisk) -> None:
    log = log_of(disk, 40, SMALL)
    damage(disk, log, log.segments[2].base_offset - 1)
    with pytest.raises(CorruptLog):
        open_log(disk, SMALL)


def test_a_damaged_last_batch_below_the_recovery_point_is_refused(disk: MemoryDisk) -> None:
    log = log_of(disk, 20)
    log.close()
    data = disk.read_bytes(FIRST + ".log")
    disk.overwrite(FIRST + ".log", data[:-5])
    disk.kill()
    with pytest.raises(CorruptLog, match="offset 19, below the recovery point 20"):
        open_log(disk, recovery_point=20)


def test_a_log_that_lost_durable_records_is_refused(disk: MemoryDisk) -> None:
    log_of(disk, 20).close()
    disk.overwrite(FIRST + ".log", b"")
    disk.kill()
    with pytest.raises(CorruptLog, match="durable up to 20"):
        open_log(disk, recovery_point=20)


def test_data_loss_can_be_allowed_for_one_start(disk: MemoryDisk) -> None:
    log = log_of(disk, 20)
    damage(disk, log, 11)
    events = Events()
    expect(open_log(disk, allow_data_loss=True, event=events), 11)
    assert events.names() == ["log_tail_cut"]


def test_a_lost_sector_in_unsynced_batches_is_truncated(disk: MemoryDisk) -> None:
    """A power loss may keep later sectors and lose earlier ones; nothing after the last sync was acknowledged."""
    log = open_log(disk)
    for n in range(20):
        put(log, make_batch(producer_id=5, sequence=n, value=b"x" * 700))
    data = bytearray(disk.read_bytes(FIRST + ".log"))
    position = log.segments[0].position_of(7)
    start = (position // 512 + 1) * 512
    data[start : start + 512] = bytes(512)
    disk.kill()
    disk.overwrite(FIRST + ".log", data)
    log = open_log(disk)
    assert log.end_offset == 7
    assert log.producers.all()[0].last_sequence == 6


@pytest.mark.proves("zeros-in-a-lost-sector")
@pytest.mark.parametrize("before", range(9))
def test_a_lost_sector_whose_last_bytes_are_zeros_of_a_valid_batch_is_truncated(disk: MemoryDisk, before: int) -> None:
    """The offset of a batch begins with zeros. If these alone are in the lost sector, the batch is still valid."""
    log = open_log(disk)
    put(log, make_batch(value=b"x" * 200))
    filler = 1024 - before - log.active.size - len(make_batch(value=b"x" * 500))
    put(log, make_batch(value=b"x" * (500 + filler)))
    put(log, make_batch(value=b"x" * 1000))
    put(log, make_batch())
    assert log.segments[0].position_of(2) == 1024 - before
    data = bytearray(disk.read_bytes(FIRST + ".log"))
    data[512:1024] = bytes(512)
    disk.kill()
    disk.overwrite(FIRST + ".log", data)
    assert open_log(disk).end_offset == 1


def test_a_segment_that_ends_before_the_next_one_is_a_lost_write(disk: MemoryDisk) -> None:
    log = log_of(disk, 40, SMALL)
    second = log.segments[1]
    path = second.path(".log")
    position = second.position_of(second.base_offset + 1)
    disk.kill()
    disk.overwrite(path, disk.read_bytes(path)[:position])
    events = Events()
    expect(open_log(disk, SMALL, recovery_point=0, event=events), second.base_offset + 1)
    assert events.names() == ["log_tail_cut"]


def test_a_gap_between_segments_without_a_recovery_point_is_accepted(disk: MemoryDisk) -> None:
    """A log without a recovery point may be a compacted copy; missing offsets do not mean a loss."""
    log = log_of(disk, 40, SMALL)
    second = log.segments[1]
    path = second.path(".log")
    position = second.position_of(second.base_offset + 1)
    disk.kill()
    disk.overwrite(path, disk.read_bytes(path)[:position])
    assert open_log(disk, SMALL).end_offset == 40


def test_a_read_of_a_damaged_segment_names_file_and_position(disk: MemoryDisk) -> None:
    log = log_of(disk, 20)
    damage(disk, log, 11, at=8)
    disk.boots -= 1  # the process lives on over the damaged file
    log.segments.forget()
    with pytest.raises(KafkaError, match=FIRST):
        log.read(12, up_to=20, bytes_max=100)


def test_a_cleanly_closed_log_is_opened_without_a_scan(disk: MemoryDisk) -> None:
    log = log_of(disk, 20)
    log.close()
    disk.kill()
    expect(open_log(disk, recovery_point=None, clean=True), 20)
