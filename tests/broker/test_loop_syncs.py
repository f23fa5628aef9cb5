"""A test of the broker fails if a sync runs on the thread of a running loop; see `support/loop_syncs.py`."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from broker.conftest import StartBroker
from broker.harness import batch
from semel_storage.disk.os_disk import OsDisk
from support.loop_syncs import LoopWaitsForDiskError

pytestmark = pytest.mark.usefixtures("loop_syncs_refused")


async def test_a_sync_on_the_loops_thread_is_refused_and_named(tmp_path: Path) -> None:
    file = OsDisk().open(str(tmp_path / "a"))
    file.append(b"x")
    for call in (
        lambda: file.truncate(0),
        file.sync_now,
        lambda: OsDisk().sync_dir(str(tmp_path)),
        lambda: OsDisk().write_atomically(str(tmp_path / "b"), b"x"),
    ):
        with pytest.raises(LoopWaitsForDiskError, match=r"on the thread of the loop.*os_disk\.Os"):
            call()


@pytest.mark.real_time
async def test_a_thread_may_sync(tmp_path: Path) -> None:
    disk = OsDisk()
    file = disk.open(str(tmp_path / "a"))
    file.append(b"x")
    await file.sync()
    assert file.unsynced_bytes == 0
    await asyncio.to_thread(disk.sync_dir, str(tmp_path))
    disk.close()


def test_without_a_loop_every_thread_may_sync(tmp_path: Path) -> None:
    OsDisk().write_atomically(str(tmp_path / "a"), b"x")


async def test_small_syncs_are_allowed_on_a_fast_disk(tmp_path: Path) -> None:
    disk = OsDisk()
    for _ in range(7):
        disk.pace.note(0.0, on_loop=False)
    file = disk.open(str(tmp_path / "a"))
    file.append(b"x")
    assert disk.sync_if_quick([file])


async def test_a_function_of_the_broker_that_waits_is_refused(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start_broker()
    wire = await broker.wire()
    await wire.create_topic("t")
    monkeypatch.setattr(OsDisk, "sync_dir_later", OsDisk.sync_dir)
    with contextlib.suppress(EOFError):
        await wire.produce("t", batch(b"x"))
    assert "log_directory.LogDirectory.open_log" in str(broker.log.lines)
