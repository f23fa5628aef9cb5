"""A sound log has no breach; each damage breaks exactly one check, for every split of the log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from semel_protocol.batch import CHECKED_AT, EPOCH, EPOCH_AT, HEADER_BYTES, read_header, seal, stamp
from semel_protocol.control import ControlType, EndTxnMarker, build_marker
from semel_protocol.records import Record, build_batch
from semel_storage.check import data_dir, range_facts
from semel_storage.check.checks import Check
from semel_storage.check.data_dir import NoDataError, SegmentRange, aborted_in_index, read, segment_ranges
from semel_storage.check.partition_result import CheckedPartition, combine
from semel_storage.check.range_facts import examine

ABORTED = data_dir.ABORTED
Batch = bytes


class BatchSequence:
    """Consecutive batches, and their segments."""

    def __init__(self) -> None:
        self.batches: list[bytearray] = []
        self.next_offset = 0

    def add(self, batch: bytes, skip: int = 0, leader_epoch: int = 0) -> int:
        """Append a batch after `skip` missing offsets; return its base offset."""
        made = bytearray(batch)
        offset = self.next_offset + skip
        stamp(made, offset, leader_epoch)
        self.next_offset = read_header(made).next_offset
        self.batches.append(made)
        return offset

    def data(self, producer_id: int, epoch: int, sequence: int, count: int = 2, txn: bool = False, **place: int) -> int:
        records = [Record(n, 1000 + n, None, b"v" * 40) for n in range(count)]
        names = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
        return self.add(build_batch(records, is_transactional=txn, **names), **place)

    def marker(self, producer_id: int, epoch: int, commit: bool = True, coordinator_epoch: int = 0) -> int:
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        marker = EndTxnMarker(kind, coordinator_epoch)
        return self.add(build_marker(marker, producer_id=producer_id, producer_epoch=epoch, timestamp_ms=2000))

    def write(self, directory: Path, segment_batches: int = 10_000, name: str = "t-0") -> Path:
        partition = directory / name
        partition.mkdir(parents=True, exist_ok=True)
        for at in range(0, len(self.batches), segment_batches):
            some = self.batches[at : at + segment_batches]
            (partition / f"{read_header(some[0]).base_offset:020d}.log").write_bytes(b"".join(some))
        return directory


def sound() -> BatchSequence:
    """Plain and idempotent batches, transactions of both versions, an aborted one, a bumped epoch."""
    log = BatchSequence()
    log.data(-1, -1, -1)
    for n in range(6):
        log.data(7, 0, 2 * n)
    for epoch in range(5):  # transaction version 2: an epoch per transaction
        log.data(8, epoch, 0, txn=True)
        log.data(9, 3, 4 * epoch, txn=True)
        log.data(8, epoch, 2, txn=True)
        log.data(9, 3, 4 * epoch + 2, txn=True)
        log.marker(8, epoch + 1)
        log.marker(9, 3)  # version 1: one epoch for all transactions
    log.data(7, 1, 0, leader_epoch=2)
    return log


def audited(directory: Path, aborted: bool = False, **settings: tuple[str, ...]) -> CheckedPartition:
    parts = segment_ranges(directory, **settings)
    pieces = [facts for part in parts for facts in examine(part, read)]
    index = aborted_in_index(directory / "t-0") if aborted else None
    return combine("t", 0, pieces, parts[0].is_compacted, index)


@pytest.fixture(params=[1 << 25, 1, 700], ids=["one piece", "a batch a piece", "small pieces"])
def _cut(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_facts, "RANGE_BYTES", request.param)


@pytest.mark.usefixtures("_cut")
@pytest.mark.parametrize("segment_batches", [10_000, 1, 3])
class TestWhereverItIsCut:
    def test_a_sound_log_has_no_breach(self, tmp_path: Path, segment_batches: int) -> None:
        log = sound()
        found = audited(log.write(tmp_path, segment_batches))
        assert found.breaches.counts == {}
        assert (found.batches, found.end_offset, found.commits) == (len(log.batches), log.next_offset, 10)
        assert found.records == log.next_offset - 10
        assert found.open == []
        assert found.last_stable_offset == found.end_offset

    @pytest.mark.parametrize(
        ("check", "damage"),
        [
            (Check.OFFSETS, lambda log: log.data(-1, -1, -1, skip=1)),
            (Check.OFFSETS, lambda log: log.data(-1, -1, -1, skip=-1)),
            (Check.LEADER_EPOCHS, lambda log: log.data(-1, -1, -1, leader_epoch=1)),
            (Check.PRODUCER_EPOCHS, lambda log: log.data(7, 0, 12)),
            (Check.SEQUENCES, lambda log: log.data(7, 1, 3)),
            (Check.SEQUENCES, lambda log: log.data(7, 2, 5)),
            (Check.REPEATS, lambda log: log.data(7, 1, 0)),
            (Check.MARKERS, lambda log: log.marker(9, 3)),
            (Check.COORDINATOR_EPOCHS, lambda log: (log.marker(10, 1, coordinator_epoch=4), log.marker(10, 2))),
            (Check.TRANSACTIONS, lambda log: (log.data(8, 5, 0, txn=True), log.data(8, 6, 0, txn=True))),
            (Check.TRANSACTIONS, lambda log: (log.data(8, 5, 0, txn=True), log.data(8, 5, 2))),
        ],
    )
    def test_each_damage_is_reported_once_by_its_own_check(
        self, tmp_path: Path, segment_batches: int, check: Check, damage: Callable[[BatchSequence], object]
    ) -> None:
        log = sound()
        leads = 1 if check is Check.LEADER_EPOCHS else 2
        damage(log)
        for batch in log.batches[len(sound().batches) :]:
            EPOCH.pack_into(batch, EPOCH_AT, leads)
        found = audited(log.write(tmp_path, segment_batches))
        assert found.breaches.counts == {check: 1}
        assert [each.check for each in found.breaches.noted] == [check]

    def test_open_transactions_are_reported_with_their_first_offset(self, tmp_path: Path, segment_batches: int) -> None:
        log = sound()
        first = log.data(8, 5, 0, txn=True, leader_epoch=2)
        log.data(7, 1, 2, leader_epoch=2)
        second = log.data(9, 3, 20, txn=True, leader_epoch=2)
        log.data(8, 5, 2, txn=True, leader_epoch=2)
        found = audited(log.write(tmp_path, segment_batches))
        assert found.breaches.counts == {}
        assert [(each.producer_id, each.first_offset) for each in found.open] == [(8, first), (9, second)]
        assert found.last_stable_offset == first

    def test_an_aborted_transaction_is_in_the_index_from_its_first_batch(
        self, tmp_path: Path, segment_batches: int
    ) -> None:
        log = sound()
        first = log.data(8, 5, 0, txn=True, leader_epoch=2)
        log.data(8, 5, 2, txn=True, leader_epoch=2)
        marker = log.marker(8, 6, commit=False)
        EPOCH.pack_into(log.batches[-1], EPOCH_AT, 2)
        log.write(tmp_path, segment_batches)
        assert audited(tmp_path, aborted=True).breaches.counts == {Check.ABORTED_INDEX: 1}
        index = tmp_path / "t-0" / f"{0:020d}.txnindex"
        index.write_bytes(ABORTED.pack(0, 8, first + 1, marker, marker))
        assert audited(tmp_path, aborted=True).breaches.counts == {Check.ABORTED_INDEX: 1}
        index.write_bytes(ABORTED.pack(0, 8, first, marker, marker))
        assert audited(tmp_path, aborted=True).breaches.counts == {}

    def test_a_flipped_bit_breaks_the_crc(self, tmp_path: Path, segment_batches: int) -> None:
        log = sound()
        log.batches[3][HEADER_BYTES + 5] ^= 1
        found = audited(log.write(tmp_path, segment_batches))
        assert found.breaches.counts == {Check.CRC: 1}
        assert found.breaches.noted[0].offset == 6

    def test_a_log_without_its_retained_head_is_sound(self, tmp_path: Path, segment_batches: int) -> None:
        log = sound()
        for gone in range(len(log.batches) - 1):
            log.batches = sound().batches[gone:]
            found = audited(log.write(tmp_path / str(gone), segment_batches))
            assert found.breaches.counts == {}, gone

    def test_compaction_may_leave_gaps_but_no_duplicates(self, tmp_path: Path, segment_batches: int) -> None:
        log = sound()
        del log.batches[2], log.batches[7:9]
        log.write(tmp_path, segment_batches)
        assert audited(tmp_path).breaches.counts != {}
        assert audited(tmp_path, compacted=("t",)).breaches.counts == {}
        (tmp_path / "t-0" / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 40\n")
        assert audited(tmp_path).breaches.counts == {}
        log.data(7, 1, 0, leader_epoch=2)
        log.write(tmp_path, segment_batches)
        assert audited(tmp_path).breaches.counts == {Check.REPEATS: 1}


def test_a_sequence_may_wrap(tmp_path: Path) -> None:
    log = BatchSequence()
    log.data(7, 0, 0x7FFFFFFE, count=3)
    log.data(7, 0, 1)
    assert audited(log.write(tmp_path)).breaches.counts == {}


@pytest.mark.parametrize("lost", [1, 40, 61, 100, 150])
def test_a_torn_tail_is_a_breach_except_in_the_newest_segment(tmp_path: Path, lost: int) -> None:
    log = sound()
    log.write(tmp_path, 10)
    older, newest = sorted((tmp_path / "t-0").glob("*.log"))[-2:]
    newest.write_bytes(newest.read_bytes()[:-lost])
    found = audited(tmp_path)
    assert found.breaches.counts == {}
    assert found.torn_bytes > 0
    older.write_bytes(older.read_bytes()[:-lost])
    assert audited(tmp_path).breaches.counts[Check.BATCH] == 1


def test_a_torn_batch_below_the_recovery_point_is_a_breach(tmp_path: Path) -> None:
    log = sound()
    log.write(tmp_path)
    (tmp_path / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {log.next_offset}\n")
    (path,) = (tmp_path / "t-0").glob("*.log")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert audited(tmp_path).breaches.counts == {Check.BATCH: 1}
    path.write_bytes(whole[:-1] + b"\xff")
    assert audited(tmp_path).breaches.counts == {Check.CRC: 1}
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    found = audited(tmp_path)
    assert found.breaches.counts == {}
    assert found.torn_bytes == len(log.batches[-1])


def test_a_wrong_record_count_or_timestamp_is_a_breach(tmp_path: Path) -> None:
    log = sound()
    log.batches[1][HEADER_BYTES - 1] += 1
    log.batches[4][CHECKED_AT + 6] = 0x7F  # the first timestamp, far beyond the latest
    for at in (1, 4):
        seal(log.batches[at])
    assert audited(log.write(tmp_path)).breaches.counts == {Check.COUNTS: 1, Check.TIMESTAMPS: 1}


def test_a_segment_is_split_by_its_index_and_a_wrong_index_is_a_breach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_dir, "RANGE_BYTES", 600)
    log = sound()
    log.write(tmp_path, 20)
    first = sorted((tmp_path / "t-0").glob("*.log"))[0]
    at = len(b"".join(log.batches[:8]))
    first.with_suffix(".index").write_bytes(b"".join(n.to_bytes(4, "big") for n in (15, at)))
    assert [part.start for part in segment_ranges(tmp_path)][:2] == [0, at]
    assert audited(tmp_path).breaches.counts == {}
    first.with_suffix(".index").write_bytes(b"".join(n.to_bytes(4, "big") for n in (15, at + 1)))
    assert audited(tmp_path).breaches.counts[Check.BATCH] >= 1


def test_a_segment_removed_by_retention_is_no_breach(tmp_path: Path) -> None:
    sound().write(tmp_path, 5)
    gone = sorted((tmp_path / "t-0").glob("*.log"))[1]

    def losing(segment_range: SegmentRange, at: int, size: int) -> memoryview:
        gone.unlink(missing_ok=True)
        return read(segment_range, at, size)

    parts = segment_ranges(tmp_path)
    found = combine("t", 0, [facts for part in parts for facts in examine(part, losing)], False, None)
    assert found.breaches.counts == {}
    assert found.gone == 1


def test_a_folder_without_logs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NoDataError, match=r"name the log\.dir of a broker"):
        segment_ranges(tmp_path)
    sound().write(tmp_path)
    with pytest.raises(NoDataError, match="none of flights"):
        segment_ranges(tmp_path, topics=("flights",))
