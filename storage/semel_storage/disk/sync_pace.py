"""Decides whether the disk is fast enough for small syncs on the loop's thread (decision 10).

The first slow sync ends them: while it lasts, no request of any client is answered. Threads sync then, and measure when
the disk is fast again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from semel_storage.histogram import Histogram

QUICK_S = 0.0005
"""The median of the last syncs must be below this: a handover to a thread and back takes about 0.2 ms."""
SLOW_S = 0.005
"""None of the last syncs may take so long."""
SLOW_SHARED_S = 0.05
"""A sync of the whole file system on a thread is not slow if it takes less."""
SYNCS_REMEMBERED = 7
PAUSE_S, PAUSE_S_MAX = 1.0, 300.0
"""The least and the longest pause after a slow sync on the loop's thread."""
CALM_PAUSES = 10
"""After so many pauses without a slow sync the next pause is the shortest again."""


class Pause:
    """The time after a slow sync on the loop's thread in which no further one is tried there.

    It doubles from `PAUSE_S` to `PAUSE_S_MAX` while slow syncs recur. After a calm time it is `PAUSE_S` again.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._length_s = 0.0
        self._ends_s = float("-inf")

    @property
    def is_over(self) -> bool:
        return self._monotonic() >= self._ends_s

    def begin(self) -> None:
        now_s = self._monotonic()
        is_calm = now_s - self._ends_s > CALM_PAUSES * self._length_s
        self._length_s = PAUSE_S if is_calm else min(PAUSE_S_MAX, 2 * self._length_s)
        self._ends_s = now_s + self._length_s


class SyncPace:
    """Measures how long the disk takes for a small sync, and for a sync of the whole file system.

    `monotonic`: the clock in seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.seconds = Histogram()
        """Of all syncs: of a file, and of several files together."""
        self._last_s = deque((SLOW_S,) * SYNCS_REMEMBERED, SYNCS_REMEMBERED)
        self._is_quick = False
        self._pause = Pause(monotonic)
        self._pause_together = Pause(monotonic)
        self._pause_sharing = Pause(monotonic)

    @property
    def is_quick(self) -> bool:
        """Whether a small sync is probably faster than a handover to a thread.

        False from the first slow sync on, until `SYNCS_REMEMBERED` others in a row were not slow.
        """
        return self._is_quick and self._pause.is_over

    @property
    def is_quick_together(self) -> bool:
        """Whether a sync of the whole file system is probably fast, too."""
        return self.is_quick and self._pause_together.is_over

    @property
    def may_share(self) -> bool:
        """Whether a thread may sync the whole file system in place of several files and directories."""
        return self._pause_sharing.is_over

    def note(self, seconds: float, *, on_loop: bool) -> None:
        """Record the duration of a sync of one file. `on_loop`: the loop's thread waited for it."""
        self._note(seconds)
        if on_loop and seconds >= SLOW_S:
            self._pause.begin()

    def note_together(self, seconds: float) -> None:
        """Record the duration of a sync of the whole file system, on the loop's thread.

        A slow one says little about a small sync: another process may have had many bytes to write. Still the next
        small syncs are left to threads, which measure it.
        """
        self._note(seconds)
        if seconds >= SLOW_S:
            self._pause_together.begin()

    def note_shared(self, seconds: float, count: int) -> None:
        """Record the duration of a sync of the whole file system on a thread, in place of `count` others.

        One that takes longer than they would have writes what other processes left unwritten.
        """
        self.seconds.observe(seconds)
        if seconds > max(SLOW_SHARED_S, count * sorted(self._last_s)[SYNCS_REMEMBERED // 2]):
            self._pause_sharing.begin()

    def _note(self, seconds: float) -> None:
        self.seconds.observe(seconds)
        self._last_s.append(seconds)
        in_order = sorted(self._last_s)
        self._is_quick = in_order[-1] < SLOW_S and in_order[SYNCS_REMEMBERED // 2] < QUICK_S
