"""wrong-txn, sequence-gap, fence-violation in the log, stuck-LSO, lost-topic, undrained."""

from __future__ import annotations

from sim.checkers.telling import T0, Tale
from sim.final import Batch, Decision


def data(offset: int, epoch: int, sequence: int, count: int = 1, *, producer: int = 7) -> Batch:
    return Batch(offset, offset + count - 1, producer, epoch, sequence, sequence + count - 1, True)


def marker(offset: int, epoch: int, kind: str = "commit", *, producer: int = 7) -> Batch:
    return Batch(offset, offset, producer, epoch, -1, -1, True, kind)


def test_each_transaction_under_its_own_marker_is_right() -> None:
    tale = Tale()
    shop = tale.witness("shop")
    tale.transaction(shop, ("a", 0, 0))
    tale.transaction(shop, ("b", 0, 2), end="aborted")
    batches = [data(0, 0, 0), marker(1, 1), data(2, 1, 0), marker(3, 2, "abort")]
    tale.ends([(0, "a")], aborted=[(2, "b")], batches=batches)
    tale.final.decisions = [
        Decision("shop", "PrepareCommit", 7, 1, (T0,)),
        Decision("shop", "CompleteCommit", 7, 1, ()),
        Decision("shop", "PrepareAbort", 7, 2, (T0,)),
        Decision("shop", "CompleteAbort", 7, 2, ()),
    ]
    assert tale.found() == []


def test_two_transactions_under_one_marker() -> None:
    tale = Tale()
    shop = tale.witness("shop")
    tale.transaction(shop, ("a", 0, 0))
    tale.transaction(shop, ("b", 0, 1))
    tale.ends([(0, "a"), (1, "b")], batches=[data(0, 0, 0), data(1, 0, 1), marker(2, 0)])
    assert tale.found() == ["wrong-txn"]


def test_a_marker_that_says_the_contrary_of_what_was_decided() -> None:
    tale = Tale()
    tale.transaction(tale.witness("shop"), ("a", 0, 0))
    tale.ends([(0, "a")], batches=[data(0, 0, 0), marker(1, 1, "abort")])
    assert tale.found() == ["wrong-txn"]


def test_a_marker_of_an_older_epoch_than_its_records() -> None:
    tale = Tale()
    tale.transaction(tale.witness("shop"), ("a", 0, 0))
    tale.ends([(0, "a")], batches=[data(0, 3, 0), marker(1, 2)])
    assert tale.found() == ["fence-violation", "wrong-txn"]


def test_a_marker_that_nobody_decided_and_a_decision_without_its_marker() -> None:
    for decided in ((8, 1), (7, 2)):
        tale = Tale()
        tale.transaction(tale.witness("shop"), ("a", 0, 0))
        tale.ends([(0, "a")], batches=[data(0, 0, 0), marker(1, 1)])
        tale.final.decisions = [Decision("shop", "PrepareCommit", *decided, (T0,))]
        assert tale.found() == ["wrong-txn"]

    tale = Tale()
    tale.transaction(tale.witness("shop"), ("a", 0, 0))
    tale.ends([(0, "a")], batches=[data(0, 0, 0)])
    tale.final.decisions = [
        Decision("shop", "PrepareCommit", 7, 1, (T0,)),
        Decision("shop", "CompleteCommit", 7, 1, ()),
    ]
    assert tale.found() == ["wrong-txn"]


def test_sequences_go_on_without_gaps_and_start_at_0() -> None:
    for batches, expected in (
        ([data(0, 0, 0, 3), data(3, 0, 3), data(4, 1, 0)], []),
        ([data(0, 0, 0, 3), data(3, 0, 4)], ["sequence-gap"]),
        ([data(0, 0, 0, 3), data(3, 0, 2)], ["sequence-gap"]),
        ([data(0, 0, 2)], ["sequence-gap"]),
        ([data(0, 0, 0), data(1, 1, 1)], ["sequence-gap"]),
    ):
        tale = Tale()
        tale.ends([], batches=batches)
        assert tale.found() == expected, batches


def test_a_log_that_lost_the_first_batches_of_a_producer_knows_nothing_of_it() -> None:
    for epoch, expected in ((0, []), (1, ["sequence-gap"])):
        tale = Tale()
        tale.send(tale.witness("shop"), "a")
        tale.ends([], batches=[data(0, 0, 2), data(1, epoch, 3)])
        assert tale.found() == expected


def test_the_sequence_wraps_to_0() -> None:
    tale = Tale()
    tale.ends([], start_offset=4, batches=[data(4, 0, 0x7FFFFFFF), data(5, 0, 0)])
    assert tale.found() == []


def test_an_old_epoch_behind_a_new_one() -> None:
    tale = Tale()
    tale.ends([], batches=[data(0, 1, 0), data(1, 0, 0)])
    assert tale.found() == ["fence-violation"]


def test_the_last_stable_offset_reaches_the_high_watermark() -> None:
    tale = Tale()
    tale.send(tale.witness("shop"), "a", 0)
    tale.ends([(0, "a")], stable=0)
    assert tale.found() == ["stuck-LSO"]


def changes(
    *asked: tuple[str, str, bool], partitions: int | None = None, configs: dict[str, str] | None = None
) -> Tale:
    tale = Tale()
    boss = tale.witness("boss")
    for change, detail, is_acknowledged in asked:
        op = boss.asking(change, "x", detail)
        if is_acknowledged:
            boss.changed(op)
    if partitions is not None:
        tale.final.topics["x"] = partitions
    if configs is not None:
        tale.final.configs["x"] = configs
    return tale


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
    # Nobody knows how often this one was asked for: another request of it may arrive after the deletion.
    assert changes(("create", "2", False), ("delete", "", True), partitions=2).found() == []
    # What it makes is a new topic: it knows nothing of how the first one grew.
    grown = (("create", "2", False), ("grow", "3", True))
    assert changes(*grown, ("delete", "", True), partitions=2).found() == []
    assert changes(*grown, ("delete", "", True), partitions=4).found() == ["lost-topic"]
    assert changes(*grown, partitions=2).found() == ["lost-topic"]


def test_acknowledged_settings_hold() -> None:
    made = ("create", "1", True)
    for last, configs, expected in (
        (("configure", "a=2", True), {"a": "2"}, []),
        (("configure", "a=2", True), {"a": "1"}, ["lost-topic"]),
        (("configure", "a=2", False), {"a": "1"}, []),
        (("configure", "a=2", False), {}, ["lost-topic"]),
    ):
        tale = changes(made, ("configure", "a=1", True), last, partitions=1, configs=configs)
        assert tale.found() == expected


def test_a_setting_that_was_asked_for_without_an_answer_may_come_late() -> None:
    asked = (("create", "1", True), ("configure", "a=1", False), ("configure", "a=2", True))
    assert changes(*asked, partitions=1, configs={"a": "1"}).found() == []
    assert changes(*asked, partitions=1, configs={"a": "0"}).found() == ["lost-topic"]


def test_a_topic_made_anew_by_a_late_request_has_none_of_the_settings_of_the_first() -> None:
    asked = (("create", "1", False), ("configure", "a=1", True))
    assert changes(*asked, ("delete", "", True), partitions=1, configs={"a": "0"}).found() == []
    assert changes(*asked, partitions=1, configs={"a": "0"}).found() == ["lost-topic"]


def test_who_cannot_finish_is_told_of() -> None:
    tale = Tale()
    tale.final.undrained.append("worker waits for ever")
    assert tale.found() == ["undrained"]
