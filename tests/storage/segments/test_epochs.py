"""Leader-epoch history (KIP-101, KIP-279)."""

import pytest
from semel_storage.segments.epochs import EpochHistory

HISTORY = [(0, 0), (1, 10), (4, 25)]


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(-1, (-1, -1)), (0, (0, 10)), (1, (1, 25)), (2, (1, 25)), (3, (1, 25)), (4, (4, 40)), (5, (-1, -1))],
)
def test_epoch_ends_where_the_next_known_one_starts(epoch: int, expected: tuple[int, int]) -> None:
    assert EpochHistory(HISTORY).end_offset_for(epoch, 40) == expected


def test_epoch_before_the_first_known_one_ends_where_that_starts() -> None:
    assert EpochHistory([(3, 7)]).end_offset_for(1, 40) == (1, 7)
    assert EpochHistory().end_offset_for(1, 40) == (-1, -1)


def test_epoch_of_an_offset() -> None:
    history = EpochHistory([(0, 5), (2, 10)])
    assert [history.epoch_of(offset) for offset in (4, 5, 9, 10, 99)] == [-1, 0, 0, 2, 2]


def test_only_newer_epochs_are_assigned() -> None:
    history = EpochHistory(HISTORY)
    history.assign(4, 99)
    history.assign(2, 99)
    assert (history.entries, history.is_dirty) == (HISTORY, False)
    history.assign(6, 30)
    assert (history.latest, history.is_dirty) == (6, True)


def test_an_epoch_without_records_is_replaced() -> None:
    history = EpochHistory(HISTORY)
    history.assign(5, 25)
    assert history.entries == [(0, 0), (1, 10), (5, 25)]


def test_truncation_from_either_end() -> None:
    for offset, expected in [(26, HISTORY), (25, HISTORY[:2]), (11, HISTORY[:2]), (10, HISTORY[:1]), (0, [])]:
        history = EpochHistory(HISTORY)
        history.truncate_from_end(offset)
        assert history.entries == expected
        assert history.is_dirty == (expected != HISTORY)
    for offset, kept in [(0, HISTORY), (9, [(0, 9), *HISTORY[1:]]), (10, HISTORY[1:]), (30, [(4, 30)])]:
        history = EpochHistory(HISTORY)
        history.truncate_from_start(offset)
        assert history.entries == kept
