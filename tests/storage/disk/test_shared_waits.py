"""Thousands of callers that share a sync or a write of a file: no turn of the loop grows with their number."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future as Job
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TypeVar

import pytest
from semel_storage.checkpoint_files import CheckpointFiles
from semel_storage.disk import os_disk, wakeups
from semel_storage.disk.os_disk import OsDisk
from semel_storage.disk.wakeups import Wakeups
from support.virtual_loop import VirtualLoop

pytestmark = pytest.mark.proves("wide-request-memory")

T = TypeVar("T")
FEW, MANY = 100, 400
CALLS_PER_CALLER_MAX = 0.5
"""In the longest turn."""


class DiskOfHeldJobs(OsDisk):
    """What threads would do is done when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self._held: list[Callable[[], None]] = []

    def submit(self, call: Callable[..., T], *arguments: object) -> Job[T]:
        job: Job[T] = Job()
        self._held.append(lambda: job.set_result(call(*arguments)))
        return job

    def release(self) -> None:
        """Do the first call that is held, on a thread, whose calls do not count."""
        if self._held:
            thread = Thread(target=self._held.pop(0))
            thread.start()
            thread.join()


def syncs(disk: DiskOfHeldJobs, root: Path, count: int) -> list[Callable[[], Awaitable[None]]]:
    files = [disk.open(f"{root}/{number}") for number in range(count)]
    for file in files:
        file.append(b"x")
    return [file.sync for file in files]


def debts(disk: DiskOfHeldJobs, root: Path, count: int) -> list[Callable[[], Awaitable[None]]]:
    paths = [f"{root}/{number}" for number in range(count)]
    for path in paths:
        disk.mkdir(path, durable=False)
        disk.sync_dir_later(path)
    return [partial(disk.settle, path) for path in paths]


def checkpoints(disk: DiskOfHeldJobs, root: Path, count: int) -> list[Callable[[], Awaitable[None]]]:
    files = CheckpointFiles(disk, str(root))

    async def saved(number: int) -> None:
        files.note_point(("t", number % 8), number)
        await files.saved()

    return [partial(saved, number) for number in range(count)]


async def all_at_once(
    disk: DiskOfHeldJobs, waits: Sequence[Callable[[], Awaitable[None]]], tasks: list[asyncio.Task[None]]
) -> None:
    """Begin two in each turn of the loop, so that files share a sync; then let the disk go on until all have ended."""

    async def run(wait: Callable[[], Awaitable[None]]) -> None:
        await wait()

    for number, wait in enumerate(waits):
        tasks.append(asyncio.create_task(run(wait)))
        if number % 2:
            await asyncio.sleep(0)
    for task in tasks:
        while not task.done():
            disk.release()
            await asyncio.sleep(0)


@pytest.mark.parametrize("make", [syncs, debts, checkpoints])
def test_no_turn_grows_with_the_callers_that_share_a_wait(
    make: Callable[[DiskOfHeldJobs, Path, int], list[Callable[[], Awaitable[None]]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os_disk, "PATHS_PER_TURN", 8)
    for module in (os_disk, wakeups):
        monkeypatch.setattr(module, "WAKEUPS_PER_TURN", 8)
    longest = []
    for count in (FEW, MANY):
        disk, loop, root = DiskOfHeldJobs(), VirtualLoop(), tmp_path / str(count)
        root.mkdir()
        waits, tasks = make(disk, root, count), list[asyncio.Task[None]]()
        with loop.counting_calls() as most:
            loop.run_until_complete(all_at_once(disk, waits, tasks))
        longest.append(most())
        assert [task.result() for task in tasks] == [None] * count
        loop.close()
    few, many = longest
    assert many - few < CALLS_PER_CALLER_MAX * (MANY - FEW), longest


async def test_a_cancelled_caller_leaves_the_others_waiting_and_all_get_the_error() -> None:
    wakeups, gate = Wakeups(), asyncio.Event()

    async def write() -> None:
        await gate.wait()
        raise OSError("the disk is gone")

    task = asyncio.create_task(write())
    callers = [asyncio.create_task(wakeups.after(task)) for _ in range(100)]
    await asyncio.sleep(0)
    callers[0].cancel()
    gate.set()
    outcomes = await asyncio.gather(*callers, return_exceptions=True)
    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert [str(each) for each in outcomes[1:]] == ["the disk is gone"] * 99


async def test_a_caller_after_the_end_of_the_task_waits_for_nothing() -> None:
    task = asyncio.create_task(asyncio.sleep(0))
    await asyncio.wait((task,))
    await Wakeups().after(task)
