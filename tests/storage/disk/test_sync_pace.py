"""When small syncs may run on the loop's thread: never after a slow one, until the disk has been fast for a while."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from semel_storage.disk.sync_pace import CALM_PAUSES, PAUSE_S, PAUSE_S_MAX, QUICK_S, SLOW_S, SYNCS_REMEMBERED, SyncPace

QUICK = QUICK_S / 5
DURATIONS = st.sampled_from((QUICK, 2 * QUICK_S, SLOW_S, 0.3))


class PaceClock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def pace_of(clock: PaceClock, *, syncs: int = SYNCS_REMEMBERED) -> SyncPace:
    """A pace after this number of fast syncs on threads."""
    pace = SyncPace(clock)
    measure(pace, syncs)
    return pace


def measure(pace: SyncPace, syncs: int = SYNCS_REMEMBERED) -> None:
    for _ in range(syncs):
        pace.note(QUICK, on_loop=False)


def test_a_disk_is_quick_after_enough_fast_syncs_on_threads() -> None:
    pace = pace_of(PaceClock(), syncs=SYNCS_REMEMBERED - 1)
    assert not pace.is_quick
    measure(pace, 1)
    assert pace.is_quick
    assert pace.is_quick_together


def test_a_few_syncs_may_take_longer_than_a_handover_to_a_thread() -> None:
    pace = pace_of(PaceClock())
    for _ in range(SYNCS_REMEMBERED // 2):
        pace.note(2 * QUICK_S, on_loop=True)
        assert pace.is_quick
    pace.note(2 * QUICK_S, on_loop=True)
    assert not pace.is_quick, "the median"


def test_the_first_slow_sync_on_the_loop_is_the_last_there() -> None:
    clock = PaceClock()
    pace = pace_of(clock)
    pace.note(SLOW_S, on_loop=True)
    assert not pace.is_quick
    assert not pace.is_quick_together
    measure(pace)
    assert not pace.is_quick, "the pause is not over"
    clock.now_s += PAUSE_S
    assert pace.is_quick


def test_the_pause_alone_does_not_bring_small_syncs_back() -> None:
    clock = PaceClock()
    pace = pace_of(clock)
    pace.note(SLOW_S, on_loop=True)
    clock.now_s += PAUSE_S_MAX
    measure(pace, SYNCS_REMEMBERED - 1)
    assert not pace.is_quick
    measure(pace, 1)
    assert pace.is_quick


def test_a_slow_sync_on_a_thread_needs_no_pause() -> None:
    """It may have written many bytes, and the loop has not waited for it."""
    pace = pace_of(PaceClock())
    pace.note(SLOW_S, on_loop=False)
    assert not pace.is_quick
    measure(pace)
    assert pace.is_quick


def test_the_pause_doubles_while_slow_syncs_recur_and_is_short_again_after_a_calm_time() -> None:
    clock = PaceClock()
    pace = pace_of(clock)
    pauses_s = [PAUSE_S * 2**times for times in range(9)] + [PAUSE_S_MAX] * 3
    for pause_s in pauses_s:
        assert pace.is_quick
        pace.note(0.3, on_loop=True)
        measure(pace)
        clock.now_s += pause_s - 0.25
        assert not pace.is_quick
        clock.now_s += 0.25
    clock.now_s += CALM_PAUSES * PAUSE_S_MAX + 1
    pace.note(0.3, on_loop=True)
    measure(pace)
    clock.now_s += PAUSE_S
    assert pace.is_quick


def test_a_slow_sync_of_several_files_is_the_last_for_a_pause() -> None:
    clock = PaceClock()
    pace = pace_of(clock)
    for pause_s in (PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S):
        assert pace.is_quick_together
        pace.note_together(SLOW_S)
        assert not pace.is_quick, "threads measure small syncs again"
        measure(pace)
        assert pace.is_quick
        assert not pace.is_quick_together
        clock.now_s += pause_s


@given(st.lists(st.tuples(DURATIONS, st.floats(0.0, 20.0))), st.booleans())
def test_between_two_slow_syncs_on_the_loop_lie_fast_ones_and_a_pause(
    steps: list[tuple[float, float]], together: bool
) -> None:
    """Each sync runs on the loop if it may, and else on a thread."""
    clock = PaceClock()
    pace = pace_of(clock)
    slow_at_s, fast_since = float("-inf"), SYNCS_REMEMBERED
    for seconds, until_next_s in steps:
        on_loop = pace.is_quick_together if together else pace.is_quick
        if on_loop:
            assert fast_since >= SYNCS_REMEMBERED
            assert clock.now_s >= slow_at_s + PAUSE_S
        if on_loop and together:
            pace.note_together(seconds)
        else:
            pace.note(seconds, on_loop=on_loop)
        fast_since = fast_since + 1 if seconds < SLOW_S else 0
        if on_loop and seconds >= SLOW_S:
            slow_at_s = clock.now_s
        clock.now_s += until_next_s
