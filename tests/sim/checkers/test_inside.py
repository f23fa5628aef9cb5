"""wrong-txn, sequence-gap, fence-violation in the log, stuck-LSO, lost-topic, restored-record, undrained."""

from __future__ import annotations

import pytest

from sim.checkers.history_builder import T0, HistoryBuilder
from sim.final import CoordinatorDecision, LogBatch


def data(offset: int, epoch: int, sequence: int, count: int = 1, *, producer: int = 7) -> LogBatch:
    return LogBatch(offset, offset + count - 1, producer, epoch, sequence, sequence + count - 1, True)


def marker(offset: int, epoch: int, kind: str = "commit", *, producer: int = 7) -> LogBatch:
    return LogBatch(offset, offset, producer, epoch, -1, -1, True, kind)


def test_each_transaction_under_its_own_marker_is_right() -> None:
    builder = HistoryBuilder()
    shop = builder.recorder("shop")
    builder.transaction(shop, ("a", 0, 0))
    builder.transaction(shop, ("b", 0, 2), end="aborted")
    batches = [data(0, 0, 0), marker(1, 1), data(2, 1, 0), marker(3, 2, "abort")]
    builder.ends([(0, "a")], aborted=[(2, "b")], batches=batches)
    builder.final.decisions = [
        CoordinatorDecision("shop", "PrepareCommit", 7, 1, (T0,)),
        CoordinatorDecision("shop", "CompleteCommit", 7, 1, ()),
        CoordinatorDecision("shop", "PrepareAbort", 7, 2, (T0,)),
        CoordinatorDecision("shop", "CompleteAbort", 7, 2, ()),
    ]
    assert builder.found() == []


def test_two_transactions_under_one_marker() -> None:
    builder = HistoryBuilder()
    shop = builder.recorder("shop")
    builder.transaction(shop, ("a", 0, 0))
    builder.transaction(shop, ("b", 0, 1))
    builder.ends([(0, "a"), (1, "b")], batches=[data(0, 0, 0), data(1, 0, 1), marker(2, 0)])
    assert builder.found() == ["wrong-txn"]


def test_a_marker_that_contradicts_the_decision() -> None:
    builder = HistoryBuilder()
    builder.transaction(builder.recorder("shop"), ("a", 0, 0))
    builder.ends([(0, "a")], batches=[data(0, 0, 0), marker(1, 1, "abort")])
    assert builder.found() == ["wrong-txn"]


def test_a_marker_of_an_older_epoch_than_its_records() -> None:
    builder = HistoryBuilder()
    builder.transaction(builder.recorder("shop"), ("a", 0, 0))
    builder.ends([(0, "a")], batches=[data(0, 3, 0), marker(1, 2)])
    assert builder.found() == ["fence-violation", "wrong-txn"]


def test_a_marker_without_a_decision_and_a_decision_without_its_marker() -> None:
    for decided in ((8, 1), (7, 2)):
        builder = HistoryBuilder()
        builder.transaction(builder.recorder("shop"), ("a", 0, 0))
        builder.ends([(0, "a")], batches=[data(0, 0, 0), marker(1, 1)])
        builder.final.decisions = [CoordinatorDecision("shop", "PrepareCommit", *decided, (T0,))]
        assert builder.found() == ["wrong-txn"]

    builder = HistoryBuilder()
    builder.transaction(builder.recorder("shop"), ("a", 0, 0))
    builder.ends([(0, "a")], batches=[data(0, 0, 0)])
    builder.final.decisions = [
        CoordinatorDecision("shop", "PrepareCommit", 7, 1, (T0,)),
        CoordinatorDecision("shop", "CompleteCommit", 7, 1, ()),
    ]
    assert builder.found() == ["wrong-txn"]


def test_sequences_start_at_0_and_have_no_gaps() -> None:
    for batches, expected in (
        ([data(0, 0, 0, 3), data(3, 0, 3), data(4, 1, 0)], []),
        ([data(0, 0, 0, 3), data(3, 0, 4)], ["sequence-gap"]),
        ([data(0, 0, 0, 3), data(3, 0, 2)], ["sequence-gap"]),
        ([data(0, 0, 2)], ["sequence-gap"]),
        ([data(0, 0, 0), data(1, 1, 1)], ["sequence-gap"]),
    ):
        builder = HistoryBuilder()
        builder.ends([], batches=batches)
        assert builder.found() == expected, batches


def test_a_log_that_lost_the_first_batches_of_a_producer_knows_nothing_of_it() -> None:
    for epoch, expected in ((0, []), (1, ["sequence-gap"])):
        builder = HistoryBuilder()
        builder.send(builder.recorder("shop"), "a")
        builder.ends([], batches=[data(0, 0, 2), data(1, epoch, 3)])
        assert builder.found() == expected


def test_the_sequence_wraps_to_0() -> None:
    builder = HistoryBuilder()
    builder.ends([], start_offset=4, batches=[data(4, 0, 0x7FFFFFFF), data(5, 0, 0)])
    assert builder.found() == []


def test_an_old_epoch_behind_a_new_one() -> None:
    builder = HistoryBuilder()
    builder.ends([], batches=[data(0, 1, 0), data(1, 0, 0)])
    assert builder.found() == ["fence-violation"]


def test_the_last_stable_offset_reaches_the_high_watermark() -> None:
    builder = HistoryBuilder()
    builder.send(builder.recorder("shop"), "a", 0)
    builder.ends([(0, "a")], stable=0)
    assert builder.found() == ["stuck-LSO"]


def changes(
    *asked: tuple[str, str, bool], partitions: int | None = None, configs: dict[str, str] | None = None
) -> HistoryBuilder:
    builder = HistoryBuilder()
    boss = builder.recorder("boss")
    for change, detail, is_acknowledged in asked:
        op = boss.asking(change, "x", detail)
        if is_acknowledged:
            boss.changed(op)
    if partitions is not None:
        builder.final.topics["x"] = partitions
    if configs is not None:
        builder.final.configs["x"] = configs
    return builder


def test_acknowledged_changes_of_topics_hold() -> None:
    assert changes(("create", "2", True), partitions=2).found() == []
    assert changes(("create", "2", True)).found() == ["lost-topic"]
    assert changes(("create", "2", False)).found() == []
    assert changes(("create", "2", True), ("grow", "3", True), partitions=3).found() == []
    assert changes(("create", "2", True), ("grow", "3", True), partitions=2).found() == ["lost-topic"]
    assert changes(("create", "2", True), ("grow", "3", False), partitions=2).found() == []
    assert changes(("create", "2", True), ("delete", "", True)).found() == []
    assert changes(("create", "2", True), ("delete", "", True), partitions=2).found() == ["lost-topic"]
    assert changes(("create", "2", True), ("delete", "", False), partitions=2).found() == []
    # The create request may have been sent twice: the second one may arrive after the deletion.
    assert changes(("create", "2", False), ("delete", "", True), partitions=2).found() == []
    # It creates a new topic, with the original number of partitions.
    grown = (("create", "2", False), ("grow", "3", True))
    assert changes(*grown, ("delete", "", True), partitions=2).found() == []
    assert changes(*grown, ("delete", "", True), partitions=4).found() == ["lost-topic"]
    assert changes(*grown, partitions=2).found() == ["lost-topic"]


@pytest.mark.parametrize(
    ("detail", "is_acknowledged", "keeps", "expected"),
    [
        ("0:2", True, True, ["restored-record"]),
        ("0:2", False, True, []),
        ("0:2", True, False, []),
        ("0:1", True, True, []),
        ("1:2", True, True, []),
    ],
)
def test_acknowledged_deletions_of_records_hold(
    detail: str, is_acknowledged: bool, keeps: bool, expected: list[str]
) -> None:
    builder = HistoryBuilder()
    builder.final.keeps_deletions = keeps
    builder.send(builder.recorder("shop"), "b", 1)
    boss = builder.recorder("boss")
    asked = boss.asking("delete-records", "t", detail)
    if is_acknowledged:
        boss.changed(asked)
    builder.ends([(1, "b")], start_offset=1)
    assert [name for name in builder.found() if name != "lost-topic"] == expected


def test_acknowledged_settings_hold() -> None:
    made = ("create", "1", True)
    for last, configs, expected in (
        (("configure", "a=2", True), {"a": "2"}, []),
        (("configure", "a=2", True), {"a": "1"}, ["lost-topic"]),
        (("configure", "a=2", False), {"a": "1"}, []),
        (("configure", "a=2", False), {}, ["lost-topic"]),
    ):
        builder = changes(made, ("configure", "a=1", True), last, partitions=1, configs=configs)
        assert builder.found() == expected


def test_a_setting_that_was_asked_for_without_an_answer_may_come_late() -> None:
    asked = (("create", "1", True), ("configure", "a=1", False), ("configure", "a=2", True))
    assert changes(*asked, partitions=1, configs={"a": "1"}).found() == []
    assert changes(*asked, partitions=1, configs={"a": "0"}).found() == ["lost-topic"]


def test_a_topic_made_anew_by_a_late_request_has_none_of_the_settings_of_the_first() -> None:
    asked = (("create", "1", False), ("configure", "a=1", True))
    assert changes(*asked, ("delete", "", True), partitions=1, configs={"a": "0"}).found() == []
    assert changes(*asked, partitions=1, configs={"a": "0"}).found() == ["lost-topic"]


def test_a_client_that_cannot_finish_is_reported() -> None:
    builder = HistoryBuilder()
    builder.final.undrained.append("worker waits for ever")
    assert builder.found() == ["undrained"]
