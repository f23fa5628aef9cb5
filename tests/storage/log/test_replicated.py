"""The log of a follower: the leader's bytes, truncation by epochs, and restart at the leader's new start offset."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest
from semel_protocol.batch import CorruptBatch, read_header, stamp
from semel_protocol.control import ControlType, EndTxnMarker, build_marker
from semel_storage.checkpoints import CLEANER_OFFSET
from semel_storage.compaction.compaction import compact, dirtiness
from semel_storage.disk.memory_disk import MachineStopped, MemoryDisk
from semel_storage.log.log import Log
from semel_storage.log.replicated import checked_headers, truncation_offset
from semel_storage.log.snapshot import decode
from semel_storage.log_directory import LogDirectory
from semel_storage.producers import producers
from semel_storage.producers.producers import BatchPlace, ProducerState
from semel_storage.segments.log_config import LogConfig
from storage.batches import DIRECTORY, NOW_MS, make_batch, open_log, put, read_all
from storage.replication import content, replicate

SMALL = LogConfig(segment_bytes=900, index_interval_bytes=100)
COMPACTED = LogConfig(cleanup_policy=("compact",))
PRODUCER = 7


def at_offset(batch: bytes, offset: int, epoch: int = 0) -> bytes:
    stamped = bytearray(batch)
    stamp(stamped, offset, epoch)
    return bytes(stamped)


def busy_leader(disk: MemoryDisk, config: LogConfig = SMALL) -> Log:
    """Plain and idempotent batches, transactions that commit, abort and stay open, over three epochs."""
    log = open_log(disk, config)
    for n in range(30):
        epoch = n // 12
        put(log, make_batch(n % 3 + 1, value=b"plain %d" % n), leader_epoch=epoch)
        put(log, make_batch(2, producer_id=1, sequence=2 * n), leader_epoch=epoch)
        if n % 5 < 4:
            put(log, make_batch(producer_id=2, sequence=n - n // 5, is_transactional=True), leader_epoch=epoch)
        else:
            log.append_marker(2, 0, n % 2 == 0, 3, leader_epoch=epoch, now_ms=NOW_MS)
        if n == 22:
            put(log, make_batch(producer_id=3, is_transactional=True), leader_epoch=epoch)
    return log


@pytest.mark.proves("follower-differs")
@pytest.mark.parametrize("bytes_max", [1, 400, 2500, 1 << 20])
def test_followers_files_are_those_of_the_leader(bytes_max: int) -> None:
    disks = MemoryDisk(), MemoryDisk()
    leader, follower = busy_leader(disks[0]), open_log(disks[1], SMALL)
    replicate(leader, follower, bytes_max=bytes_max)
    assert content(follower) == content(leader)
    assert len(leader.segments) > 5
    assert leader.aborted_transactions(0, leader.end_offset)
    leader.close()
    follower.close()
    names = disks[0].listdir(DIRECTORY)
    assert disks[1].listdir(DIRECTORY) == names
    for name in names:
        assert disks[1].read_bytes(f"{DIRECTORY}/{name}") == disks[0].read_bytes(f"{DIRECTORY}/{name}"), name


def test_replicated_batches_are_written_by_one_call() -> None:
    leader, disk = busy_leader(MemoryDisk(), LogConfig()), MemoryDisk()
    follower = open_log(disk)
    data = leader.read(0, up_to=leader.end_offset, bytes_max=1 << 20)
    aborted = len(leader.aborted_transactions(0, leader.end_offset))
    disk.fuse = 1 + aborted  # their index has a write for each
    assert aborted < len(checked_headers(data)) // 20
    follower.append_replicated(data, now_ms=NOW_MS)
    assert content(follower) == content(leader)


@pytest.mark.proves("follower-differs")
@pytest.mark.parametrize("end", ["close", "kill", "crash"])
def test_follower_is_the_same_after_a_restart(end: str) -> None:
    leader, disk = busy_leader(MemoryDisk()), MemoryDisk()
    follower = open_log(disk, SMALL)
    replicate(leader, follower, bytes_max=700)
    asyncio.run(follower.durability.sync())
    if end == "close":
        follower.close()
    getattr(disk, end if end != "close" else "kill")()
    again = open_log(disk, SMALL, recovery_point=0)
    assert content(again) == content(leader)


@pytest.mark.proves("follower-differs")
def test_a_truncated_follower_becomes_equal_to_its_leader() -> None:
    """For every truncation offset, including producers, open transactions and the transaction index."""
    leader = busy_leader(MemoryDisk())
    for offset in range(0, leader.end_offset, 3):
        follower = open_log(MemoryDisk(), SMALL)
        replicate(leader, follower, bytes_max=2000)
        follower.truncate_to(offset)
        assert follower.end_offset <= offset
        assert not [a for a in follower.aborted_transactions(0, 1000) if a.last_offset >= follower.end_offset]
        assert all(state.last_offset < follower.end_offset for state in follower.producers.all())
        replicate(leader, follower, bytes_max=2000)
        assert content(follower) == content(leader)


# Cutting by epochs


@pytest.mark.proves("truncation-at-the-high-watermark")
def test_two_fast_failovers_with_unequal_tails_leave_the_same_log() -> None:
    """KIP-101 and KIP-279: truncation to the high watermark would be wrong; leader epochs give the right offset."""
    a, b = open_log(MemoryDisk()), open_log(MemoryDisk())
    for n in range(10):
        put(a, make_batch(value=b"both %d" % n), leader_epoch=0)
    replicate(a, b)
    for n in range(5):
        put(a, make_batch(value=b"only a %d" % n), leader_epoch=0)  # a leads, b hears no more
    for n in range(3):
        put(b, make_batch(value=b"only b %d" % n), leader_epoch=1)  # b leads, a hears nothing
    put(a, make_batch(value=b"a again"), leader_epoch=2)  # a leads again, before b has told it anything
    replicate(a, b)
    assert content(b) == content(a)
    values = [value for _, value in read_all(b)]
    assert values == [b"both %d" % n for n in range(10)] + [b"only a %d" % n for n in range(5)] + [b"a again"]


def test_leaders_without_records_leave_no_epoch_in_the_history() -> None:
    a, b = open_log(MemoryDisk()), open_log(MemoryDisk())
    put(a, make_batch(), leader_epoch=0)
    replicate(a, b)
    b.epochs.assign(1, b.end_offset)  # b led, and wrote nothing
    a.epochs.assign(2, a.end_offset)
    replicate(a, b)
    assert b.epochs.entries == [(0, 0)]
    put(a, make_batch(), leader_epoch=2)
    replicate(a, b)
    assert content(b) == content(a)


@pytest.mark.proves("truncation-at-the-high-watermark")
def test_a_follower_with_older_epochs_truncates_records_that_the_leader_lacks() -> None:
    a, b = open_log(MemoryDisk()), open_log(MemoryDisk())
    for epoch in (3, 5, 9):
        put(a, make_batch(value=b"a"), leader_epoch=epoch)
    for epoch in (1, 4, 6, 8):
        put(b, make_batch(value=b"b"), leader_epoch=epoch)
    replicate(a, b)
    assert content(b) == content(a)


@pytest.mark.parametrize(
    ("own", "leader", "cut"),
    [
        ((5, 80), (5, 70), 70),
        ((5, 80), (5, 120), 80),
        ((4, 60), (5, 90), 60),  # the leader's epoch 5 is unknown here: back to where the one before it ended
        ((-1, -1), (5, 90), 90),
        ((-1, -1), (5, 200), 100),
    ],
)
def test_truncation_offset(own: tuple[int, int], leader: tuple[int, int], cut: int) -> None:
    assert truncation_offset(*own, leader_epoch=leader[0], leader_end=leader[1], end_offset=100) == cut


# Batches that a follower refuses


def test_nothing_of_damaged_batches_is_appended() -> None:
    first, second = at_offset(make_batch(2), 0), at_offset(make_batch(2), 2)
    marker = bytearray(
        build_marker(EndTxnMarker(ControlType.ABORT, 1), producer_id=1, producer_epoch=0, timestamp_ms=NOW_MS)
    )
    stamp(marker, 2, 0)
    follower = open_log(MemoryDisk())
    for bad in (
        first + second[:-1] + b"?",
        first + second[:-3],
        first + at_offset(make_batch(2), 1),
        first + bytes(marker[:-1]) + b"\x01",
        second[:61] + first,
    ):
        with pytest.raises(CorruptBatch):
            follower.append_replicated(bad, now_ms=NOW_MS)
        assert (follower.end_offset, follower.size) == (0, 0)
    assert [header.base_offset for header in checked_headers(first + second)] == [0, 2]


def test_replicated_batches_below_the_end_offset_fail_an_assertion() -> None:
    follower = open_log(MemoryDisk())
    batch = at_offset(make_batch(3), 0)
    follower.append_replicated(batch, now_ms=NOW_MS)
    with pytest.raises(AssertionError):
        follower.append_replicated(batch, now_ms=NOW_MS)
    assert follower.append_replicated(b"", now_ms=NOW_MS) == []


# Gaps


@pytest.mark.proves("compaction-gap")
@pytest.mark.parametrize("config", [SMALL, LogConfig(segment_bytes=900, cleanup_policy=("compact",))])
@pytest.mark.parametrize("end", ["kill", "crash"])
def test_offsets_missing_after_compaction_are_accepted_after_a_restart(config: LogConfig, end: str) -> None:
    """Also if the topic is not compacted any more: recovery would take a gap above the recovery point for a loss."""
    disk = MemoryDisk()
    follower = open_log(disk, config)
    for offset in (3, 4, 90, 91, 500, 700):
        follower.append_replicated(at_offset(make_batch(value=b"x" * 200), offset), now_ms=NOW_MS)
    asyncio.run(follower.durability.sync())
    kept = content(follower)
    getattr(disk, end)()
    again = open_log(disk, config, recovery_point=0)
    assert (again.end_offset, content(again)) == (701, kept)
    assert disk.exists(f"{DIRECTORY}/{CLEANER_OFFSET}") is not config.is_compacted


@pytest.mark.proves("compaction-gap")
def test_a_gap_wider_than_a_relative_offset_starts_a_segment() -> None:
    """In the journal of a busy group, first and last offsets may be 2^31 apart after some weeks."""
    compacted = LogConfig(cleanup_policy=("compact",))
    for before in ([], [0], [0, 5]):
        disk = MemoryDisk()
        follower = open_log(disk, compacted)
        offsets = [*before, 1 << 32, (1 << 32) + 1, 1 << 40]
        for offset in offsets:
            follower.append_replicated(at_offset(make_batch(value=b"%d" % offset), offset), now_ms=NOW_MS)
        expected = [(offset, b"%d" % offset) for offset in offsets]
        assert [(r, v) for r, v in records(follower)] == expected
        asyncio.run(follower.durability.sync())
        disk.crash()
        assert records(open_log(disk, compacted, recovery_point=0)) == expected


def records(log: Log) -> list[tuple[int, bytes | None]]:
    found = []
    offset = log.start_offset
    while offset < log.end_offset:
        data, offset = log.segments.read(offset, up_to=log.end_offset, bytes_max=1, at_least_one=True)
        found += [(header.base_offset, data[-header.size :]) for header in checked_headers(data)]
    return [(base, batch[batch.rindex(b"k") + 2 : -1]) for base, batch in found]


async def test_a_compacted_leader_and_its_follower_have_the_same_records() -> None:
    config = LogConfig(segment_bytes=700, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    leader = await asyncio.to_thread(busy_leader, MemoryDisk(), config)  # without a loop it rolls at once
    leader.append_marker(3, 0, False, 1, leader_epoch=2, now_ms=NOW_MS)
    await leader.durability.checkpoint()
    bytes_before = leader.size
    dirty = dirtiness(leader, 0, last_stable_offset=leader.end_offset, now_ms=NOW_MS)
    await compact(
        leader, dirty, now_ms=NOW_MS, keys_max=1000, held_by_all=leader.end_offset, pause=lambda: asyncio.sleep(0)
    )
    assert leader.size < bytes_before // 2
    disk = MemoryDisk()
    follower = open_log(disk, config)
    replicate(leader, follower, bytes_max=500)
    assert content(follower)[0] == content(leader)[0]
    assert read_tail(follower) == read_tail(leader)
    await follower.durability.sync()
    disk.crash()
    assert content(open_log(disk, config, recovery_point=0))[0] == content(leader)[0]


def read_tail(log: Log) -> tuple[int, list[tuple[int, int, int]]]:
    return log.end_offset, [(p.producer_id, p.epoch, p.txn_first_offset) for p in log.producers.all()]


# Beginning anew


def test_restart_at_gives_an_empty_log_at_the_offset() -> None:
    disk = MemoryDisk()
    log = busy_leader(disk)
    log.restart_at(1000)
    assert (log.start_offset, log.end_offset, log.durability.synced_offset, log.durability.recovery_point) == (
        1000,
        1000,
        1000,
        1000,
    )
    assert content(log) == (b"", [], *content(open_log(MemoryDisk(), start_offset=1000))[2:])
    assert len(log.segments) == 1
    log.append_replicated(at_offset(make_batch(2), 1000, 8), now_ms=NOW_MS)
    assert (log.end_offset, log.epochs.entries) == (1002, [(8, 1000)])
    log.close()
    again = open_log(disk, SMALL, recovery_point=1002, clean=True)
    assert (again.start_offset, again.end_offset, again.epochs.entries) == (1000, 1002, [(8, 1000)])


def test_truncation_below_the_first_segment_restarts_the_log() -> None:
    log = open_log(MemoryDisk(), start_offset=100, recovery_point=100)
    log.append_replicated(at_offset(make_batch(5), 100), now_ms=NOW_MS)
    log.truncate_to(40)
    assert (log.start_offset, log.end_offset, log.segments[0].base_offset) == (40, 40, 40)


def test_a_follower_may_start_inside_a_batch() -> None:
    leader, follower = open_log(MemoryDisk()), open_log(MemoryDisk())
    for _ in range(5):
        put(leader, make_batch(10))
    put(follower, make_batch(3))
    leader.delete_records_before(27)
    replicate(leader, follower)
    assert content(follower) == content(leader)
    assert (follower.start_offset, follower.end_offset, follower.segments[0].base_offset) == (27, 50, 20)
    assert read_all(follower) == read_all(leader)


@pytest.mark.proves("follower-begins-anew")
def test_a_follower_that_restarts_has_the_producers_of_deleted_records() -> None:
    leader = open_log(MemoryDisk(), SMALL)
    put(leader, make_batch(3, producer_id=5, sequence=0))
    put(leader, make_batch(2, producer_id=6, sequence=0))
    put(leader, make_batch(2, producer_id=6, sequence=2, is_transactional=True))
    put(leader, make_batch(4, producer_id=5, sequence=3))
    for _ in range(40):
        put(leader, make_batch(10))
    end = leader.end_offset
    for start, batch_start in ((5, 5), (6, 5), (7, 7), (8, 7), (200, 191), (end, end)):
        leader.delete_records_before(start)
        follower = open_log(MemoryDisk(), SMALL)
        replicate(leader, follower)
        assert content(follower) == content(leader)
        assert all(state.last_offset < batch_start for state in decode(leader.producer_snapshot()))
    for count, sequence, last_offset in ((3, 0, 2), (4, 3, 10)):
        retry = read_header(make_batch(count, producer_id=5, sequence=sequence))
        place = producers.check(follower.producers.get(5), retry)
        assert place is not None, "it would be stored a second time"
        assert place.last_offset == last_offset


class Restart:
    """A follower whose log restarts at a higher and then at a lower offset, and continues."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.stage = 0

    def open(self) -> LogDirectory:
        directory = LogDirectory.open(self.disk, "data", node_id=1, cluster_id="c", directory_id="d")
        directory.open_log("t", 0, SMALL, now_ms=NOW_MS, checkpoint_bytes=1500)
        return directory

    async def run(self) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # the background sync stops as well
        directory = self.open()
        log = directory.logs["t", 0]
        for offset in range(40):
            log.append_replicated(self.batch(offset), now_ms=NOW_MS)
        await log.durability.sync()
        log.delete_records_before(12)
        for stage, offset in enumerate((500, 7), start=1):
            self.stage = stage
            log.restart_at(offset, [self.known_at(offset)])
            self.stage = -stage
            for more in range(20):
                log.append_replicated(self.batch(offset + more), now_ms=NOW_MS)
            await log.durability.sync()
            await directory.checkpoint()
        directory.close()

    @staticmethod
    def batch(offset: int) -> bytes:
        epoch = offset // 10
        return at_offset(make_batch(value=b"%d" % offset * 9, producer_id=PRODUCER, sequence=offset), offset, epoch)

    @staticmethod
    def known_at(offset: int) -> ProducerState:
        """A producer whose records are deleted."""
        return ProducerState(producer_id=PRODUCER + 1, epoch=0, batches=(BatchPlace(3, offset - 1, 0, NOW_MS),))

    def check(self) -> None:
        log = self.open().logs["t", 0]
        found = read_all(log)
        assert all(value == b"%d" % offset * 9 for offset, value in found)
        assert [offset for offset, _ in found] == list(range(log.start_offset, log.end_offset))
        assert log.end_offset <= {0: 40, 1: 500, -1: 520, 2: 520, -2: 27}[self.stage]
        for _, start in log.epochs.entries:
            assert log.start_offset <= start <= log.end_offset
        own, known = log.producers.get(PRODUCER), log.producers.get(PRODUCER + 1)
        assert own is None or own.last_offset == log.end_offset - 1, "producers of what is gone"
        assert (known.last_offset if known is not None else None) == {500: 499, 7: 6}.get(log.start_offset)
        if not found:
            assert log.epochs.entries == []
        end = log.end_offset
        log.append_replicated(self.batch(end), now_ms=NOW_MS)
        log.restart_at(3000)
        assert log.end_offset == 3000


@pytest.mark.proves("follower-begins-anew")
@pytest.mark.parametrize(
    "stop",
    [
        pytest.param(lambda disk, _: disk.kill(), id="process-killed"),
        pytest.param(lambda disk, _: disk.crash(), id="all-unsynced-lost"),
        pytest.param(lambda disk, change: disk.crash(Random(change)), id="some-lost"),
    ],
)
def test_restart_at_may_be_interrupted_at_any_change(stop: Callable[[MemoryDisk, int], None]) -> None:
    for change in range(1000):
        disk = MemoryDisk()
        restart = Restart(disk)
        disk.fuse = change
        try:
            asyncio.run(restart.run())
        except MachineStopped:
            stop(disk, change)
            restart.check()
        else:
            break
    assert 100 < change < 999


@pytest.mark.parametrize("first", [0, 20])
@pytest.mark.parametrize("end", ["close", "kill", "crash"])
def test_a_log_truncated_in_a_gap_can_be_opened(end: str, first: int) -> None:
    """After compaction the last batch may end below the truncation offset; that is not a loss."""
    disk = MemoryDisk()
    follower = open_log(disk, COMPACTED)
    kept = [at_offset(make_batch(), 0)] if not first else []
    data = b"".join([*kept, at_offset(make_batch(), 28), at_offset(make_batch(), 29)])
    follower.append_replicated(data, now_ms=NOW_MS)
    asyncio.run(follower.durability.sync())
    asyncio.run(follower.durability.checkpoint())
    assert follower.durability.recovery_point == 30
    follower.truncate_to(28)
    if end == "close":
        follower.close()
    getattr(disk, end if end != "close" else "kill")()
    again = open_log(disk, COMPACTED, recovery_point=follower.durability.recovery_point)
    assert again.end_offset <= 28
    follower_again = [offset for offset, _ in read_all(again)]
    assert follower_again == ([0] if not first else [])
    again.append_replicated(b"".join([at_offset(make_batch(), 28), at_offset(make_batch(), 29)]), now_ms=NOW_MS)
    assert again.end_offset == 30


def test_appended_records_are_counted_and_stay_so_when_they_are_removed() -> None:
    log, counted = open_log(MemoryDisk(), COMPACTED), list[int]()

    def note() -> None:
        counted.append(log.records_appended)

    note()
    put(log, make_batch(3))
    put(log, make_batch(2))
    note()
    log.truncate_to(3)
    note()
    log.append_replicated(at_offset(make_batch(2), 3) + at_offset(make_batch(4), 20), now_ms=NOW_MS)
    note()
    log.restart_at(7)
    note()
    log.append_replicated(at_offset(make_batch(1), (1 << 31) + 50), now_ms=NOW_MS)
    note()
    put(log, make_batch(1))
    note()
    assert counted == [0, 5, 5, 11, 11, 12, 13]
    disk = log.disk
    log.close()
    assert open_log(disk, COMPACTED).records_appended == 0  # type: ignore[arg-type]
