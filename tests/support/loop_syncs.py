"""In tests of the broker on a real disk: a sync on the thread of a running loop is an error.

While the loop waits for a disk, no request of any client is answered. The fast disk of a test hides that. The small
syncs of decision 10 are allowed. The functions in which the loop still waits are those of the simulator's list
(`sim.stalls`).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from semel_storage.disk import os_disk
from semel_storage.disk.os_disk import OsDisk
from sim.stalls import STILL_WAITS, functions

from support.virtual_time import PromptDisk

SMALL = OsDisk.sync_if_quick.__code__.co_qualname
START_AND_STOP = ("node.Node.start", "node.Node.stop")
"""Functions of the start and the stop, during which the broker does not serve."""


class LoopWaitsForDiskError(AssertionError):
    """A function syncs on the loop's thread. The message names the functions, the innermost first."""


def check(what: str, frame: FrameType) -> None:
    """Raise LoopWaitsForDiskError if this thread runs a loop, and the functions from `frame` on may not sync there."""
    if asyncio._get_running_loop() is None:
        return
    if _is_handed_over(frame):
        return
    stack = list(functions(frame))
    if any(name in STILL_WAITS or name in START_AND_STOP or name.endswith(f".{SMALL}") for name in stack):
        return
    raise LoopWaitsForDiskError(
        f"{what} on the thread of the loop, which answers no request meanwhile: {' < '.join(stack)}; leave it to the "
        "flusher or to a thread of the disk"
    )


def _is_handed_over(frame: FrameType | None) -> bool:
    """Whether a thread would make this call. In virtual time it is made at once."""
    while frame is not None and frame.f_code is not PromptDisk.submit.__code__:
        frame = frame.f_back
    return frame is not None


def guarded(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    """`call` with a check that no running loop is on its thread."""

    def checked(*arguments: Any) -> Any:
        check(name, sys._getframe(1))
        return call(*arguments)

    return checked


def guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every sync of `OsDisk` check its thread."""
    for name in ("sync_data", "sync_names", "timed_sync"):
        monkeypatch.setattr(os_disk, name, guarded(getattr(os_disk, name), name))


@pytest.fixture
def loop_syncs_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a sync on the thread of a running loop raise LoopWaitsForDiskError."""
    guard(monkeypatch)
