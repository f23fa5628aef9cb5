"""EDGE: the client's access to wall clock, monotonic clock, random numbers and TCP.

All other modules get an `Edge`, so that a simulator can pass its own.
"""

import asyncio
import os
import random
import ssl
import time
from collections.abc import Callable
from typing import TypeVar

P = TypeVar("P", bound=asyncio.BaseProtocol)


class Edge:
    """The real clocks, random numbers and sockets. A simulator subclasses it and overrides all four."""

    def __init__(self, seed: int | None = None) -> None:
        # Jitter and sticky partitions need no cryptographic random numbers.
        self.rng = random.Random(seed)  # noqa: S311

    def now_ms(self) -> int:
        """Wall clock in milliseconds since the epoch, for record timestamps only."""
        return time.time_ns() // 1_000_000

    def random_bytes(self, count: int) -> bytes:
        """Bytes that cannot be guessed, for salts."""
        return os.urandom(count)

    def monotonic(self) -> float:
        """Seconds that never go back, for deadlines, ages and backoffs."""
        return time.monotonic()

    async def create_connection(
        self, factory: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.Transport, P]:
        """Opens a TCP connection; raises OSError as `loop.create_connection`."""
        return await asyncio.get_running_loop().create_connection(factory, host, port, ssl=tls)
