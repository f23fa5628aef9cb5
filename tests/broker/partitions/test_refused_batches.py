"""What was refused for the moment comes before what was on its way behind it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from broker.harness import batch
from semel_broker.partitions.refused_batches import PRODUCERS_MAX, TurnedAway
from semel_protocol.batch import BatchHeader, read_header
from semel_protocol.errors import ErrorCode, KafkaError

T0, T1 = ("t", 0), ("t", 1)


def header(sequence: int, *, producer_id: int = 7, epoch: int = 0) -> BatchHeader:
    return read_header(batch(b"v", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


def passes(
    away: TurnedAway, sequence: int, *, place: tuple[str, int] = T0, producer_id: int = 7, epoch: int = 0
) -> bool:
    with suppress(KafkaError):
        away.check(place, header(sequence, producer_id=producer_id, epoch=epoch))
        return True
    return False


def test_what_comes_behind_waits_until_the_first_has_come() -> None:
    away = TurnedAway()
    for sequence in (3, 4):
        away.note(T0, header(sequence))
    assert not passes(away, 5)
    with pytest.raises(KafkaError) as refused:
        away.check(T0, header(4))
    assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert passes(away, 3)
    assert passes(away, 4)
    assert not away


def test_an_earlier_one_that_is_refused_too_is_the_first() -> None:
    away = TurnedAway()
    away.note(T0, header(4))
    away.note(T0, header(3))
    assert not passes(away, 4)


def test_it_is_about_one_producer_in_one_partition() -> None:
    away = TurnedAway()
    away.note(T0, header(0))
    assert passes(away, 1, place=T1)
    assert passes(away, 1, producer_id=8)
    assert not passes(away, 1)


@pytest.mark.parametrize("late", [0, 9])
def test_a_newer_epoch_begins_anew(late: int) -> None:
    away = TurnedAway()
    away.note(T0, header(0, epoch=2))
    away.note(T0, header(late, epoch=1))
    assert not passes(away, 1, epoch=2), "an older epoch has no say"
    assert passes(away, 5, epoch=3)
    assert passes(away, 1, epoch=2)


def test_sequences_wrap() -> None:
    away = TurnedAway()
    away.note(T0, header((1 << 31) - 1))
    assert not passes(away, 0)
    assert passes(away, (1 << 31) - 1)


def test_not_more_is_kept_in_mind_than_so_many_producers() -> None:
    away = TurnedAway()
    for producer_id in range(PRODUCERS_MAX + 1):
        away.note(T0, header(0, producer_id=producer_id))
    assert len(away) == PRODUCERS_MAX
    assert passes(away, 1, producer_id=0)
    assert not passes(away, 1, producer_id=1)
