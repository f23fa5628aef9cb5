"""Stamps: sequences that never skip, wrap where Kafka's do, and start again only under a new epoch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from semel._produce.sequences import EPOCH_MAX, Sequences, Stamp, TransactionManager


def manager(epoch: int = 0) -> TransactionManager:
    made = TransactionManager()
    made.set_producer_id(7, epoch)
    return made


@given(counts=st.lists(st.integers(1, 1 << 20), min_size=1))
def test_sequences_follow_each_other_without_a_gap(counts: list[int]) -> None:
    sequences, expected = Sequences(), 0
    for count in counts:
        assert manager().stamp(sequences, count, idle=expected == 0) == Stamp(7, 0, expected)
        expected += count


@pytest.mark.proves("sequence-wraps")
def test_sequence_0_follows_2_to_the_31_minus_1() -> None:
    sequences = Sequences(7, 0, (1 << 31) - 2)
    made = manager()
    assert made.stamp(sequences, 3, idle=True).base_sequence == (1 << 31) - 2
    assert made.stamp(sequences, 1, idle=True).base_sequence == 1


def test_a_rewound_partition_starts_at_0_of_the_next_epoch() -> None:
    made, sequences = manager(), Sequences()
    made.stamp(sequences, 5, idle=True)
    assert made.rewind(sequences)
    assert made.stamp(sequences, 5, idle=True) == Stamp(7, 1, 0)


def test_a_partition_in_order_keeps_its_epoch_until_it_is_idle() -> None:
    made, broken, sound = manager(), Sequences(), Sequences()
    made.stamp(broken, 5, idle=True)
    made.stamp(sound, 5, idle=True)
    made.rewind(broken)
    assert made.stamp(sound, 5, idle=False) == Stamp(7, 0, 5)
    assert made.stamp(sound, 5, idle=True) == Stamp(7, 1, 0)


def test_two_partitions_that_need_a_new_epoch_share_it() -> None:
    made, one, other = manager(), Sequences(), Sequences()
    made.stamp(one, 1, idle=True)
    made.stamp(other, 1, idle=True)
    assert made.rewind(one)
    assert made.rewind(other)
    assert made.producer_epoch == 1


@pytest.mark.proves("epochs-used-up")
def test_an_exhausted_epoch_asks_for_a_new_producer_id() -> None:
    made, sequences = manager(EPOCH_MAX), Sequences()
    made.stamp(sequences, 1, idle=True)
    assert not made.rewind(sequences)
    assert not made.has_producer_id
    made.set_producer_id(8, 0)
    assert made.rewind(sequences)
    assert made.stamp(sequences, 1, idle=True) == Stamp(8, 0, 0)
