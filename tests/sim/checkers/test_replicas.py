"""replica-divergence and false-commit, on replicas made by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sim.checkers.history_builder import T0, HistoryBuilder
from sim.checkers.replicas import differences
from sim.final import ReplicaLog, StoredRecord

PLAIN = ReplicaLog(
    broker="broker-1",
    end_offset=6,
    high_watermark=6,
    last_stable_offset=6,
    batches=[(0, b"zero"), (2, b"two"), (5, b"five")],
    producers=[(7, 0, 5, 5, -1, -1)],
    aborted=[(7, 0, 2)],
    groups={"g t-0": 4},
)


def other(**changes: Any) -> ReplicaLog:
    return msgspec.structs.replace(PLAIN, broker="broker-2", **changes)


def test_replicas_that_are_equal_are_fine() -> None:
    builder = HistoryBuilder()
    builder.ends([])
    builder.final.replicas = {T0: [PLAIN, other(), other()]}
    assert builder.found() == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batches": [(0, b"zero"), (2, b"tvo"), (5, b"five")]}, "from byte 1 on"),
        ({"batches": [(0, b"zero"), (3, b"two"), (5, b"five")]}, "begins at 2, and at 3"),
        ({"batches": [(0, b"zero"), (2, b"two")], "end_offset": 5}, "they end at 6 and 5"),
        ({"batches": [(0, b"zero"), (2, b"two")]}, "3 and 2 batches"),
        ({"high_watermark": 5}, "high watermark is 6 and 5"),
        ({"last_stable_offset": 2}, "last stable offset is 6 and 2"),
        ({"producers": [(7, 1, 5, 5, -1, -1)]}, "producer"),
        ({"producers": []}, "producer"),
        ({"aborted": []}, "aborted transactions"),
        ({"groups": {"g t-0": 3}}, "group offsets"),
    ],
)
def test_each_difference_is_reported(changes: dict[str, Any], words: str) -> None:
    builder = HistoryBuilder()
    builder.ends([])
    builder.final.replicas = {T0: [PLAIN, other(), other(**changes)]}
    assert builder.found() == ["replica-divergence"]
    assert any(words in what for what in differences(PLAIN, other(**changes)))


def test_logs_may_delete_their_beginnings_at_different_times() -> None:
    shorter = other(start_offset=5, batches=[(5, b"five")], aborted=[])
    assert list(differences(PLAIN, shorter)) == []
    assert list(differences(shorter, PLAIN)) == []


def test_records_above_the_high_watermark_are_not_compared() -> None:
    longer = other(end_offset=8, batches=[*PLAIN.batches, (6, b"six")])
    assert list(differences(PLAIN, longer)) == []


def compacted(*records: StoredRecord) -> ReplicaLog:
    return msgspec.structs.replace(PLAIN, batches=[], records=list(records))


FIRST, SECOND = StoredRecord(0, b"k", b"1"), StoredRecord(3, b"k", b"2")


def test_a_log_may_have_been_compacted_and_its_twin_not() -> None:
    bare = StoredRecord(4, b"gone", b"", is_bare=True)
    for one, two in (
        ((FIRST, SECOND), (SECOND,)),
        ((FIRST, SECOND, bare), (FIRST, SECOND)),
        ((FIRST, StoredRecord(1, None, b"commit", is_bare=True), SECOND), (SECOND,)),
    ):
        assert list(differences(compacted(*one), compacted(*two))) == []
        assert list(differences(compacted(*two), compacted(*one))) == []


def test_the_last_record_of_a_key_is_in_every_replica_and_the_same() -> None:
    aborted = StoredRecord(5, None, b"aborted", is_bare=True)
    for one, two in (
        ((FIRST, SECOND), (FIRST,)),
        ((FIRST, SECOND), (FIRST, msgspec.structs.replace(SECOND, payload=b"3"))),
        ((FIRST,), (aborted,)),
        ((FIRST, SECOND), ()),
    ):
        assert list(differences(compacted(*one), compacted(*two)))
        assert list(differences(compacted(*two), compacted(*one)))


def test_a_record_committed_too_early_is_reported() -> None:
    builder = HistoryBuilder()
    builder.ends([])
    builder.final.uncommitted = ["t-0: committed up to 5, broker 2 is in sync and has 4"]
    assert builder.found() == ["false-commit"]


@pytest.mark.parametrize(
    ("state", "is_fine"),
    [
        ((7, 0, 5, 5, 11, -1), True),
        ((7, 0, 5, 5, -1, -1), True),
        ((7, 1, 5, 5, 11, -1), False),
        ((7, 0, 5, 5, 11, 3), False),
    ],
)
def test_coordinator_epochs_may_differ_where_markers_are_compacted(state: tuple[int, ...], is_fine: bool) -> None:
    for known in (-1, 12):
        mine = msgspec.structs.replace(compacted(FIRST), producers=[(7, 0, 5, 5, known, -1)])
        yours = msgspec.structs.replace(compacted(FIRST), producers=[state])
        assert (list(differences(mine, yours)) == []) == is_fine


def test_a_producer_may_be_missing_only_where_it_may_have_expired() -> None:
    assert list(differences(PLAIN, other(producers=[], may_have_expired=True))) == []
    assert list(differences(other(producers=[], may_have_expired=True), PLAIN)) == []
    assert list(differences(msgspec.structs.replace(PLAIN, may_have_expired=True), other(producers=[])))
    assert list(differences(PLAIN, other(producers=[(7, 0, 4, 4, -1, -1)], may_have_expired=True)))


def test_a_coordinator_epoch_is_known_where_nothing_is_compacted() -> None:
    assert list(differences(PLAIN, other(producers=[(7, 0, 5, 5, 11, -1)])))
