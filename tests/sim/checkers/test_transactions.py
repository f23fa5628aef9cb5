"""aborted-read, torn-txn, precommitted-read, G0, G1c, eos-offset, reordered-output, fence-violation."""

from __future__ import annotations

import pytest

from sim.checkers.history_builder import T0, T1, HistoryBuilder
from sim.events import HistoryTopic, Pipeline


def test_a_committed_transaction_is_visible_and_an_aborted_one_is_not() -> None:
    builder = HistoryBuilder()
    shop = builder.recorder("shop")
    builder.transaction(shop, ("a", 0, 0), ("b", 1, 0))
    builder.transaction(shop, ("c", 0, 2), end="aborted")
    builder.ends([(0, "a")], aborted=[(2, "c")])
    builder.ends([(0, "b")], place=T1)
    assert builder.found() == []


def test_a_reader_of_committed_records_must_not_see_an_aborted_one() -> None:
    builder = HistoryBuilder()
    builder.transaction(builder.recorder("shop"), ("a", 0, 0), end="aborted")
    builder.consumer().polled(T0, [0], ["a"])
    builder.ends([], aborted=[(0, "a")])
    assert builder.found() == ["aborted-read"]


def test_a_reader_of_everything_may_see_an_aborted_one() -> None:
    builder = HistoryBuilder()
    builder.transaction(builder.recorder("shop"), ("a", 0, 0), end="aborted")
    builder.consumer(read_committed=False).polled(T0, [0], ["a"])
    builder.ends([], aborted=[(0, "a")])
    assert builder.found() == []


def test_a_transaction_without_a_call_of_commit_must_abort() -> None:
    builder = HistoryBuilder()
    builder.transaction(builder.recorder("shop"), ("a", 0, 0), end="open")
    builder.ends([(0, "a")])
    assert builder.found() == ["aborted-read"]


def test_part_of_a_committed_transaction_hidden_is_torn() -> None:
    builder = HistoryBuilder()
    builder.transaction(builder.recorder("shop"), ("a", 0, 0), ("b", 1, 0))
    builder.ends([(0, "a")])
    builder.ends([], aborted=[(0, "b")], place=T1)
    assert builder.found() == ["torn-txn"]


def test_a_commit_that_succeeds_without_a_record_that_failed_is_torn() -> None:
    for end, expected in (("committed", ["torn-txn"]), ("aborted", [])):
        builder = HistoryBuilder()
        shop = builder.recorder("shop")
        txn = shop.beginning("shop")
        shop.not_stored(builder.send(shop, "a", txn=txn), "too late")
        if end == "committed":
            shop.committing(txn)
            shop.committed(txn)
        else:
            shop.aborted(txn)
        assert builder.found() == expected


def test_a_transaction_of_unknown_outcome_is_all_or_nothing() -> None:
    for in_0, in_1, expected in ((True, True, []), (False, False, []), (True, False, ["torn-txn"])):
        builder = HistoryBuilder()
        builder.transaction(builder.recorder("shop"), ("a", 0, 0), ("b", 1, 0), end="unknown")
        builder.ends([(0, "a")] if in_0 else [], aborted=[] if in_0 else [(0, "a")])
        builder.ends([(0, "b")] if in_1 else [], aborted=[] if in_1 else [(0, "b")], place=T1)
        assert builder.found() == expected


def test_a_record_is_not_to_be_seen_before_its_commit() -> None:
    builder = HistoryBuilder()
    shop = builder.recorder("shop")
    txn = shop.beginning("shop")
    builder.send(shop, "a", 0, txn=txn)
    builder.consumer().polled(T0, [0], ["a"])
    shop.committing(txn)
    shop.committed(txn)
    builder.ends([(0, "a")])
    assert builder.found() == ["precommitted-read"]


def test_transactions_of_one_id_lie_in_their_order_everywhere() -> None:
    for second, third, expected in ((0, 1, []), (1, 0, ["G0"])):
        builder = HistoryBuilder()
        shop = builder.recorder("shop")
        builder.transaction(shop, ("a", 0, 0), ("b", 1, second))
        builder.transaction(shop, ("c", 0, 1), ("d", 1, third))
        builder.ends([(0, "a"), (1, "c")])
        builder.ends(sorted([(second, "b"), (third, "d")]), place=T1)
        assert [name for name in builder.found() if name != "nonmonotonic-send"] == expected


def test_transactions_of_different_ids_may_interleave() -> None:
    builder = HistoryBuilder()
    builder.transaction(builder.recorder("shop"), ("a", 0, 0), ("b", 1, 1))
    builder.transaction(builder.recorder("bank"), ("c", 0, 1), ("d", 1, 0))
    builder.ends([(0, "a"), (1, "c")])
    builder.ends([(0, "d"), (1, "b")], place=T1)
    assert builder.found() == []


def test_two_transactions_that_read_each_other_are_a_cycle() -> None:
    builder = HistoryBuilder()
    shop, bank, reader = builder.recorder("shop"), builder.recorder("bank"), builder.consumer()
    one, two = shop.beginning("shop"), bank.beginning("bank")
    builder.send(shop, "a", 0, txn=one)
    builder.send(bank, "b", 0, partition=1, txn=two)
    shop.committing(one)
    bank.committing(two)
    reader.polled(T1, [0], ["b"], txn=one)
    builder.consumer("other").polled(T0, [0], ["a"], txn=two)
    shop.committed(one)
    bank.committed(two)
    builder.ends([(0, "a")])
    builder.ends([(0, "b")], place=T1)
    assert builder.found() == ["G1c"]


@pytest.mark.parametrize("writes", [False, True])
def test_a_transaction_without_writes_has_no_order(writes: bool) -> None:
    """Its producer may be fenced: the commit of an empty transaction sends no request."""
    builder = HistoryBuilder()
    old, new, reader = builder.recorder("old"), builder.recorder("new"), builder.consumer()
    zombie = old.beginning("shop")
    txn = new.beginning("shop")
    builder.send(new, "a", 0, txn=txn)
    new.committing(txn)
    new.committed(txn)
    reader.polled(T0, [0], ["a"], txn=zombie)
    if writes:
        builder.send(old, "b", 0, partition=1, txn=zombie)
    old.committing(zombie)
    old.committed(zombie)
    builder.ends([(0, "a")])
    builder.ends([(0, "b")] if writes else [], place=T1)
    assert ("G1c" in builder.found()) == writes


def pipeline(outputs: list[tuple[int, str]], committed: int) -> HistoryBuilder:
    """A pipeline with inputs "in0" and "in1"; "x" and "x2" are outputs of "in0", "y" of "in1"."""
    builder = HistoryBuilder()
    builder.history.declare(HistoryTopic("out", 1), pipelines=[Pipeline("work", "t", "out")])
    shop, worker = builder.recorder("shop"), builder.recorder("worker")
    builder.send(shop, "in0", 0)
    builder.send(shop, "in1", 1)
    reader = builder.consumer("reader", group="work")
    reader.assigned([T0])
    reader.polled(T0, [0, 1], ["in0", "in1"])
    txn = worker.beginning("worker")
    for offset, value in outputs:
        made_from = {"x": "in0", "y": "in1", "x2": "in0"}[value]
        builder.send(worker, value, offset, topic="out", txn=txn, made_from=made_from)
    worker.committing_offsets("work", {T0: committed}, txn=txn)
    worker.committing(txn)
    worker.committed(txn)
    builder.ends([(0, "in0"), (1, "in1")])
    builder.ends(outputs, place=("out", 0))
    builder.final.groups["work"] = {T0: committed}
    return builder


def test_one_output_for_each_input_below_the_offset() -> None:
    assert pipeline([(0, "x"), (1, "y")], 2).found() == []
    assert pipeline([(0, "x")], 1).found() == []


def test_an_input_without_output_or_with_two_or_ahead_of_the_offset() -> None:
    assert pipeline([(0, "x")], 2).found() == ["eos-offset"]
    assert pipeline([(0, "x"), (1, "x2")], 1).found() == ["eos-offset"]
    assert pipeline([(0, "x"), (1, "y")], 1).found() == ["eos-offset"]


def test_outputs_have_the_order_of_their_inputs() -> None:
    assert pipeline([(0, "y"), (1, "x")], 2).found() == ["reordered-output"]


def test_an_old_instance_must_not_succeed_after_the_new_one_has_started() -> None:
    for late, expected in ((False, []), (True, ["fence-violation"])):
        builder = HistoryBuilder()
        old, new = builder.recorder("shop"), builder.recorder("shop")
        old.initialized("shop", since_ms=builder.tick())
        txn = old.beginning("shop")
        if not late:
            builder.send(old, "a", 0, txn=txn)
        new.initialized("shop", since_ms=builder.tick())
        if late:
            builder.send(old, "a", 0, txn=txn)
        old.aborted(txn)
        builder.ends([], aborted=[(0, "a")])
        assert builder.found() == expected


def test_a_commit_begun_after_the_fence_must_not_succeed() -> None:
    builder = HistoryBuilder()
    old, new = builder.recorder("shop"), builder.recorder("shop")
    old.initialized("shop", since_ms=builder.tick())
    txn = old.beginning("shop")
    builder.send(old, "a", 0, txn=txn)
    new.initialized("shop", since_ms=builder.tick())
    old.committing(txn)
    old.committed(txn)
    builder.ends([(0, "a")])
    assert builder.found() == ["fence-violation"]


def test_the_epochs_order_two_overlapping_initializations() -> None:
    for epochs, expected in (((0, 1), ["fence-violation"]), ((1, 0), [])):
        builder = HistoryBuilder()
        one, two = builder.recorder("shop"), builder.recorder("shop")
        since = builder.tick()
        one.initialized("shop", since_ms=since, producer_id=7, producer_epoch=epochs[0])
        two.initialized("shop", since_ms=since, producer_id=7, producer_epoch=epochs[1])
        builder.transaction(one, ("a", 0, 0))
        builder.ends([(0, "a")])
        assert builder.found() == expected
