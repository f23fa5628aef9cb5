"""A batch that was refused with a retriable error is stored before the later batches of its producer."""

from __future__ import annotations

from contextlib import suppress

import pytest
from broker.harness import batch
from semel_broker.partitions.refused_batches import PRODUCERS_MAX, RefusedBatches
from semel_protocol.batch import BatchHeader, read_header
from semel_protocol.errors import ErrorCode, KafkaError

T0, T1 = ("t", 0), ("t", 1)


def header(sequence: int, *, producer_id: int = 7, epoch: int = 0) -> BatchHeader:
    return read_header(batch(b"v", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


def passes(
    refused: RefusedBatches, sequence: int, *, place: tuple[str, int] = T0, producer_id: int = 7, epoch: int = 0
) -> bool:
    with suppress(KafkaError):
        refused.check(place, header(sequence, producer_id=producer_id, epoch=epoch))
        return True
    return False


def test_later_batches_are_refused_until_the_first_is_stored() -> None:
    refused = RefusedBatches()
    for sequence in (3, 4):
        refused.note(T0, header(sequence))
    assert not passes(refused, 5)
    with pytest.raises(KafkaError) as error:
        refused.check(T0, header(4))
    assert error.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert passes(refused, 3)
    assert passes(refused, 4)
    assert not refused


def test_the_earliest_refused_batch_must_come_first() -> None:
    refused = RefusedBatches()
    refused.note(T0, header(4))
    refused.note(T0, header(3))
    assert not passes(refused, 4)


def test_other_producers_and_other_partitions_are_not_affected() -> None:
    refused = RefusedBatches()
    refused.note(T0, header(0))
    assert passes(refused, 1, place=T1)
    assert passes(refused, 1, producer_id=8)
    assert not passes(refused, 1)


@pytest.mark.parametrize("late", [0, 9])
def test_a_newer_producer_epoch_is_not_held_to_an_older_one(late: int) -> None:
    refused = RefusedBatches()
    refused.note(T0, header(0, epoch=2))
    refused.note(T0, header(late, epoch=1))
    assert not passes(refused, 1, epoch=2), "a batch of an older epoch changes nothing"
    assert passes(refused, 5, epoch=3)
    assert passes(refused, 1, epoch=2)


def test_sequence_numbers_wrap_around() -> None:
    refused = RefusedBatches()
    refused.note(T0, header((1 << 31) - 1))
    assert not passes(refused, 0)
    assert passes(refused, (1 << 31) - 1)


def test_at_most_producers_max_are_remembered() -> None:
    refused = RefusedBatches()
    for producer_id in range(PRODUCERS_MAX + 1):
        refused.note(T0, header(0, producer_id=producer_id))
    assert len(refused) == PRODUCERS_MAX
    assert passes(refused, 1, producer_id=0)
    assert not passes(refused, 1, producer_id=1)
