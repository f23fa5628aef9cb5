"""EDGE: the client's only door to the outside: wall clock, monotonic clock, chance, and TCP.

Everything else in the client is given an `Edge`, so that a simulator can pass its own.
"""

import asyncio
import random
import ssl
import time
from collections.abc import Callable
from typing import TypeVar

P = TypeVar("P", bound=asyncio.BaseProtocol)


class Edge:
    """The real outside world. A simulator subclasses it and overrides all four."""

    def __init__(self, seed: int | None = None) -> None:
        # Jitter and sticky partitions need no cryptographic chance.
        self.rng = random.Random(seed)  # noqa: S311

    def now_ms(self) -> int:
        """Wall clock in milliseconds since the epoch: record timestamps, nothing else."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds that never go back: deadlines, ages and backoffs."""
        return time.monotonic()

    async def create_connection(
        self, factory: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.Transport, P]:
        """Open a TCP connection; raises OSError as `loop.create_connection` does."""
        return await asyncio.get_running_loop().create_connection(factory, host, port, ssl=tls)
