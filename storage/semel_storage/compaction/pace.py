"""Paces background work on the event loop: it pauses after every few milliseconds of work, measured in bytes.

Bytes instead of a clock keep runs deterministic.
"""

from collections.abc import Awaitable, Callable

STEP_BYTES = 64 << 10
"""Record bytes processed between two pauses: a few milliseconds of work."""

Pause = Callable[[], Awaitable[None]]


class Pace:
    """Counts the work and pauses in time, so that a long compaction does not block the event loop."""

    def __init__(self, pause: Pause, step_bytes: int = STEP_BYTES) -> None:
        self._pause = pause
        self._step_bytes = step_bytes
        self._left = step_bytes

    async def spend(self, size_bytes: int) -> None:
        """Count the work on `size_bytes` bytes; pause if the step is complete."""
        self._left -= size_bytes
        if self._left <= 0:
            await self.rest()

    async def rest(self) -> None:
        """Pause now."""
        self._left = self._step_bytes
        await self._pause()
