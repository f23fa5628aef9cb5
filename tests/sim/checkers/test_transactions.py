"""aborted-read, torn-txn, precommitted-read, G0, G1c, eos-offset, fence-violation."""

from __future__ import annotations

import pytest

from sim.checkers.telling import T0, T1, Tale
from sim.events import Pipeline, Topic


def test_a_committed_transaction_is_visible_and_an_aborted_one_is_not() -> None:
    tale = Tale()
    shop = tale.witness("shop")
    tale.transaction(shop, ("a", 0, 0), ("b", 1, 0))
    tale.transaction(shop, ("c", 0, 2), end="aborted")
    tale.ends([(0, "a")], aborted=[(2, "c")])
    tale.ends([(0, "b")], place=T1)
    assert tale.found() == []


def test_a_reader_of_committed_records_must_not_see_an_aborted_one() -> None:
    tale = Tale()
    tale.transaction(tale.witness("shop"), ("a", 0, 0), end="aborted")
    tale.consumer().polled(T0, [0], ["a"])
    tale.ends([], aborted=[(0, "a")])
    assert tale.found() == ["aborted-read"]


def test_a_reader_of_everything_may_see_an_aborted_one() -> None:
    tale = Tale()
    tale.transaction(tale.witness("shop"), ("a", 0, 0), end="aborted")
    tale.consumer(read_committed=False).polled(T0, [0], ["a"])
    tale.ends([], aborted=[(0, "a")])
    assert tale.found() == []


def test_a_transaction_whose_commit_nobody_asked_for_has_to_abort() -> None:
    tale = Tale()
    tale.transaction(tale.witness("shop"), ("a", 0, 0), end="open")
    tale.ends([(0, "a")])
    assert tale.found() == ["aborted-read"]


def test_part_of_a_committed_transaction_hidden_is_torn() -> None:
    tale = Tale()
    tale.transaction(tale.witness("shop"), ("a", 0, 0), ("b", 1, 0))
    tale.ends([(0, "a")])
    tale.ends([], aborted=[(0, "b")], place=T1)
    assert tale.found() == ["torn-txn"]


def test_a_commit_that_succeeds_without_a_record_that_failed_is_torn() -> None:
    for end, expected in (("committed", ["torn-txn"]), ("aborted", [])):
        tale = Tale()
        shop = tale.witness("shop")
        txn = shop.beginning("shop")
        shop.not_stored(tale.send(shop, "a", txn=txn), "too late")
        if end == "committed":
            shop.committing(txn)
            shop.committed(txn)
        else:
            shop.aborted(txn)
        assert tale.found() == expected


def test_a_transaction_of_unknown_outcome_is_all_or_nothing() -> None:
    for in_0, in_1, expected in ((True, True, []), (False, False, []), (True, False, ["torn-txn"])):
        tale = Tale()
        tale.transaction(tale.witness("shop"), ("a", 0, 0), ("b", 1, 0), end="unknown")
        tale.ends([(0, "a")] if in_0 else [], aborted=[] if in_0 else [(0, "a")])
        tale.ends([(0, "b")] if in_1 else [], aborted=[] if in_1 else [(0, "b")], place=T1)
        assert tale.found() == expected


def test_a_record_is_not_to_be_seen_before_its_commit() -> None:
    tale = Tale()
    shop = tale.witness("shop")
    txn = shop.beginning("shop")
    tale.send(shop, "a", 0, txn=txn)
    tale.consumer().polled(T0, [0], ["a"])
    shop.committing(txn)
    shop.committed(txn)
    tale.ends([(0, "a")])
    assert tale.found() == ["precommitted-read"]


def test_transactions_of_one_id_lie_in_their_order_everywhere() -> None:
    for second, third, expected in ((0, 1, []), (1, 0, ["G0"])):
        tale = Tale()
        shop = tale.witness("shop")
        tale.transaction(shop, ("a", 0, 0), ("b", 1, second))
        tale.transaction(shop, ("c", 0, 1), ("d", 1, third))
        tale.ends([(0, "a"), (1, "c")])
        tale.ends(sorted([(second, "b"), (third, "d")]), place=T1)
        assert [name for name in tale.found() if name != "nonmonotonic-send"] == expected


def test_transactions_of_different_ids_may_interleave() -> None:
    tale = Tale()
    tale.transaction(tale.witness("shop"), ("a", 0, 0), ("b", 1, 1))
    tale.transaction(tale.witness("bank"), ("c", 0, 1), ("d", 1, 0))
    tale.ends([(0, "a"), (1, "c")])
    tale.ends([(0, "d"), (1, "b")], place=T1)
    assert tale.found() == []


def test_two_transactions_that_read_each_other_are_a_cycle() -> None:
    tale = Tale()
    shop, bank, reader = tale.witness("shop"), tale.witness("bank"), tale.consumer()
    one, two = shop.beginning("shop"), bank.beginning("bank")
    tale.send(shop, "a", 0, txn=one)
    tale.send(bank, "b", 0, partition=1, txn=two)
    shop.committing(one)
    bank.committing(two)
    reader.polled(T1, [0], ["b"], txn=one)
    tale.consumer("other").polled(T0, [0], ["a"], txn=two)
    shop.committed(one)
    bank.committed(two)
    tale.ends([(0, "a")])
    tale.ends([(0, "b")], place=T1)
    assert tale.found() == ["G1c"]


@pytest.mark.parametrize("writes", [False, True])
def test_a_transaction_that_writes_nothing_is_known_to_nobody_and_stands_in_no_order(writes: bool) -> None:
    """Its producer may have been fenced long ago: a commit of nothing asks no coordinator."""
    tale = Tale()
    old, new, reader = tale.witness("old"), tale.witness("new"), tale.consumer()
    zombie = old.beginning("shop")
    txn = new.beginning("shop")
    tale.send(new, "a", 0, txn=txn)
    new.committing(txn)
    new.committed(txn)
    reader.polled(T0, [0], ["a"], txn=zombie)
    if writes:
        tale.send(old, "b", 0, partition=1, txn=zombie)
    old.committing(zombie)
    old.committed(zombie)
    tale.ends([(0, "a")])
    tale.ends([(0, "b")] if writes else [], place=T1)
    assert ("G1c" in tale.found()) == writes


def pipeline(outputs: list[tuple[int, str]], committed: int) -> Tale:
    """Two inputs, and outputs "x" of "in0", "y" of "in1", "x2" of "in0" again."""
    tale = Tale()
    tale.history.declare(Topic("out", 1), pipelines=[Pipeline("work", "t", "out")])
    shop, worker = tale.witness("shop"), tale.witness("worker")
    tale.send(shop, "in0", 0)
    tale.send(shop, "in1", 1)
    reader = tale.consumer("reader", group="work")
    reader.assigned([T0])
    reader.polled(T0, [0, 1], ["in0", "in1"])
    txn = worker.beginning("worker")
    for offset, value in outputs:
        made_from = {"x": "in0", "y": "in1", "x2": "in0"}[value]
        tale.send(worker, value, offset, topic="out", txn=txn, made_from=made_from)
    worker.committing_offsets("work", {T0: committed}, txn=txn)
    worker.committing(txn)
    worker.committed(txn)
    tale.ends([(0, "in0"), (1, "in1")])
    tale.ends(outputs, place=("out", 0))
    tale.final.groups["work"] = {T0: committed}
    return tale


def test_one_output_for_each_input_below_the_offset() -> None:
    assert pipeline([(0, "x"), (1, "y")], 2).found() == []
    assert pipeline([(0, "x")], 1).found() == []


def test_an_input_without_output_or_with_two_or_ahead_of_the_offset() -> None:
    assert pipeline([(0, "x")], 2).found() == ["eos-offset"]
    assert pipeline([(0, "x"), (1, "x2")], 1).found() == ["eos-offset"]
    assert pipeline([(0, "x"), (1, "y")], 1).found() == ["eos-offset"]


def test_an_old_instance_must_not_succeed_after_the_new_one_has_started() -> None:
    for late, expected in ((False, []), (True, ["fence-violation"])):
        tale = Tale()
        old, new = tale.witness("shop"), tale.witness("shop")
        old.initialized("shop", since_ms=tale.tick())
        txn = old.beginning("shop")
        if not late:
            tale.send(old, "a", 0, txn=txn)
        new.initialized("shop", since_ms=tale.tick())
        if late:
            tale.send(old, "a", 0, txn=txn)
        old.aborted(txn)
        tale.ends([], aborted=[(0, "a")])
        assert tale.found() == expected


def test_a_commit_begun_after_the_fence_must_not_succeed() -> None:
    tale = Tale()
    old, new = tale.witness("shop"), tale.witness("shop")
    old.initialized("shop", since_ms=tale.tick())
    txn = old.beginning("shop")
    tale.send(old, "a", 0, txn=txn)
    new.initialized("shop", since_ms=tale.tick())
    old.committing(txn)
    old.committed(txn)
    tale.ends([(0, "a")])
    assert tale.found() == ["fence-violation"]


def test_where_two_initializations_overlap_the_epochs_tell_who_is_newer() -> None:
    for epochs, expected in (((0, 1), ["fence-violation"]), ((1, 0), [])):
        tale = Tale()
        one, two = tale.witness("shop"), tale.witness("shop")
        since = tale.tick()
        one.initialized("shop", since_ms=since, producer_id=7, producer_epoch=epochs[0])
        two.initialized("shop", since_ms=since, producer_id=7, producer_epoch=epochs[1])
        tale.transaction(one, ("a", 0, 0))
        tale.ends([(0, "a")])
        assert tale.found() == expected
