"""PURE: the calls to the disk that have not returned yet, on any thread: how long the oldest one has been waiting."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec


class WaitingCall(msgspec.Struct, frozen=True):
    """A call to the disk that waits."""

    path: str
    """Of its file or directory."""
    seconds: float
    """How long it has been waiting."""


class WaitingCalls:
    """Each single call to the operating system counts from its own begin: of a thread that syncs many files one after
    the other only the present one. `monotonic`: the clock in seconds.

    Threads add calls and remove them while others read: each access is one operation on a dict.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._begun: dict[object, tuple[float, str]] = {}

    @contextmanager
    def waiting(self, path: str) -> Iterator[None]:
        """The block is one call to the disk for this path."""
        call = object()
        self._begun[call] = (self._monotonic(), path)
        try:
            yield
        finally:
            del self._begun[call]

    def oldest(self) -> WaitingCall | None:
        """The call that has been waiting for the longest time; None: no call waits."""
        if not self._begun:
            return None
        begun_s, path = min(self._begun.copy().values(), default=(self._monotonic(), ""))
        return WaitingCall(path, max(0.0, self._monotonic() - begun_s)) if path else None
