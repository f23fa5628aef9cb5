"""EDGE: the client's access to wall clock, monotonic clock, random numbers, TCP and a thread for long computations.

All other modules get an `Edge`, so that a simulator can pass its own.
"""

import asyncio
import hashlib
import os
import random
import ssl
import time
from collections.abc import Callable
from typing import TypeVar

P = TypeVar("P", bound=asyncio.BaseProtocol)


class Edge:
    """The real clocks, random numbers and sockets. A simulator subclasses it and overrides what it simulates."""

    def __init__(self, seed: int | None = None) -> None:
        # Jitter and sticky partitions need no cryptographic random numbers.
        self.rng = random.Random(seed)  # noqa: S311

    def now_ms(self) -> int:
        """Wall clock in milliseconds since the epoch, for record timestamps only."""
        return time.time_ns() // 1_000_000

    def random_bytes(self, count: int) -> bytes:
        """Bytes that cannot be guessed, for salts and nonces."""
        return os.urandom(count)

    def monotonic(self) -> float:
        """Seconds that never go back, for deadlines, ages and backoffs."""
        return time.monotonic()

    async def derived_key(self, hash_name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        """The key that PBKDF2 derives from a password, computed in a thread: it takes milliseconds and more."""
        return await asyncio.to_thread(hashlib.pbkdf2_hmac, hash_name, password, salt, iterations)

    async def create_connection(
        self, factory: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.Transport, P]:
        """Open a TCP connection; raise OSError as `loop.create_connection`."""
        return await asyncio.get_running_loop().create_connection(factory, host, port, ssl=tls)
