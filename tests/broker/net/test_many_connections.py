"""10,000 idle connections cost a broker little memory and no work, and other clients are served as usual."""

from __future__ import annotations

import asyncio
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from broker.wire import Wire, batch
from support.processes import BrokerProcess

pytestmark = pytest.mark.real_time

IDLE = 10_000
RSS_BYTES_EACH_MAX = 10_000
"""Bytes of an idle connection, which has no buffers of its own."""
WATCHED_S = 1.0
CPU_S_MAX = 0.2


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Raise the limit of open files of this process; the broker's process raises its own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < IDLE + 1_000:
        pytest.skip(f"this machine allows {hard} open files a process")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.proves("idle-connections")
@pytest.mark.thorough
@pytest.mark.usefixtures("descriptors")
async def test_ten_thousand_idle_connections(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", durability="os")
    await asyncio.to_thread(broker.start)
    idle: list[socket.socket] = []
    try:
        process = psutil.Process(broker.pid)
        wire = await Wire.connect(broker.port)
        await wire.create_topic("t")
        assert (await wire.produce("t", batch(b"before"))).error_code == 0
        rss_before = process.memory_info().rss
        for number in range(IDLE):
            idle.append(socket.create_connection(("127.0.0.1", broker.port), timeout=30))
            if not number % 200:
                await asyncio.sleep(0)
        await _until_connections(process, IDLE)
        assert (process.memory_info().rss - rss_before) / IDLE < RSS_BYTES_EACH_MAX
        used, began = process.cpu_times(), time.monotonic()
        await asyncio.sleep(WATCHED_S)  # the CPU time of this span is measured
        now = process.cpu_times()
        spent_s = now.user + now.system - used.user - used.system
        assert spent_s / (time.monotonic() - began) < CPU_S_MAX / WATCHED_S
        assert (await wire.produce("t", batch(b"amid"))).base_offset == 1
        late = await Wire.connect(broker.port)
        assert await late.values("t") == [b"before", b"amid"]
        await late.close()
        for each in idle:
            each.close()
        idle.clear()
        await _until_connections(process, 0)
        assert (await wire.produce("t", batch(b"after"))).base_offset == 2
        await wire.close()
    finally:
        for each in idle:
            each.close()
        await asyncio.to_thread(broker.stop)


async def _until_connections(process: psutil.Process, count: int) -> None:
    """Until the broker has so many descriptors more, or less, than a few."""
    async with asyncio.timeout(30):
        while not count <= await asyncio.to_thread(process.num_fds) < count + 200:
            await asyncio.sleep(0.05)
