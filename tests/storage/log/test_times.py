"""Look-ups by time against a naive model: the first record at or after a time, and the record with the newest one."""

from random import Random

import msgspec
import pytest
from semel_protocol.batch import iterate, read_header
from semel_protocol.records import Record, build_batch, decode_batch
from semel_storage.compaction.compaction import compact, dirtiness
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.log.log import Log
from semel_storage.segments.log_config import LogConfig
from semel_storage.segments.segment import INDEX, TIME_INDEX
from storage.batches import DIRECTORY, NOW_MS, make_batch, open_log, put
from storage.replication import replicate
from support.logs import DataDirectory, no_pause

CONFIG = LogConfig(segment_bytes=1200, index_interval_bytes=100)
COMPACTED = msgspec.structs.replace(
    CONFIG, cleanup_policy=("compact",), delete_retention_ms=0, min_cleanable_dirty_ratio=0.0
)
UNDATED = -1


def stored(log: Log) -> list[tuple[int, int]]:
    """(offset, timestamp) of each stored record from the log start on, without markers. Below -1 counts as -1."""
    data = b"".join(log.disk.read_bytes(segment.path(".log")) for segment in log.segments)
    batches = [(header, view) for header, view in iterate(data) if not header.is_control]
    found = [(record.offset, record.timestamp) for header, view in batches for record in decode_batch(view, header)]
    return [(offset, max(timestamp, UNDATED)) for offset, timestamp in found if offset >= log.start_offset]


def boundaries(log: Log) -> list[int]:
    data = b"".join(log.disk.read_bytes(segment.path(".log")) for segment in log.segments)
    return [header.next_offset for header, _ in iterate(data) if header.next_offset > log.start_offset]


def check(log: Log, random: Random, note: object = "") -> None:
    """Compare both look-ups with the model, up to some batch boundaries (the end offset, an LSO, a high watermark)."""
    records, ends = stored(log), boundaries(log)
    for up_to in {log.end_offset, log.start_offset, *random.sample(ends, min(3, len(ends)))}:
        visible = [(offset, timestamp) for offset, timestamp in records if offset < up_to]
        newest = max(visible, key=lambda pair: (pair[1], -pair[0]), default=None)
        assert log.max_timestamp(up_to=up_to) == newest, (note, up_to)
        for wanted in {0, NOW_MS, *(t + d for _, t in random.sample(records, min(3, len(records))) for d in (0, 1))}:
            first = next(((offset, t) for offset, t in visible if t >= max(wanted, 0)), None)
            assert log.offset_for_timestamp(max(wanted, 0), up_to=up_to) == first, (note, up_to, wanted)


def random_stamps(random: Random, now_ms: int) -> list[int]:
    kind = random.randrange(6)
    if kind == 0:
        return [UNDATED] * random.randint(1, 3)
    if kind == 1:
        return [random.choice((UNDATED, -2, -5, now_ms)) for _ in range(random.randint(1, 3))]
    if kind == 2:
        return [now_ms] * random.randint(1, 4)
    if kind == 3:
        return [now_ms - random.randrange(5000) for _ in range(random.randint(1, 4))]
    return [now_ms + random.randrange(-3, 4) for _ in range(random.randint(1, 4))]


class RandomLogWriter:
    """Random appends to one log: plain, transactional with markers, in all codecs."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now_ms = NOW_MS
        self.open: dict[int, bool] = {}

    def write(self, log: Log) -> None:
        random = self.random
        self.now_ms += random.choice((0, 0, 1, 50))
        stamps = random_stamps(random, self.now_ms)
        producer_id = random.choice((-1, -1, 7, 8))
        state = log.producers.get(producer_id)
        sequence = 0 if state is None else state.last_sequence + 1
        batch = build_batch(
            [Record(0, stamp, b"k%d" % random.randrange(4), b"v") for stamp in stamps],
            codec=random.randrange(5),
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            is_transactional=producer_id >= 0,
        )
        log.append(batch, header=read_header(batch), leader_epoch=0, now_ms=self.now_ms)

    def mark(self, log: Log) -> None:
        for producer_id in (7, 8):
            state = log.producers.get(producer_id)
            if state is not None and state.txn_first_offset >= 0:
                self.now_ms += self.random.choice((0, 1))
                log.append_marker(producer_id, 0, self.random.random() < 0.5, 0, leader_epoch=0, now_ms=self.now_ms)


@pytest.mark.parametrize("seed", range(60))
async def test_look_ups_agree_with_a_naive_model(seed: int) -> None:
    """Over segments, ties, markers, undated records, deletion, truncation, restarts, and losses of power."""
    random = Random(seed)
    log_append = random.random() < 0.2
    config = CONFIG if not log_append else msgspec.structs.replace(CONFIG, message_timestamp_type="LogAppendTime")
    data, writer = DataDirectory(config), RandomLogWriter(random)
    for step in range(60):
        log, chance = data.log, random.random()
        if chance < 0.6:
            writer.write(log)
        elif chance < 0.75:
            writer.mark(log)
        elif chance < 0.8:
            log.roll()
        elif chance < 0.85:
            log.delete_records_before(random.randint(log.start_offset, log.end_offset))
        elif chance < 0.9:
            log.truncate_to(random.randint(log.start_offset, log.end_offset))
        elif chance < 0.93:
            await log.durability.checkpoint()
        elif chance < 0.96:
            await data.logs.idle()
            data.restart()
        elif chance < 0.98:
            await log.durability.sync()
            await data.logs.idle()  # the tasks of a killed process end with it
            data.kill_and_open()
        else:
            await log.durability.checkpoint()
            data.logs.save_checkpoints()
            await data.logs.idle()
            data.disk.crash(random)
            data.open()
        check(data.log, random, (seed, step))


@pytest.mark.parametrize("seed", range(20))
async def test_look_ups_after_compaction_and_on_a_follower_agree_with_the_model(seed: int) -> None:
    """Compaction leaves empty batches, whose timestamp is of no record."""
    random = Random(seed)
    data, writer = DataDirectory(COMPACTED), RandomLogWriter(random)
    for step in range(4):
        for _ in range(random.randint(5, 25)):
            writer.write(data.log)
            if random.random() < 0.4:
                writer.mark(data.log)
        writer.mark(data.log)
        data.log.roll()
        await data.log.durability.checkpoint()
        dirty = dirtiness(data.log, 0, last_stable_offset=data.log.end_offset, now_ms=writer.now_ms)
        for later_ms in (0, 1):
            await compact(
                data.log,
                dirty,
                now_ms=writer.now_ms + later_ms,
                keys_max=1000,
                held_by_all=data.log.end_offset,
                pause=no_pause,
            )
        check(data.log, random, (seed, step))
        follower = open_log(MemoryDisk(), CONFIG)
        replicate(data.log, follower)
        check(follower, random, (seed, step, "follower"))
        data.restart()
        check(data.log, random, (seed, step, "restarted"))


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_log_that_ends_with_a_marker_has_a_record_with_the_newest_timestamp(is_committed: bool) -> None:
    """Also if the marker is alone in its segment. Kafka 4.3.1 answers with the offset of the marker, and no record."""
    log = open_log(MemoryDisk())
    put(log, make_batch(2, producer_id=7, is_transactional=True))
    log.append_marker(7, 0, is_committed, 0, leader_epoch=0, now_ms=NOW_MS + 5)
    assert log.max_timestamp(up_to=3) == (0, NOW_MS)
    assert log.offset_for_timestamp(NOW_MS + 1, up_to=3) is None
    put(log, make_batch(2, timestamps=[NOW_MS + 3, NOW_MS + 4]))
    log.roll()
    for producer_id in (7, 8):
        log.append_marker(producer_id, 0, is_committed, 0, leader_epoch=0, now_ms=NOW_MS + 9)
    log.roll()
    log.append_marker(9, 0, is_committed, 0, leader_epoch=0, now_ms=NOW_MS + 9)
    assert log.max_timestamp(up_to=log.end_offset) == (4, NOW_MS + 4)
    put(log, make_batch(1, timestamps=[NOW_MS + 4]))
    assert log.max_timestamp(up_to=log.end_offset) == (4, NOW_MS + 4), "of records at one time, the first"


def test_the_first_undated_record_is_found_if_there_are_no_others() -> None:
    log = open_log(MemoryDisk())
    for _ in range(3):
        put(log, make_batch(2, timestamps=[UNDATED, UNDATED]))
        log.roll()
    assert log.max_timestamp(up_to=6) == (0, UNDATED)
    log.delete_records_before(3)
    assert log.max_timestamp(up_to=6) == (3, UNDATED)
    assert log.max_timestamp(up_to=3) is None
    put(log, make_batch(2, timestamps=[UNDATED, 5]))
    assert log.max_timestamp(up_to=8) == (7, 5)


@pytest.mark.parametrize("kept", [0, 1])
def test_a_lost_tail_of_the_time_index_hides_no_record(kept: int) -> None:
    """The indexes of the active segment are written without a sync: a power loss takes some of their entries."""
    disk = MemoryDisk()
    log = open_log(disk, CONFIG)
    for n in range(8):
        put(log, make_batch(timestamps=[NOW_MS + n], value=b"x" * 40))
    log.active.sync_indexes()
    assert log.active.time_index.count > 2
    name = f"{DIRECTORY}/{0:020d}"
    disk.overwrite(name + TIME_INDEX, disk.read_bytes(name + TIME_INDEX)[: 12 * kept])
    assert disk.size(name + INDEX) > 8
    again = open_log(disk, CONFIG, recovery_point=8)
    assert again.max_timestamp(up_to=8) == (7, NOW_MS + 7)
    assert again.offset_for_timestamp(NOW_MS + 6, up_to=8) == (6, NOW_MS + 6)


def test_a_restart_does_not_read_sealed_segments_without_dated_records() -> None:
    """Their time index is empty, which is no damage."""
    disk = MemoryDisk()
    events: list[str] = []
    log = open_log(disk, CONFIG)
    for _ in range(3):
        put(log, make_batch(timestamps=[UNDATED]))
        log.roll()
    log.close()
    again = open_log(disk, CONFIG, recovery_point=3, clean=True, event=lambda event, **_: events.append(event))
    assert events == []
    assert [segment.max_timestamp for segment in again.segments] == [UNDATED] * 4
