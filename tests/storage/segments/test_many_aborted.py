"""With many aborted transactions, fetch, recovery and retention read a bounded number of index entries."""

import asyncio

import pytest
from semel_storage.compaction.compaction import EXPECTED_OFFSETS, compact, dirtiness
from semel_storage.compaction.retention import apply_retention
from semel_storage.disk.disk import Disk
from semel_storage.disk.memory_disk import MemoryDisk, MemoryFile
from semel_storage.log.log import Log
from semel_storage.producers.transactions import ENTRY, PAIR, AbortedTransaction, decode, encode
from semel_storage.segments.log_config import LogConfig
from semel_storage.segments.transaction_index import BLOCK, FIRST_READ, TransactionIndex
from storage.batches import NOW_MS, make_batch, open_log, put

COUNT = 300_000


class AbortedEntryReadsDisk(MemoryDisk):
    """Counts the entries read of indexes of aborted transactions, and the reads."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = self.reads = 0

    def open(self, path: str) -> MemoryFile:
        file = super().open(path)
        if path.endswith(".txnindex"):
            pread = file.pread

            def counted(n: int, at: int) -> bytes:
                data = pread(n, at)
                self.entries += len(data) // ENTRY.size
                self.reads += 1
                return data

            file.pread = counted  # type: ignore[method-assign]
        return file

    def forget(self) -> None:
        self.entries = self.reads = 0


def index_of(disk: Disk, rows: list[AbortedTransaction]) -> TransactionIndex:
    file = disk.open("x.txnindex")
    file.append(b"".join(map(encode, rows)))
    file.close()
    return TransactionIndex(disk, "x.txnindex")


def one_after_the_other(count: int, stable: int | None = None) -> list[AbortedTransaction]:
    """Transactions of one record: the nth has offsets 2n and, its marker, 2n + 1."""
    return [AbortedTransaction(n % 9, 2 * n, 2 * n + 1, 2 * n + 2 if stable is None else stable) for n in range(count)]


HALVINGS = 20
"""The number of halvings that a search over so many entries needs, and a few more."""


def test_a_fetch_reads_few_entries_besides_its_result() -> None:
    disk = AbortedEntryReadsDisk()
    index = index_of(disk, one_after_the_other(COUNT))
    for start in (1, 100_001, 2 * COUNT - 41):
        for length in (1, 40):
            disk.forget()
            found, _ = index.overlapping(start, start + length)
            assert [a.first_offset for a in decode(found)] == list(range(start - 1, start + length, 2))
            assert disk.entries <= len(found) // ENTRY.size + HALVINGS + 3 * FIRST_READ


def test_a_sequential_reader_does_not_search() -> None:
    disk = AbortedEntryReadsDisk()
    index = index_of(disk, one_after_the_other(COUNT))
    index.overlapping(50_000, 50_010)
    for start in range(50_010, 51_000, 10):
        disk.forget()
        index.overlapping(start, start + 10)
        assert disk.reads <= 3


def test_a_dense_range_is_read_with_one_call() -> None:
    disk = AbortedEntryReadsDisk()
    index = index_of(disk, one_after_the_other(COUNT))
    found, _ = index.overlapping(0, 10_000)
    assert len(found) == 5_000 * ENTRY.size
    assert disk.reads <= 2 * HALVINGS


def test_long_transactions_are_found_without_reading_entries_between() -> None:
    """Two are open while all others begin and abort, so that last stable offsets do not end the search."""
    disk = AbortedEntryReadsDisk()
    rows = [AbortedTransaction(9, 2 * n + 2, 2 * n + 3, 0) for n in range(COUNT)]
    end = 2 * COUNT + 2
    index = index_of(disk, [*rows, AbortedTransaction(1, 0, end, 1), AbortedTransaction(2, 1, end + 1, end + 2)])
    index.overlapping(0, 2)  # from here on what each block begins with is known
    for start in (100, 5_000, COUNT):
        disk.forget()
        found, is_complete = index.overlapping(start, start + 10)
        assert [a.producer_id for a in decode(found)] == [9] * 5 + [1, 2]
        assert is_complete
        assert disk.entries <= 3 * BLOCK + 2 * HALVINGS + 3 * FIRST_READ


def test_each_later_segment_costs_one_search() -> None:
    """One transaction is open across several segments full of aborted ones."""
    disk = AbortedEntryReadsDisk()
    config = LogConfig(segment_bytes=50_000, index_interval_bytes=4096)
    log = open_log(disk, config)
    put(log, make_batch(producer_id=1, is_transactional=True))
    for sequence in range(1_500):
        put(log, make_batch(producer_id=7, sequence=sequence, is_transactional=True))
        log.append_marker(7, 0, False, 0, leader_epoch=0, now_ms=NOW_MS)
    log.append_marker(1, 0, False, 0, leader_epoch=0, now_ms=NOW_MS)
    assert len(log.segments) > 4
    log.read_committed(0, up_to=log.end_offset, bytes_max=1000)
    disk.forget()
    data, aborted = log.read_committed(1, up_to=log.end_offset, bytes_max=200)
    assert data
    assert aborted == [PAIR.pack(1, 0), PAIR.pack(7, 1)]
    assert disk.reads <= 3 * len(log.segments) + HALVINGS, "and none of them is searched"


async def test_retention_of_aborted_transactions_reads_no_index() -> None:
    disk = AbortedEntryReadsDisk()
    config = LogConfig(segment_bytes=50_000, retention_bytes=60_000)
    log = await asyncio.to_thread(aborted_log, disk, 1_500, config)  # without a loop it rolls at once
    await log.durability.sync()
    disk.forget()
    assert apply_retention(log, high_watermark=log.end_offset, now_ms=NOW_MS) is not None
    assert disk.entries == 0


async def test_compaction_holds_a_bounded_number_of_aborted_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 6_000
    log = aborted_log(MemoryDisk(), count, LogConfig(cleanup_policy=("compact",)))
    log.roll()
    await log.durability.sync()
    held = []
    look_up = log.aborted_transactions

    def counted(start: int, end: int) -> list[AbortedTransaction]:
        found = look_up(start, end)
        held.append(len(found))
        return found

    monkeypatch.setattr(log, "aborted_transactions", counted)
    dirty = dirtiness(log, 0, last_stable_offset=log.end_offset, now_ms=NOW_MS)
    await compact(log, dirty, now_ms=NOW_MS, keys_max=1000, held_by_all=log.end_offset, pause=lambda: asyncio.sleep(0))
    assert max(held) <= EXPECTED_OFFSETS // 2 + 1
    assert len(held) < 2 * count // 1000
    assert len(look_up(0, log.end_offset)) == count, "they stay for as long as their markers"


def aborted_log(disk: Disk, count: int, config: LogConfig) -> Log:
    """A log of `count` aborted transactions of one record each."""
    log = open_log(disk, config)
    for sequence in range(count):
        put(log, make_batch(producer_id=7, sequence=sequence, is_transactional=True))
        log.append_marker(7, 0, False, 0, leader_epoch=0, now_ms=NOW_MS)
    return log
