"""The offset at which the log that was read and the current log diverge."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from semel._subscription.epoch_history import EPOCHS_MAX, ReadEpochs


def trail_of(*entries: tuple[int, int], end: int) -> ReadEpochs:
    epochs = ReadEpochs()
    for epoch, offset in entries:
        epochs.read(epoch, offset)
    epochs.end = end
    return epochs


def test_truncation_within_the_read_range_keeps_the_entries_below() -> None:
    epochs = trail_of((1, 0), (3, 10), end=20)
    epochs.truncate(15)
    assert epochs.last == 3
    epochs.truncate(10)
    assert epochs.last == 1, "the record at 10 is still to be read"
    epochs.truncate(0)
    assert epochs.last == -1


def test_a_position_outside_the_read_range_drops_all_entries() -> None:
    for offset in (21, None):
        epochs = trail_of((1, 0), (3, 10), end=20)
        epochs.truncate(offset)
        assert epochs.last == -1


def test_decreasing_epochs_drop_all_entries() -> None:
    assert trail_of((3, 0), (1, 5), end=9).last == -1


def test_the_number_of_epochs_is_bounded() -> None:
    epochs = trail_of(*((epoch, epoch) for epoch in range(1000)), end=1000)
    assert epochs.last == 999
    assert len(epochs._entries) == EPOCHS_MAX


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Two logs, as the epoch of each record. The leader of an epoch begins with its copy of another leader's log."""
    written: list[list[int]] = [[]]
    for epoch in range(draw(st.integers(1, 5))):
        had = draw(st.sampled_from(written))
        written.append(had[: draw(st.integers(0, len(had)))] + [epoch] * draw(st.integers(1, 4)))
    ours, theirs = draw(st.sampled_from(written)), draw(st.sampled_from(written))
    return ours[: draw(st.integers(0, len(ours)))], theirs


@given(logs())
def test_repeated_truncation_ends_at_the_divergence_of_the_logs_and_never_below(
    both: tuple[list[int], list[int]],
) -> None:
    ours, theirs = both
    epochs = ReadEpochs()
    for offset, epoch in enumerate(ours):
        if epoch != epochs.last:
            epochs.read(epoch, offset)
        epochs.end = offset + 1
    position = len(ours)
    same = [a == b for a, b in zip(ours, theirs, strict=False)]
    for _ in range(20):
        epoch = max((known for known in theirs if known <= epochs.last), default=-1)
        end = sum(known <= epoch for known in theirs)
        if epochs.last < 0 or (epoch == epochs.last and end >= position):
            break
        position = epochs.divergence(epoch, end)
        epochs.truncate(position)
    else:
        raise AssertionError("never told that all is well")
    assert position == (same.index(False) if False in same else len(same))
