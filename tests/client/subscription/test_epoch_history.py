"""Where a log that was read and the one that is there part."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from semel._subscription.epoch_history import EPOCHS_MAX, EpochTrail


def trail_of(*entries: tuple[int, int], end: int) -> EpochTrail:
    trail = EpochTrail()
    for epoch, offset in entries:
        trail.read(epoch, offset)
    trail.end = end
    return trail


def test_going_back_within_what_was_read_keeps_what_is_below() -> None:
    trail = trail_of((1, 0), (3, 10), end=20)
    trail.go_back_to(15)
    assert trail.last == 3
    trail.go_back_to(10)
    assert trail.last == 1, "the record at 10 is still to be read"
    trail.go_back_to(0)
    assert trail.last == -1


def test_going_elsewhere_forgets_all() -> None:
    for offset in (21, None):
        trail = trail_of((1, 0), (3, 10), end=20)
        trail.go_back_to(offset)
        assert trail.last == -1


def test_epochs_that_go_back_mean_nothing() -> None:
    assert trail_of((3, 0), (1, 5), end=9).last == -1


def test_only_so_many_epochs_are_remembered() -> None:
    trail = trail_of(*((epoch, epoch) for epoch in range(1000)), end=1000)
    assert trail.last == 999
    assert len(trail._entries) == EPOCHS_MAX


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Two logs, as the epoch of each record. The leader of an epoch begins with what it has of another leader's log."""
    written: list[list[int]] = [[]]
    for epoch in range(draw(st.integers(1, 5))):
        had = draw(st.sampled_from(written))
        written.append(had[: draw(st.integers(0, len(had)))] + [epoch] * draw(st.integers(1, 4)))
    ours, theirs = draw(st.sampled_from(written)), draw(st.sampled_from(written))
    return ours[: draw(st.integers(0, len(ours)))], theirs


@given(logs())
def test_going_back_as_often_as_told_ends_where_the_logs_part_and_never_below(
    both: tuple[list[int], list[int]],
) -> None:
    ours, theirs = both
    trail = EpochTrail()
    for offset, epoch in enumerate(ours):
        if epoch != trail.last:
            trail.read(epoch, offset)
        trail.end = offset + 1
    position = len(ours)
    same = [a == b for a, b in zip(ours, theirs, strict=False)]
    for _ in range(20):
        epoch = max((known for known in theirs if known <= trail.last), default=-1)
        end = sum(known <= epoch for known in theirs)
        if trail.last < 0 or (epoch == trail.last and end >= position):
            break
        position = trail.parting(epoch, end)
        trail.go_back_to(position)
    else:
        raise AssertionError("never told that all is well")
    assert position == (same.index(False) if False in same else len(same))
