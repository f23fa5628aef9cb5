"""EDGE: tests of broker and client run in virtual time: a loop, a disk and clocks without waiting.

`tests/conftest.py` gives them to the folders `broker` and `client`. A test that talks to another process or to a thread
is marked `real_time` and gets a loop of asyncio.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar

import pytest
import semel._edge
from semel_storage.disk.os_disk import OsDisk

from support.virtual_loop import VirtualLoop

T = TypeVar("T")
EPOCH_S = 1_700_000_000.0
"""Wall clock of a loop whose own clock is 0."""


def loop_time() -> float:
    """Seconds: the clock of the running loop, virtual or not; without a loop, that of the machine."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()


def wall_ms() -> int:
    """Milliseconds since the epoch, by the clock of the running loop if that is virtual."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return int(time.time() * 1000)
    return int((EPOCH_S + loop.time()) * 1000) if isinstance(loop, VirtualLoop) else int(time.time() * 1000)


class _Clocks:
    """The functions of the module `time` that `semel._edge` uses."""

    monotonic = staticmethod(loop_time)

    @staticmethod
    def time_ns() -> int:
        return wall_ms() * 1_000_000


class PromptDisk(OsDisk):
    """The real disk. Work for its threads is done at once, so that virtual time need not wait for it."""

    def submit(self, call: Callable[..., T], *arguments: object) -> Future[T]:
        job: Future[T] = Future()
        try:
            job.set_result(call(*arguments))
        except BaseException as error:
            job.set_exception(error)
        return job

    submit_removal = submit


def disk_here() -> OsDisk:
    """The disk for a broker on the running loop."""
    return PromptDisk() if isinstance(asyncio.get_running_loop(), VirtualLoop) else OsDisk()


ABANDONED = ("was opened before the crash", "Task was destroyed but it is pending")
"""Errors of brokers without power: a `MemoryDisk` refuses later calls of their tasks, which no code ends."""

_made: list[VirtualLoop] = []


def virtual_loop() -> VirtualLoop:
    """The loop of one test."""
    loop = VirtualLoop()
    _made.append(loop)
    return loop


@pytest.fixture
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the client's clocks those of the loop. An uncaught error on the loop fails the test."""
    _made.clear()
    monkeypatch.setattr(semel._edge, "time", _Clocks)
    yield
    errors = [error for loop in _made for error in loop.errors if not any(text in error for text in ABANDONED)]
    assert not errors, errors
