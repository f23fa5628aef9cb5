"""PURE: logs that the disk hangs and that it goes on, each once."""

from collections.abc import Callable
from typing import Final

from semel_storage.disk.disk import EventCallback
from semel_storage.disk.waiting_calls import WaitingCall

WHAT_TO_DO: Final = (
    "look at the disk and what is behind it (the kernel's log, the network of a remote volume); the broker goes on by "
    "itself when the disk does"
)


class HangLog:
    """The disk hangs while a call to it has been waiting for `limit_s` or longer.

    `problem` gets the event `disk_hangs`, `event` gets `disk_goes_on`. `monotonic`: the clock in seconds.
    """

    def __init__(
        self, limit_s: float, monotonic: Callable[[], float], *, problem: EventCallback, event: EventCallback
    ) -> None:
        self.is_hanging = False
        self._limit_s = limit_s
        self._monotonic = monotonic
        self._problem = problem
        self._event = event
        self._begun_s = 0.0
        self._path = ""

    def look(self, oldest: WaitingCall | None) -> bool:
        """Note the oldest call that waits; returns whether the disk has begun to hang, or has gone on, since then."""
        hangs = oldest is not None and oldest.seconds >= self._limit_s
        if hangs is self.is_hanging:
            return False
        self.is_hanging = hangs
        now_s = self._monotonic()
        if oldest is not None and hangs:
            self._begun_s, self._path = now_s - oldest.seconds, oldest.path
            self._problem("disk_hangs", path=oldest.path, waited_ms=round(oldest.seconds * 1000), do=WHAT_TO_DO)
        else:
            self._event("disk_goes_on", path=self._path, hung_ms=round((now_s - self._begun_s) * 1000))
        return True
