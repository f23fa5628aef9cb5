"""The deadlines of sessions and rebalances: one timer of the event loop for all of them.

A key is checked at its deadline, and the check says whether it is really due. So a heartbeat, which only moves the end
of a session, costs nothing here; a member costs one check per session timeout.
"""

from __future__ import annotations

import heapq
from asyncio import Handle, get_running_loop
from typing import Protocol

Key = tuple[str, str]
"""(group id, member id); the member id "" stands for the group's own deadline."""

GROUP = ""

FAILED_CHECK_MS = 1_000
"""A key whose check has raised is checked again after this."""


class Deadlines:
    """Keys by deadline, in ms of one monotonic clock. Pure."""

    __slots__ = ("_armed", "_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Key]] = []
        self._armed: dict[Key, int] = {}
        self._count = 0

    def arm(self, key: Key, when_ms: int) -> None:
        """Check `key` at `when_ms`, unless an earlier check is armed."""
        armed_ms = self._armed.get(key)
        if armed_ms is None or when_ms < armed_ms:
            self._armed[key] = when_ms
            self._count += 1
            heapq.heappush(self._heap, (when_ms, self._count, key))

    def due(self, now_ms: int) -> list[Key]:
        """Remove and return the keys whose deadline has passed, earliest first."""
        keys = []
        while self._heap and self._heap[0][0] <= now_ms:
            when_ms, _, key = heapq.heappop(self._heap)
            if self._armed.get(key) == when_ms:
                del self._armed[key]
                keys.append(key)
        return keys

    @property
    def next_ms(self) -> int | None:
        """The next deadline."""
        return self._heap[0][0] if self._heap else None


class DeadlineChecks(Protocol):
    """The owner of keys."""

    def check_deadline(self, key: Key, now_ms: int) -> int | None:
        """Check whether `key` is really due; its next deadline, None: there is none."""

    def monotonic_ms(self) -> int:
        """The clock of the deadlines."""


class Alarm:
    """Deadlines with a timer of the event loop. It calls `checks.check_deadline` at each.

    A check that raises is a bug. The loop's exception handler gets the error, the other keys are checked all the same,
    and the key is checked again after FAILED_CHECK_MS: a session whose check fails must not last for ever.
    """

    def __init__(self, checks: DeadlineChecks) -> None:
        self._checks = checks
        self._deadlines = Deadlines()
        self._timer: Handle | None = None
        self._timer_ms = 0
        self._stopped = False

    def arm(self, key: Key, when_ms: int) -> None:
        """Check `key` at `when_ms` at the latest."""
        self._deadlines.arm(key, when_ms)
        self._schedule()

    def stop(self) -> None:
        """Stop the timer for good."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        """Set the timer for the next deadline.

        The deadline of the timer is a field, because the loop need not know it: uvloop returns a handle without
        `when` for a timer that is less than half a millisecond ahead.
        """
        next_ms = self._deadlines.next_ms
        if next_ms is None or self._stopped:
            return
        if self._timer is not None:
            if self._timer_ms <= next_ms:
                return
            self._timer.cancel()
        assert self._timer is None or self._timer_ms > next_ms
        delay_ms = max(next_ms - self._checks.monotonic_ms(), 1)
        self._timer_ms = next_ms
        self._timer = get_running_loop().call_later(delay_ms / 1000, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now_ms = self._checks.monotonic_ms()
        for key in self._deadlines.due(now_ms):
            try:
                again_ms = self._checks.check_deadline(key, now_ms)
            except Exception as error:
                again_ms = now_ms + FAILED_CHECK_MS
                text = f"the check of the deadline of {key} failed"
                get_running_loop().call_exception_handler({"message": text, "exception": error})
            if again_ms is not None:
                self._deadlines.arm(key, again_ms)
        self._schedule()
