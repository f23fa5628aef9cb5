"""A broker at its limit of open files refuses and logs the excess, and continues otherwise."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from broker.harness import Wire, batch
from semel_protocol.errors import ErrorCode

pytestmark = pytest.mark.real_time

LIMIT = 96


class LoggedBroker:
    """A real process; every line of its log is kept."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self.lines: list[dict[str, Any]] = []
        self.port = 0

    async def start(self, limit: int) -> LoggedBroker:
        def few_files() -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "semel_broker", "--log-format", "json", "--port", "0"),
            *("--data-dir", str(self._data), "--set", "log.segment.bytes=1024"),
            stdout=asyncio.subprocess.PIPE,
            preexec_fn=few_files,
        )
        self._ready = asyncio.Event()
        self._reading = asyncio.create_task(self._read())
        async with asyncio.timeout(20):
            await self._ready.wait()
        return self

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self.lines.append(json.loads(line))
            if self.lines[-1]["event"] == "ready":
                self.port = self.lines[-1]["port"]
                self._ready.set()

    def of(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event]

    async def stop(self) -> int:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            await self._reading
            return await self.process.wait()


Make = Callable[[], LoggedBroker]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[LoggedBroker] = []

    def broker() -> LoggedBroker:
        made.append(LoggedBroker(tmp_path / "data"))
        return made[-1]

    yield broker
    for each in made:
        if each.process.returncode is None:
            each.process.kill()
            await each.process.wait()


async def produce(wire: Wire, topic: str, partition: int) -> int:
    """The error code."""
    return (await wire.produce(topic, batch(b"v" * 300), partition=partition)).error_code


@pytest.mark.proves("no-more-files")
async def test_partitions_beyond_the_file_limit_are_refused_and_others_served(make: Make) -> None:
    broker = await make().start(LIMIT)
    wire = await Wire.connect(broker.port)
    await wire.create_topic("t", LIMIT)
    codes = [await produce(wire, "t", partition) for partition in range(LIMIT)]
    assert set(codes) == {0, ErrorCode.KAFKA_STORAGE_ERROR}
    stored = codes.index(ErrorCode.KAFKA_STORAGE_ERROR)
    assert stored > LIMIT // 2
    assert [await produce(wire, "t", stored) for _ in range(3)] == [ErrorCode.KAFKA_STORAGE_ERROR] * 3
    assert [await produce(wire, "t", 0) for _ in range(10)] == [0] * 10, "open partitions continue, in new segments too"
    assert await broker.stop() == 0
    (line,) = broker.of("files_used_up")
    assert line["limit"] == LIMIT
    assert line["open_files"] > LIMIT // 2
    assert "ulimit -n" in line["do"]
    assert broker.of("request_failed") == []
    await wire.close()

    again = await make().start(LIMIT)
    assert again.of("files_may_run_out")[0]["partitions"] == LIMIT
    assert await again.stop() == 0
    again = await make().start(10 * LIMIT)
    assert again.of("files_may_run_out") == []
    wire = await Wire.connect(again.port)
    assert [await produce(wire, "t", partition) for partition in range(LIMIT)] == [0] * LIMIT
    assert len(await wire.values("t")) == 12
    assert await wire.values("t", partition=stored) == [b"v" * 300]
    await wire.close()
    assert await again.stop() == 0


@pytest.mark.proves("no-more-files")
async def test_descriptors_are_reserved_for_logs(make: Make) -> None:
    broker = await make().start(LIMIT)
    wire = await Wire.connect(broker.port)
    await wire.create_topic("before")
    others = await asyncio.gather(*[Wire.connect(broker.port) for _ in range(4 * LIMIT)])
    closed = await asyncio.gather(*[is_refused(each) for each in others])
    assert LIMIT // 3 < closed.count(False) < LIMIT
    await wire.create_topic("t", 4)
    assert [await produce(wire, "t", partition) for partition in range(4)] == [0] * 4
    for each in others:
        await each.close()
    async with asyncio.timeout(20):
        while await is_refused(late := await Wire.connect(broker.port)):
            await late.close()
    assert await produce(late, "before", 0) == 0
    await late.close()
    await wire.close()
    assert await broker.stop() == 0
    (line,) = broker.of("connections_refused_for_files")
    assert line["limit"] == LIMIT
    assert "ulimit -n" in line["do"]


async def is_refused(wire: Wire) -> bool:
    """Whether the broker has closed the connection; an accepted one gets an answer."""
    try:
        await wire.values("before")
    except (asyncio.IncompleteReadError, ConnectionError):
        return True
    return False
