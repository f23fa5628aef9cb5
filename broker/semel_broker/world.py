"""The outside world as arguments of a broker: clocks, randomness, the disk, and the log.

No module below `__main__` imports `time`, `os` or `random` for these; each takes them from here. A test or a simulator
can therefore choose the time and the writes that are lost.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

import msgspec
from semel_storage.disk.disk import Disk


class Logger(Protocol):
    """The methods of a structlog logger that the broker uses: one event name per line, and the facts as fields."""

    def debug(self, event: str, **fields: object) -> None: ...
    def info(self, event: str, **fields: object) -> None: ...
    def warning(self, event: str, **fields: object) -> None: ...
    def error(self, event: str, **fields: object) -> None: ...
    def exception(self, event: str, **fields: object) -> None: ...


class SilentLogger:
    """A logger that writes nothing, for tests and tools."""

    def debug(self, event: str, **fields: object) -> None: ...
    def info(self, event: str, **fields: object) -> None: ...
    def warning(self, event: str, **fields: object) -> None: ...
    def error(self, event: str, **fields: object) -> None: ...
    def exception(self, event: str, **fields: object) -> None: ...


class World(msgspec.Struct, frozen=True, kw_only=True):
    """The outside world of one broker.

    `now_ms`: wall clock, milliseconds since 1970. `monotonic`: seconds, never decreases; only to measure time, because
    timers are the event loop's. `rng`: the only source of randomness (member ids, topic ids, ...).
    """

    now_ms: Callable[[], int]
    monotonic: Callable[[], float]
    rng: Random
    disk: Disk
    log: Logger = SilentLogger()
    may_keep_descriptor: Callable[[int], bool] = lambda descriptor: True
    """Whether a connection may keep its descriptor; False if it is reserved for logs, which has then been logged."""
    unacknowledged: Callable[[int], int] = lambda descriptor: 0
    """Bytes in the kernel's send queue of a connection that its peer has not acknowledged yet."""
