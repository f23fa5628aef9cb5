"""What fuzzing of files at start-up has found, each as the smallest damage that showed it."""

from __future__ import annotations

import asyncio

import pytest
from semel_storage.log import Log
from semel_storage.log_config import LogConfig
from semel_storage.memory_disk import MemoryDisk
from semel_storage.snapshot import CorruptSnapshot, decode, encode
from semel_storage.transactions import AbortedTransaction
from storage.batches import DIRECTORY, NOW_MS, make_batch, open_log, put

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100)
PRODUCER = 5


def path_of(offset: int, suffix: str) -> str:
    return f"{DIRECTORY}/{offset:020d}{suffix}"


class Reports:
    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []

    def __call__(self, event: str, **facts: object) -> None:
        self.lines.append((event, facts))

    def of(self, event: str) -> list[dict[str, object]]:
        return [facts for name, facts in self.lines if name == event]


def log_of(disk: MemoryDisk, batches: int) -> Log:
    """A checkpointed log of several segments, one record a batch."""
    log = open_log(disk, CONFIG)
    for n in range(batches):
        put(log, make_batch(producer_id=PRODUCER, sequence=n, value=b"%d" % n))
    asyncio.run(log.checkpoint())
    return log


def start_again(disk: MemoryDisk, reports: Reports, recovery_point: int, *, clean: bool = False) -> Log:
    disk.kill()
    return open_log(disk, CONFIG, recovery_point=recovery_point, clean=clean, event=reports)


def altered(disk: MemoryDisk, path: str, at: int, new: bytes) -> None:
    data = bytearray(disk.read_bytes(path))
    data[at : at + len(new)] = new
    disk.overwrite(path, data)


# The index of aborted transactions


@pytest.mark.parametrize("at", [2, 3, 9, 17, 25, 33])
def test_entry_of_an_aborted_transaction_that_changed_is_found_and_built_anew(at: int) -> None:
    disk = MemoryDisk()
    log = open_log(disk, CONFIG)
    put(log, make_batch(producer_id=PRODUCER, is_transactional=True))
    log.append_marker(PRODUCER, 0, False, 0, leader_epoch=0, now_ms=NOW_MS)
    asyncio.run(log.checkpoint())
    altered(disk, path_of(0, ".txnindex"), at, b"\x7f")
    for clean in (True, False):
        reports = Reports()
        again = start_again(disk, reports, 2, clean=clean)
        assert again.aborted_transactions(0, 2) == [AbortedTransaction(PRODUCER, 0, 1, 2)]


# Snapshots


def test_snapshot_of_another_offset_is_not_taken_for_this_ones() -> None:
    with pytest.raises(CorruptSnapshot, match="offset 7"):
        decode(encode([], offset=7), offset=8)


def test_snapshot_under_the_name_of_another_does_not_set_producers_back() -> None:
    disk = MemoryDisk()
    log = log_of(disk, 20)
    first = next(segment.base_offset for segment in log.segments[1:])
    log.close()
    disk.overwrite(path_of(20, ".snapshot"), disk.read_bytes(path_of(first, ".snapshot")))
    again = start_again(disk, Reports(), 20, clean=True)
    state = again.producer(PRODUCER)
    assert state is not None
    assert state.last_sequence == 19
