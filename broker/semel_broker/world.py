"""All of the outside that a broker is given: clocks, chance, the disk, a place to log.

Nothing below `__main__` reaches for `time`, `os` or `random`; it takes them from here, so that a test or a
simulator decides what time it is and which write is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

import msgspec
from semel_storage.disk.disk import Disk


class Logger(Protocol):
    """What the core needs of a structlog logger: one event name per line, everything else as keys."""

    def debug(self, event: str, **fields: object) -> None: ...
    def info(self, event: str, **fields: object) -> None: ...
    def warning(self, event: str, **fields: object) -> None: ...
    def error(self, event: str, **fields: object) -> None: ...
    def exception(self, event: str, **fields: object) -> None: ...


class SilentLogger:
    """A logger for those who want none (tests, tools)."""

    def debug(self, event: str, **fields: object) -> None: ...
    def info(self, event: str, **fields: object) -> None: ...
    def warning(self, event: str, **fields: object) -> None: ...
    def error(self, event: str, **fields: object) -> None: ...
    def exception(self, event: str, **fields: object) -> None: ...


class World(msgspec.Struct, frozen=True, kw_only=True):
    """`now_ms`: wall clock, milliseconds since 1970. `monotonic`: seconds, never goes back; for measuring only
    (timers are the event loop's). `rng`: the one source of chance (member ids, topic ids, ...)."""

    now_ms: Callable[[], int]
    monotonic: Callable[[], float]
    rng: Random
    disk: Disk
    log: Logger = SilentLogger()
    may_be_held: Callable[[int], bool] = lambda descriptor: True
    """Whether a connection may keep its descriptor, or that one is for logs; then the operator has been told."""
    unacknowledged: Callable[[int], int] = lambda descriptor: 0
    """Bytes that the kernel has taken for a connection, and its peer has not acknowledged yet."""
