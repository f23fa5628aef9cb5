"""aiokafka's `util`: its functions that applications and libraries import."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["INTEGER_MAX_VALUE", "INTEGER_MIN_VALUE", "NO_EXTENSIONS", "create_future", "create_task"]

T = TypeVar("T")

INTEGER_MAX_VALUE = 2**31 - 1
INTEGER_MIN_VALUE = -(2**31)
NO_EXTENSIONS = True
"""No compiled module of aiokafka's is used."""
VERSION_PARTS_MAX = 3


def create_task(coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task of the running loop. Raises RuntimeError without one."""
    return get_running_loop().create_task(coro)


def create_future(loop: asyncio.AbstractEventLoop | None = None) -> asyncio.Future[Any]:
    """A future of this loop, or of the running one."""
    return (loop or get_running_loop()).create_future()


def get_running_loop() -> asyncio.AbstractEventLoop:
    """The running loop. Raises RuntimeError without one."""
    return asyncio.get_running_loop()


def parse_kafka_version(api_version: str) -> tuple[int, int, int]:
    """A version such as "2.3" as three numbers. Raises ValueError below 0.9, from 3.0 on, and for other texts."""
    parts = [int(part) for part in api_version.split(".")]
    if not 2 <= len(parts) <= VERSION_PARTS_MAX:
        raise ValueError(f"api_version={api_version!r}: give two or three numbers, such as 2.3")
    version = (parts[0], parts[1], parts[2] if len(parts) == VERSION_PARTS_MAX else 0)
    if not (0, 9, 0) <= version < (3, 0, 0):
        raise ValueError(f"api_version={api_version!r}: give a version from 0.9 to 2.x")
    return version
