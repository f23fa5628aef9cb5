"""Faults found by fuzzing files at start-up, each with the smallest damage that showed it."""

from __future__ import annotations

import asyncio

import pytest
from fuzz.fuzzed_broker import FuzzedBroker
from semel_protocol.batch import iterate
from semel_protocol.errors import KafkaError
from semel_protocol.records import decode_batch
from semel_storage.checkpoints import CorruptCheckpoint, read_offsets, read_topic_id
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.log.log import Log
from semel_storage.log.recovery import CorruptLog
from semel_storage.log.snapshot import CorruptSnapshot, decode, encode
from semel_storage.log_directory import LogDirectory
from semel_storage.producers.transactions import AbortedTransaction
from semel_storage.segments.log_config import LogConfig
from storage.batches import DIRECTORY, NOW_MS, make_batch, open_log, put, read_all

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


def log_of(disk: MemoryDisk, batches: int, *, segment_bytes: int = 600) -> Log:
    """A checkpointed log of several segments, one record a batch."""
    log = open_log(disk, LogConfig(segment_bytes=segment_bytes, index_interval_bytes=100))
    for n in range(batches):
        put(log, make_batch(producer_id=PRODUCER, sequence=n, value=b"%d" % n, timestamps=[NOW_MS + n]))
    asyncio.run(log.durability.checkpoint())
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
def test_changed_entry_of_an_aborted_transaction_is_found_and_built_again(at: int) -> None:
    disk = MemoryDisk()
    log = open_log(disk, CONFIG)
    put(log, make_batch(producer_id=PRODUCER, is_transactional=True))
    log.append_marker(PRODUCER, 0, False, 0, leader_epoch=0, now_ms=NOW_MS)
    asyncio.run(log.durability.checkpoint())
    altered(disk, path_of(0, ".txnindex"), at, b"\x7f")
    for clean in (True, False):
        reports = Reports()
        again = start_again(disk, reports, 2, clean=clean)
        assert again.aborted_transactions(0, 2) == [AbortedTransaction(PRODUCER, 0, 1, 2)]


# Snapshots


def test_snapshot_of_another_offset_is_refused() -> None:
    with pytest.raises(CorruptSnapshot, match="offset 7"):
        decode(encode([], offset=7), offset=8)


def test_snapshot_under_another_name_does_not_set_producers_back() -> None:
    disk = MemoryDisk()
    log = log_of(disk, 20)
    first = next(segment.base_offset for segment in log.segments[1:])
    log.close()
    disk.overwrite(path_of(20, ".snapshot"), disk.read_bytes(path_of(first, ".snapshot")))
    again = start_again(disk, Reports(), 20, clean=True)
    state = again.producers.get(PRODUCER)
    assert state is not None
    assert state.last_sequence == 19


# Segments below the recovery point


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["deleted", "emptied", "cut between batches", "another segment's bytes"])
def test_incomplete_segment_is_reported(damage: str, clean: bool) -> None:
    disk = MemoryDisk()
    log = log_of(disk, 30)
    first, second, third = log.segments[:3]
    path, data = path_of(second.base_offset, ".log"), disk.read_bytes(path_of(second.base_offset, ".log"))
    last_batch = second.position_of(third.base_offset - 1)
    third_data = disk.read_bytes(path_of(third.base_offset, ".log"))
    log.close()
    match damage:
        case "deleted":
            disk.remove(path)
        case "emptied":
            disk.overwrite(path, b"")
        case "cut between batches":
            disk.overwrite(path, data[:last_batch])
        case _:
            disk.overwrite(path, third_data)
    reports = Reports()
    again = start_again(disk, reports, 30, clean=clean)
    assert path in [report["file"] for report in reports.of("log_damaged")]
    assert [value for _, value in read_below(again, first.next_offset)] == [b"%d" % n for n in range(first.next_offset)]


def read_below(log: Log, offset: int) -> list[tuple[int, bytes | None]]:
    return [
        (record.offset, record.value)
        for header, batch in iterate(log.read(0, up_to=offset, bytes_max=1 << 20))
        for record in decode_batch(batch, header)
    ]


@pytest.mark.parametrize("clean", [True, False])
def test_log_without_any_segment_is_refused(clean: bool) -> None:
    disk = MemoryDisk()
    log_of(disk, 30).close()
    for name in disk.listdir(DIRECTORY):
        disk.remove(f"{DIRECTORY}/{name}")
    with pytest.raises(CorruptLog, match="no segment is left of records durable up to 30"):
        start_again(disk, Reports(), 30, clean=clean)


def test_missing_directory_of_a_log_is_reported() -> None:
    disk, reports = MemoryDisk(), Reports()

    def opened() -> LogDirectory:
        return LogDirectory.open(disk, "data", node_id=1, cluster_id="c", directory_id="d", event=reports)

    logs = opened()
    put(logs.open_log("t", 0, CONFIG, now_ms=NOW_MS), make_batch())
    logs.close()
    disk.rmtree("data/t-0")
    disk.kill()
    opened().open_log("t", 0, CONFIG, now_ms=NOW_MS)
    assert [report["file"] for report in reports.of("log_damaged")] == ["data/t-0"]


def test_offset_of_a_batch_that_left_its_segment_is_found_by_readers() -> None:
    disk = MemoryDisk()
    log = log_of(disk, 30)
    second = log.segments[1]
    path, at = path_of(second.base_offset, ".log"), second.position_of(second.base_offset + 1)
    log.close()
    altered(disk, path, at, b"\x40")
    again = start_again(disk, Reports(), 30)
    with pytest.raises(KafkaError, match=path):
        again.read(second.base_offset + 1, up_to=30, bytes_max=10)


def test_batches_below_the_recovery_point_with_offsets_beyond_an_index_do_not_stop_a_start() -> None:
    disk = MemoryDisk()
    log = log_of(disk, 30)
    second = log.segments[1]
    path, at = path_of(second.base_offset, ".log"), second.position_of(second.base_offset + 1)
    disk.remove(path_of(second.base_offset, ".index"))
    altered(disk, path, at, b"\x40")
    again = start_again(disk, Reports(), 30)
    assert [offset for offset, _ in read_below(again, second.base_offset)] == list(range(second.base_offset))


def test_marker_below_the_recovery_point_that_cannot_be_read_is_refused_by_name() -> None:
    disk = MemoryDisk()
    log = open_log(disk, LogConfig())
    put(log, make_batch(producer_id=PRODUCER, is_transactional=True))
    log.append_marker(PRODUCER, 0, False, 0, leader_epoch=0, now_ms=NOW_MS)
    marker_at = log.active.position_of(1)
    asyncio.run(log.durability.checkpoint())
    for name in disk.listdir(DIRECTORY):
        if name.endswith(".snapshot"):
            disk.remove(f"{DIRECTORY}/{name}")
    altered(disk, path_of(0, ".log"), marker_at + 61, b"\x07")  # the length of its record
    with pytest.raises(CorruptLog, match=path_of(0, ".log")):
        start_again(disk, Reports(), 2, clean=True)


def test_log_shortened_after_its_close_is_reported_without_a_checkpoint_too() -> None:
    disk = MemoryDisk()
    log_of(disk, 3).close()
    disk.overwrite(path_of(0, ".log"), b"")
    disk.kill()
    reports = Reports()
    open_log(disk, CONFIG, recovery_point=None, clean=True, event=reports)
    assert [report["file"] for report in reports.of("log_damaged")] == [path_of(0, ".log")]


# The offset index: a clean start checks its newest entries only


@pytest.mark.parametrize("position", [300, 1 << 20], ids=["later batch", "behind the end"])
def test_index_entry_that_points_behind_its_batch_hides_no_record(position: int) -> None:
    disk = MemoryDisk()
    log = log_of(disk, 100, segment_bytes=3000)
    second = log.segments[1]
    base, path = second.base_offset, path_of(second.base_offset, ".index")
    there = next(at for at, _, _ in second.scan() if at >= position) if position < second.size else position
    log.close()
    altered(disk, path, 0, (0).to_bytes(4, "big") + there.to_bytes(4, "big"))
    again = start_again(disk, Reports(), 100, clean=True)
    first, _ = next(iterate(again.read(base, up_to=100, bytes_max=10)))
    assert first.base_offset == base


# Unknown names


def test_files_of_unknown_names_are_left_alone() -> None:
    disk = MemoryDisk()
    log_of(disk, 3).close()
    names = ["x.log", "copy of 0.index", "notes.snapshot", "lost+found", f"{0:020d}.log~"]
    for name in names:
        disk.open(f"{DIRECTORY}/{name}")
    again = start_again(disk, Reports(), 3)
    assert [value for _, value in read_all(again)] == [b"0", b"1", b"2"]
    assert set(names) <= set(disk.listdir(DIRECTORY))


# The small files


@pytest.mark.parametrize("text", ["version: 0\ntopic_id: abc", "version: 0\ntopic_id: ünïünïünïünïünïünïün"])
def test_invalid_topic_id_is_refused_by_name(text: str) -> None:
    disk = MemoryDisk()
    disk.write_atomically("x/partition.metadata", text.ljust(45, "A").encode())
    with pytest.raises(CorruptCheckpoint, match="partition"):
        read_topic_id(disk, "x/partition.metadata")


def test_checkpoint_with_too_large_an_offset_is_refused_by_name() -> None:
    disk = MemoryDisk()
    disk.write_atomically("x/recovery-point", b"0\n1\nt 0 %d\n" % (2**63))
    with pytest.raises(CorruptCheckpoint, match="recovery-point: line 3"):
        read_offsets(disk, "x/recovery-point")


# Internal topics


@pytest.mark.parametrize(
    ("topic", "event"),
    [("__consumer_offsets", "groups_not_loaded"), ("__transaction_state", "transactions_not_loaded")],
)
def test_changed_records_of_the_coordinators_are_refused(topic: str, event: str) -> None:
    target = FuzzedBroker.open()
    target.run(target.other_client.leave())
    target.run(target.node.stop())
    for path in [path for path in target.disk._names if f"/{topic}-" in path and path.endswith(".log")]:
        data = target.disk.read_bytes(path)
        if data:
            altered(target.disk, path, len(data) - 3, bytes([data[-3] ^ 1]))
    target.run(target.start())
    target.run(target.pass_time(1))
    assert any(line.startswith(event) and f"{topic}-" in line for line in target.log.lines)
