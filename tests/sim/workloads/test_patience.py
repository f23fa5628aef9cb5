"""Patience: who stands still is told from who is slow."""

from __future__ import annotations

from semel import TopicPartition

from sim.workloads.patience import Watch

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_partition_of_which_nothing_comes_stands_still_whatever_comes_of_others() -> None:
    watch = Watch(patience_s=10)
    assert watch.standing({HERE: (3, 9), THERE: (1, 9)}, 100) == {}
    assert watch.standing({HERE: (3, 9), THERE: (2, 9)}, 110) == {}
    assert watch.standing({HERE: (3, 9), THERE: (2, 9)}, 111) == {HERE: (3, 9)}


def test_one_that_goes_on_or_was_at_its_end_meanwhile_does_not_stand_still() -> None:
    watch = Watch(patience_s=10)
    assert watch.standing({HERE: (3, 9), THERE: (5, 9)}, 100) == {}
    assert watch.standing({HERE: (4, 9)}, 109) == {}
    assert watch.standing({HERE: (4, 9), THERE: (5, 9)}, 118) == {}
    assert watch.standing({HERE: (4, 9), THERE: (5, 9)}, 120) == {HERE: (4, 9)}
