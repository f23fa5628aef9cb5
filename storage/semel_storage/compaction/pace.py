"""How background work shares the event loop: it pauses after every few milliseconds' worth of bytes.

Measured in bytes rather than by a clock, so that a run is the same each time.
"""

from collections.abc import Awaitable, Callable

STEP_BYTES = 64 << 10
"""Record bytes looked at between two pauses: a few milliseconds of work."""

Pause = Callable[[], Awaitable[None]]


class Pace:
    """Counts the work done and pauses in time, so that a long compaction never holds the event loop."""

    def __init__(self, pause: Pause, step_bytes: int = STEP_BYTES) -> None:
        self._pause = pause
        self._step_bytes = step_bytes
        self._left = step_bytes

    async def spend(self, size_bytes: int) -> None:
        """Account for work on so many bytes, and pause if it is time."""
        self._left -= size_bytes
        if self._left <= 0:
            await self.rest()

    async def rest(self) -> None:
        """Pause now."""
        self._left = self._step_bytes
        await self._pause()
