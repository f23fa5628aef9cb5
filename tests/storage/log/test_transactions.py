"""Transactions in one log: markers, the first unstable offset, and the index of aborted transactions."""

import struct
from bisect import bisect_left
from random import Random

import pytest
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.compaction.retention import apply_retention
from semel_storage.disk.disk import Disk
from semel_storage.disk.memory_disk import MemoryDisk, MemoryFile
from semel_storage.log.log import AppendResult, Log
from semel_storage.producers.transactions import PAIR, AbortedTransaction, decode, encode
from semel_storage.segments.log_config import LogConfig
from semel_storage.segments.segment import CorruptLog
from semel_storage.segments.transaction_index import BLOCK, TransactionIndex
from storage.batches import DIRECTORY, NOW_MS, make_batch, open_log, put

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)


def begin(log: Log, producer_id: int, *, sequence: int = 0, epoch: int = 0, value: bytes = b"v") -> int:
    """Append a transactional batch of one record; returns its offset."""
    batch = make_batch(producer_id=producer_id, epoch=epoch, sequence=sequence, is_transactional=True, value=value)
    return put(log, batch).base_offset


def end(log: Log, producer_id: int, commit: bool, *, epoch: int = 0, coordinator_epoch: int = 0) -> AppendResult:
    return log.append_marker(producer_id, epoch, commit, coordinator_epoch, leader_epoch=0, now_ms=NOW_MS)


def index_file(disk: MemoryDisk, base_offset: int = 0) -> str:
    return f"{DIRECTORY}/{base_offset:020d}.txnindex"


def entries(log: Log, start: int = 0, stop: int = 1 << 40) -> list[tuple[int, int, int]]:
    return [(a.producer_id, a.first_offset, a.last_offset) for a in log.aborted_transactions(start, stop)]


# Markers


def test_a_marker_takes_one_offset_and_ends_the_transaction(disk: MemoryDisk) -> None:
    log = open_log(disk)
    assert begin(log, 7) == 0
    state = log.producers.get(7)
    assert state is not None
    assert state.txn_first_offset == 0
    assert end(log, 7, True, coordinator_epoch=3) == AppendResult(1, 1)
    state = log.producers.get(7)
    assert state is not None
    assert (state.txn_first_offset, state.coordinator_epoch, log.end_offset) == (-1, 3, 2)
    assert log.producers.get(8) is None


def test_a_marker_for_a_producer_that_wrote_nothing_is_appended(disk: MemoryDisk) -> None:
    log = open_log(disk)
    assert end(log, 7, False) == AppendResult(0, 0)
    assert entries(log) == [], "nothing was aborted"


@pytest.mark.proves("marker-written-twice")
@pytest.mark.parametrize("restart", ["no", "clean", "crash"])
def test_a_marker_retried_after_its_reply_was_lost_is_not_written_twice(disk: MemoryDisk, restart: str) -> None:
    log = open_log(disk)
    begin(log, 7)
    end(log, 7, True)
    if restart == "clean":
        log.close()
        log = open_log(disk, recovery_point=2, clean=True)
    elif restart == "crash":
        disk.kill()
        log = open_log(disk, recovery_point=0)
    assert end(log, 7, True) == AppendResult(1, 1, -1, True)
    assert log.end_offset == 2
    assert end(log, 7, False) == AppendResult(2, 2), "not the same marker"
    begin(log, 7, sequence=1)
    assert end(log, 7, False) == AppendResult(4, 4), "not the same transaction"


@pytest.mark.proves("deposed-coordinator-writes-markers")
def test_a_marker_of_an_older_coordinator_epoch_is_refused(disk: MemoryDisk) -> None:
    log = open_log(disk)
    begin(log, 7)
    end(log, 7, True, coordinator_epoch=5)
    begin(log, 7, sequence=1)
    with pytest.raises(KafkaError) as refused:
        end(log, 7, False, coordinator_epoch=4)
    assert refused.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert log.producers.transactions.first_unstable_offset(0) == 0
    assert log.producers.transactions.first_unstable_offset(2) == 2
    assert end(log, 7, False, coordinator_epoch=6).base_offset == 3


def test_a_marker_of_a_fenced_epoch_is_refused(disk: MemoryDisk) -> None:
    log = open_log(disk)
    begin(log, 7, epoch=3)
    with pytest.raises(KafkaError) as refused:
        end(log, 7, True, epoch=2)
    assert refused.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.end_offset == 1


def test_a_marker_with_a_bumped_epoch_fences_the_old_one_and_restarts_sequences(disk: MemoryDisk) -> None:
    log = open_log(disk)
    begin(log, 7, sequence=0)
    end(log, 7, True, epoch=1)
    for epoch, sequence, code in (
        (0, 1, ErrorCode.INVALID_PRODUCER_EPOCH),  # late, of the transaction that has ended
        (1, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ):
        with pytest.raises(KafkaError) as refused:
            begin(log, 7, epoch=epoch, sequence=sequence)
        assert refused.value.code == code
    assert begin(log, 7, epoch=1, sequence=0) == 2


def test_without_an_epoch_bump_sequences_continue_after_a_marker(disk: MemoryDisk) -> None:
    log = open_log(disk)
    begin(log, 7, sequence=0)
    end(log, 7, True)
    assert begin(log, 7, sequence=1) == 2


def test_a_non_transactional_batch_during_the_producers_transaction_is_refused(disk: MemoryDisk) -> None:
    log = open_log(disk)
    begin(log, 7)
    with pytest.raises(KafkaError) as refused:
        put(log, make_batch(producer_id=7, sequence=1))
    assert refused.value.code == ErrorCode.INVALID_TXN_STATE


# The first unstable offset


def test_the_earliest_open_transaction_holds_readers_back(disk: MemoryDisk) -> None:
    log = open_log(disk)
    assert log.producers.transactions.first_unstable_offset(0) is None
    put(log, make_batch(5))
    assert begin(log, 1) == 5
    assert begin(log, 2) == 6
    assert log.producers.transactions.first_unstable_offset(7) == 5
    end(log, 1, True)
    assert log.producers.transactions.first_unstable_offset(8) == 6
    end(log, 2, False)
    assert log.producers.transactions.first_unstable_offset(9) is None


def test_a_marker_above_the_high_watermark_still_holds_readers_back(disk: MemoryDisk) -> None:
    log = open_log(disk)
    begin(log, 1)
    end(log, 1, True)
    assert log.producers.transactions.first_unstable_offset(0) == 0
    assert log.producers.transactions.first_unstable_offset(1) == 0, "the marker at 1 is not committed"
    assert log.producers.transactions.first_unstable_offset(2) is None


@pytest.mark.proves("state-after-truncation", "aborted-index-after-truncation")
def test_truncation_reopens_a_transaction_and_removes_its_index_entry(disk: MemoryDisk) -> None:
    log = open_log(disk)
    begin(log, 1)
    begin(log, 2)
    end(log, 1, False)
    end(log, 2, False)
    assert entries(log) == [(1, 0, 2), (2, 1, 3)]
    log.truncate_to(3)
    assert entries(log) == [(1, 0, 2)]
    assert log.producers.transactions.first_unstable_offset(3) == 1
    log.truncate_to(1)
    assert entries(log) == []
    assert log.producers.transactions.first_unstable_offset(1) == 0
    assert disk.size(index_file(disk)) == 0
    end(log, 1, False)
    assert entries(log) == [(1, 0, 1)]


@pytest.mark.proves("state-after-truncation")
def test_truncation_keeps_readers_below_a_transaction_with_an_uncommitted_marker(disk: MemoryDisk) -> None:
    log = open_log(disk)
    begin(log, 1)
    end(log, 1, True)
    begin(log, 2)
    log.roll()
    log.truncate_to(2)
    assert log.producers.transactions.first_unstable_offset(1) == 0
    assert log.producers.transactions.first_unstable_offset(2) is None


@pytest.mark.proves("delete-records-amid-a-transaction")
def test_a_transaction_outlives_the_deletion_of_its_first_records(disk: MemoryDisk) -> None:
    log = open_log(disk, SMALL)
    begin(log, 7)
    for _ in range(12):
        put(log, make_batch())
    log.delete_records_before(10)
    assert log.segments[0].base_offset > 0
    assert log.producers.transactions.first_unstable_offset(13) == 0, "still undecided"
    disk.kill()
    log = open_log(disk, SMALL, recovery_point=log.durability.recovery_point, start_offset=10)
    assert log.producers.transactions.first_unstable_offset(13) == 0
    end(log, 7, False)
    assert entries(log, 10) == [(7, 0, 13)]
    assert log.producers.transactions.first_unstable_offset(14) is None


def test_retention_of_an_open_transactions_first_segment_does_not_forget_it(disk: MemoryDisk) -> None:
    config = LogConfig(segment_bytes=400, retention_bytes=500)
    log = open_log(disk, config)
    begin(log, 7)
    for _ in range(12):
        put(log, make_batch())
    log.close()
    log = open_log(disk, config, recovery_point=13, clean=True)
    assert apply_retention(log, high_watermark=13, now_ms=NOW_MS) is not None
    for _ in range(2):
        state = log.producers.get(7)
        assert state is not None
        assert state.txn_first_offset == 0
        assert log.start_offset > 0
        disk.kill()
        log = open_log(disk, config, recovery_point=log.start_offset, start_offset=log.start_offset)


def test_an_idle_producer_with_an_open_transaction_does_not_expire(disk: MemoryDisk) -> None:
    log = open_log(disk)
    begin(log, 7)
    put(log, make_batch(producer_id=8))
    log.producers.expire(NOW_MS + 1000, 1000)
    assert [state.producer_id for state in log.producers.all()] == [7]


# The index


def test_index_entries_are_kafkas(disk: MemoryDisk) -> None:
    """version int16, producer id, first offset, last offset, last stable offset int64."""
    log = open_log(disk)
    begin(log, 1)
    begin(log, 2)
    end(log, 2, False)
    end(log, 1, False)
    assert disk.read_bytes(index_file(disk)) == struct.pack(">hqqqqhqqqq", 0, 2, 1, 2, 0, 0, 1, 0, 3, 4)


def test_there_is_no_index_file_without_aborted_transactions(disk: MemoryDisk) -> None:
    log = open_log(disk)
    begin(log, 1)
    end(log, 1, True)
    log.roll()
    log.close()
    assert not [name for name in disk.listdir(DIRECTORY) if name.endswith(".txnindex")]


@pytest.mark.proves("stale-index")
@pytest.mark.parametrize("harm", ["missing", "empty", "short", "torn", "newer"])
@pytest.mark.parametrize("start", ["clean", "crash"])
def test_an_index_that_contradicts_the_log_is_rebuilt(disk: MemoryDisk, harm: str, start: str) -> None:
    log = open_log(disk)
    for sealed in (True, False):
        for sequence in range(3):
            begin(log, 7, sequence=sequence + 3 * (not sealed))
            end(log, 7, False)
        if sealed:
            log.roll()
    log.close()
    expected = [(7, n, n + 1) for n in range(0, 12, 2)]
    for base_offset in (0, 6):
        path = index_file(disk, base_offset)
        whole = disk.read_bytes(path)
        assert len(whole) == 3 * 34
        later = AbortedTransaction(9, 40, 50, 51)
        harmed = {"empty": b"", "short": whole[:34], "torn": whole[:-5], "newer": whole + encode(later)}
        if harm == "missing":
            disk.remove(path)
        else:
            disk.overwrite(path, harmed[harm])
    log = open_log(disk, recovery_point=12, clean=start == "clean")
    assert entries(log) == expected
    assert begin(log, 7, sequence=6) == 12
    end(log, 7, False)
    assert entries(log, 12) == [(7, 12, 13)]


@pytest.mark.proves("aborted-index-after-truncation", "half-an-index-entry")
@pytest.mark.parametrize(
    "left", [b"\xff" * 100, bytes(68), encode(AbortedTransaction(7, 0, 0, 0))], ids=["ones", "zeros", "an entry"]
)
def test_after_a_crash_the_index_above_the_recovery_point_is_rebuilt(disk: MemoryDisk, left: bytes) -> None:
    """A power loss may leave bytes that look like an entry, which would hide committed records."""
    log = open_log(disk, SMALL)
    for sequence in range(8):
        begin(log, 7, sequence=sequence)
        end(log, 7, False)
    before = entries(log)
    assert len(log.segments) > 2
    disk.kill()
    for segment in log.segments:
        disk.overwrite(segment.aborted.path, left)
    log = open_log(disk, SMALL, recovery_point=0)
    assert entries(log) == before
    assert sum(segment.aborted.count for segment in log.segments) == len(before)


@pytest.mark.proves("rewritten-snapshot")
async def test_a_snapshot_rewritten_at_a_segment_start_keeps_the_index_checksum(
    disk: MemoryDisk,
) -> None:
    log = open_log(disk)
    begin(log, 7)
    end(log, 7, False)
    log.roll()
    disk.kill()
    log = open_log(disk, recovery_point=0)
    await log.durability.checkpoint()
    disk.kill()
    disk.remove(index_file(disk))
    log = open_log(disk, recovery_point=2)
    assert entries(log) == [(7, 0, 1)]


@pytest.mark.proves("offset-in-a-lost-sector")
@pytest.mark.parametrize("lost", [".txnindex", ".snapshot"])
async def test_unsynced_batches_do_not_affect_the_state_of_durable_ones(disk: MemoryDisk, lost: str) -> None:
    """A power loss removes the sector with the offset of the last batch; the rest of the batch is in the next one."""
    log = open_log(disk)
    begin(log, 7)
    end(log, 7, False)
    begin(log, 7, sequence=1)
    await log.durability.checkpoint()
    at = log.active.size
    end(log, 7, False)
    disk.kill()
    path = f"{DIRECTORY}/{0:020d}.log"
    data = disk.read_bytes(path)
    disk.write_atomically(path, data[:at] + bytes(8) + data[at + 8 :])
    for name in disk.listdir(DIRECTORY):
        if name.endswith(lost):
            disk.remove(f"{DIRECTORY}/{name}")
    log = open_log(disk, recovery_point=3)
    assert log.end_offset == 3
    assert entries(log) == [(7, 0, 1)]
    assert log.producers.transactions.first_unstable_offset(3) == 2, "its marker is not there"


async def test_an_index_is_not_rebuilt_from_a_damaged_segment(disk: MemoryDisk) -> None:
    """Otherwise read_committed readers would get aborted records after the damage."""
    log = open_log(disk, SMALL)
    damaged = log.active
    for sequence in range(8):
        begin(log, 7, sequence=sequence)
        end(log, 7, False)
        await log.durability.sync()
    await log.durability.checkpoint()
    assert log.active is not damaged
    third = [position for position, _, _ in damaged.scan()][2]
    disk.kill()
    path = f"{DIRECTORY}/{0:020d}.log"
    data = bytearray(disk.read_bytes(path))
    data[third : third + 8] = bytes(8)
    disk.write_atomically(path, bytes(data))
    disk.remove(index_file(disk))
    with pytest.raises(CorruptLog, match=f"byte {third}: .*restore the file from a copy"):
        open_log(disk, SMALL, recovery_point=16)


async def test_the_index_below_the_recovery_point_is_durable(disk: MemoryDisk) -> None:
    log = open_log(disk, checkpoint_bytes=200)
    begin(log, 7)
    end(log, 7, False)
    await log.durability.sync()
    begin(log, 7, sequence=1)
    end(log, 7, False)
    await log.durability.checkpoint()
    assert log.durability.recovery_point == 4
    disk.crash()
    assert len(disk.read_bytes(index_file(disk))) == 68
    assert entries(open_log(disk, recovery_point=4)) == [(7, 0, 1), (7, 2, 3)]


def test_a_deleted_segment_removes_its_index(disk: MemoryDisk) -> None:
    log = open_log(disk, SMALL)
    for sequence in range(8):
        begin(log, 7, sequence=sequence)
        end(log, 7, False)
    log.delete_records_before(log.active.base_offset)
    names = [name for name in disk.listdir(DIRECTORY) if name.endswith(".txnindex")]
    assert [int(name.partition(".")[0]) for name in names] in ([log.active.base_offset], [])
    assert all(last >= log.start_offset for _, _, last in entries(log))


def test_a_transaction_across_segments_is_found_from_each(disk: MemoryDisk) -> None:
    log = open_log(disk, SMALL)
    first = begin(log, 7, value=b"x" * 200)
    for _ in range(5):
        put(log, make_batch(value=b"y" * 200))
    last = end(log, 7, False).base_offset
    assert len(log.segments) > 3
    for offset in range(last + 1):
        assert entries(log, offset, offset + 1) == [(7, first, last)]
    assert entries(log, last + 1, last + 2) == []
    data, aborted = log.read_committed(2, up_to=last + 1, bytes_max=10)
    assert data
    assert aborted == [PAIR.pack(7, first)]


class AbortedIndexReadsDisk(MemoryDisk):
    """Counts the bytes read of indexes of aborted transactions."""

    read = 0

    def open(self, path: str) -> MemoryFile:
        file = super().open(path)
        if path.endswith(".txnindex"):
            pread = file.pread

            def counted(n: int, at: int) -> bytes:
                data = pread(n, at)
                AbortedIndexReadsDisk.read += len(data)
                return data

            file.pread = counted  # type: ignore[method-assign]
        return file


def fill(disk: Disk, rows: list[AbortedTransaction]) -> TransactionIndex:
    file = disk.open("x.txnindex")
    file.append(b"".join(encode(row) for row in rows))
    file.close()
    return TransactionIndex(disk, "x.txnindex")


def test_reads_do_not_scan_old_aborted_transactions() -> None:
    """With 100,000 of them, a read at the end reads one entry, a read in the middle those of its range."""
    count = 100_000
    index = fill(
        AbortedIndexReadsDisk(), [AbortedTransaction(n % 9, 2 * n, 2 * n + 1, 2 * n + 2) for n in range(count)]
    )
    assert index.overlapping(2 * count, 2 * count + 10) == (b"", False)
    AbortedIndexReadsDisk.read = 0
    assert index.overlapping(2 * count + 5, 2 * count + 10) == (b"", False)
    assert AbortedIndexReadsDisk.read == 0
    found, is_complete = index.overlapping(100_000, 100_010)
    assert [a.first_offset for a in decode(found)] == [100_000, 100_002, 100_004, 100_006, 100_008]
    assert is_complete
    assert AbortedIndexReadsDisk.read < 34 * (BLOCK + 40)


def test_a_long_transaction_among_short_ones_is_found_with_few_reads() -> None:
    """One transaction is open during all others: last stable offsets do not bound the search, block minima do."""
    count = 100_000
    rows = [AbortedTransaction(9, 2 * n + 1, 2 * n + 2, 0) for n in range(count)]
    last = 2 * count + 1
    index = fill(AbortedIndexReadsDisk(), [*rows, AbortedTransaction(1, 0, last, last + 1)])
    index.overlapping(0, 2)
    AbortedIndexReadsDisk.read = 0
    found, is_complete = index.overlapping(1000, 1010)
    assert [a.first_offset for a in decode(found)] == [999, 1001, 1003, 1005, 1007, 1009, 0]
    assert is_complete
    assert AbortedIndexReadsDisk.read < 34 * 4 * BLOCK


def test_a_search_finds_exactly_the_overlapping_transactions() -> None:
    random = Random(5)
    for count in (1, 5, BLOCK, 3 * BLOCK + 7):
        spans = []
        offset, open_now = 0, {}
        while len(spans) < count:
            producer_id = random.randrange(40)
            if producer_id in open_now:
                first = open_now.pop(producer_id)
                spans.append(AbortedTransaction(producer_id, first, offset, min(open_now.values(), default=offset + 1)))
            else:
                open_now[producer_id] = offset
            offset += 1
        index = fill(MemoryDisk(), spans)
        for _ in range(50):
            start = random.randrange(offset)
            stop = start + random.randrange(1, 200)
            expected = [s for s in spans if s.last_offset >= start and s.first_offset < stop]
            found, _ = index.overlapping(start, stop)
            assert decode(found) == expected
        cut = random.randrange(offset)
        index.truncate(cut)
        assert index.count == bisect_left([s.last_offset for s in spans], cut)
        assert decode(index.overlapping(0, offset)[0]) == spans[: index.count]
