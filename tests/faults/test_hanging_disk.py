"""Broker processes whose disk hangs or refuses syncs: amid writes, rolls, deletions, compaction, starts and stops.

The disk calls of a process are held by a library that is loaded before the C library (`held_disk`).
"""

from __future__ import annotations

import asyncio
import errno
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.wire import Wire, batch, produce_request, records_of
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest
from semel_protocol.messages.k20_delete_topics import DeleteTopicsRequest
from semel_protocol.records import Record, build_batch
from semel_storage.disk.os_disk import EXIT_STATUS
from support.processes import BrokerProcess

from faults.held_disk import ALL, FDATASYNC, FOR_EVER, SYNCS, HeldDisk, why_not

pytestmark = [pytest.mark.real_time, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]

HANG_S = 1.0
SETTINGS = {"disk.hang.timeout.ms": "1000", "metrics.listener": "", "log.cleaner.backoff.ms": "100"}
PROMPT_S = 0.5
"""The time limit on a busy machine. A loop that waits for the disk waits for seconds."""
STOPS_WITHIN_S = HANG_S + 10


class HangingDiskBroker:
    """A broker whose disk calls can be held."""

    def __init__(self, directory: Path) -> None:
        self.held = HeldDisk(directory / "held")
        self.broker = BrokerProcess(directory / "data", **SETTINGS)
        self.broker.prefix = self.held.prefix

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.broker.log if line.startswith("{")]
        return [line for line in lines if line["event"] == name]

    async def wire(self) -> Wire:
        return await Wire.connect(self.broker.port)

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until another process reaches the condition."""
        async with asyncio.timeout(20):
            while not holds():
                assert self.broker.is_running, "\n".join(self.broker.log[-10:])
                await asyncio.sleep(0.02)
        assert holds(), what

    async def hangs(self) -> None:
        """Wait until a call to the disk is held, and the broker has noticed that."""
        seen = len(self.events("disk_hangs"))
        await self.until(lambda: self.held.counts.held > 0, "no call waits")
        await self.until(lambda: len(self.events("disk_hangs")) > seen, "the log does not say that the disk hangs")

    async def goes_on(self) -> None:
        """Let the disk continue, and wait until the broker has noticed that."""
        seen = len(self.events("disk_goes_on"))
        self.held.set()
        await self.until(lambda: len(self.events("disk_goes_on")) > seen, "the log does not say that the disk goes on")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[HangingDiskBroker]:
    machine = HangingDiskBroker(tmp_path)
    yield machine
    machine.held.set()
    machine.broker.kill()
    machine.held.close()


def send(wire: Wire, topic: str = "t", value: bytes = b"x") -> asyncio.Task[int]:
    """Send a record; its error code."""
    wire.send(produce_request(topic, batch(value)))

    async def answer() -> int:
        return int((await wire.receive()).responses[0].partition_responses[0].error_code)

    return asyncio.create_task(answer())


async def is_served(wire: Wire) -> None:
    """Check for a while that requests without disk access are answered at once."""
    for _ in range(20):
        began = time.monotonic()
        await wire.call(ApiVersionsRequest())
        row = await wire.fetch("t", 0, max_wait_ms=0)
        assert time.monotonic() - began < PROMPT_S
        assert (row.error_code, [record.value for record in records_of(row.records)][:1]) == (0, [b"before"])
        await asyncio.sleep(0.02)


async def prepared(machine: HangingDiskBroker) -> tuple[Wire, Wire]:
    """A broker with an acknowledged record, and connections of a writer and a bystander."""
    machine.broker.start()
    writer, bystander = await machine.wire(), await machine.wire()
    await writer.create_topic("t")
    assert await send(writer, value=b"before") == 0
    return writer, bystander


async def test_readers_continue_and_writers_wait_until_the_hang_ends(machine: HangingDiskBroker) -> None:
    writer, bystander = await prepared(machine)
    machine.held.set(hangs=True)
    waiting = send(writer)
    await machine.hangs()
    await is_served(bystander)
    assert not waiting.done()
    assert await send(bystander) == ErrorCode.KAFKA_STORAGE_ERROR
    await machine.goes_on()
    assert await waiting == 0
    assert await send(bystander) == 0
    assert [len(machine.events(name)) for name in ("disk_hangs", "disk_goes_on")] == [1, 1]
    assert machine.events("disk_hangs")[0]["path"].startswith(str(machine.broker.data_dir))
    assert machine.broker.stop() == 0


async def test_a_hang_of_any_call_that_waits_for_a_disk_is_reported_even_if_it_holds_the_loop(
    machine: HangingDiskBroker,
) -> None:
    writer, _ = await prepared(machine)
    machine.held.set(calls=ALL, hangs=True)
    creating = asyncio.create_task(writer.create_topic("new"))
    await machine.hangs()
    await machine.goes_on()
    await creating
    assert await send(writer, "new") == 0


async def test_rolls_amid_a_hang(machine: HangingDiskBroker) -> None:
    writer, bystander = await prepared(machine)
    await writer.create_topic("rolled", segment_bytes="20000")
    machine.held.set(hangs=True)
    wires = [await machine.wire() for _ in range(8)]
    waiting = [send(wire, "rolled", bytes(15_000)) for wire in wires]
    await machine.hangs()
    await is_served(bystander)
    assert not any(each.done() for each in waiting)
    await machine.goes_on()
    assert await asyncio.gather(*waiting) == [0] * 8


async def test_a_topic_is_deleted_amid_a_hang(machine: HangingDiskBroker) -> None:
    writer, bystander = await prepared(machine)
    await writer.create_topic("doomed")
    assert await send(writer, "doomed") == 0
    machine.held.set(hangs=True)
    writer.send(DeleteTopicsRequest(topic_names=["doomed"], timeout_ms=30_000), version=5)
    await machine.hangs()
    await is_served(bystander)
    await machine.goes_on()
    assert (await writer.receive()).responses[0].error_code == 0
    await machine.until(lambda: not list(machine.broker.data_dir.glob("doomed*")), "its files remain")


@pytest.mark.proves("hang-amid-other-work")
async def test_segments_are_compacted_amid_a_hang(machine: HangingDiskBroker) -> None:
    """They are due after `min.compaction.lag.ms`: the hang has begun before, and no write waits."""
    writer, bystander = await prepared(machine)
    settings = {"segment_bytes": "4000", "min_cleanable_dirty_ratio": "0.01", "min_compaction_lag_ms": "1500"}
    await writer.create_topic("compacted", 1, cleanup_policy="compact", **settings)
    for _ in range(12):
        now_ms = time.time_ns() // 1_000_000
        record = Record(offset=0, timestamp=now_ms, key=b"key", value=bytes(1_000))
        writer.send(produce_request("compacted", build_batch([record])))
        assert (await writer.receive()).responses[0].partition_responses[0].error_code == 0
    assert not machine.events("log_compacted")
    machine.held.set(hangs=True)
    await machine.hangs()
    await is_served(bystander)
    assert not machine.events("log_compacted")
    await machine.goes_on()
    await machine.until(lambda: bool(machine.events("log_compacted")), "nothing was compacted")


@pytest.mark.proves("hang-amid-other-work")
async def test_a_stop_while_the_disk_hangs_ends_in_time_and_says_why(machine: HangingDiskBroker) -> None:
    writer, _ = await prepared(machine)
    machine.held.set(hangs=True)
    waiting = send(writer, value=b"in doubt")
    await machine.hangs()
    began = time.monotonic()
    assert await asyncio.to_thread(machine.broker.stop, 30) == EXIT_STATUS
    assert time.monotonic() - began < STOPS_WITHIN_S
    last = json.loads(machine.broker.log[-1])
    assert last["event"] == "disk_failed"
    assert last["error"].startswith("the disk hangs: a call for ")
    assert "00000000000000000000.log waits for" in last["error"]
    assert len(machine.events("disk_failed")) == len(machine.events("disk_hangs")) == 1
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError, AssertionError)):
        assert await waiting == 0
    machine.held.set()
    machine.broker.start()
    row = await (await machine.wire()).fetch("t", 0, max_wait_ms=0)
    assert records_of(row.records)[0].value == b"before"


async def test_a_stop_amid_which_the_disk_begins_to_hang_ends_in_time(machine: HangingDiskBroker) -> None:
    writer, _ = await prepared(machine)
    machine.held.set(hangs=True)
    waiting = send(writer)
    await machine.until(lambda: machine.held.counts.held > 0, "no call waits")
    assert await asyncio.to_thread(machine.broker.stop, 30) == EXIT_STATUS
    waiting.cancel()


async def test_a_stop_continues_when_the_hang_ends(machine: HangingDiskBroker) -> None:
    machine.broker.settings["disk.hang.timeout.ms"] = "5000"
    writer, _ = await prepared(machine)
    machine.held.set(hangs=True)
    waiting = send(writer)
    await machine.until(lambda: machine.held.counts.held > 0, "no call waits")
    stopping = asyncio.create_task(asyncio.to_thread(machine.broker.stop, 30))
    await machine.until(lambda: bool(machine.events("stopping")), "it does not stop")
    machine.held.set()
    assert await stopping == 0
    waiting.cancel()


@pytest.fixture
async def starting(machine: HangingDiskBroker) -> subprocess.Popen[str]:
    """A start on a disk that hangs. The log has reported the hang."""
    await prepared(machine)
    machine.broker.kill()
    machine.held.set(hangs=True)
    command = [*machine.held.prefix, sys.executable, "-m", "semel_broker", "--log-format", "json", "--port", "0"]
    command += ["--data-dir", str(machine.broker.data_dir), *(f"--set={key}={SETTINGS[key]}" for key in SETTINGS)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    event = await asyncio.to_thread(event_of, process, "disk_hangs")
    assert event["path"].startswith(str(machine.broker.data_dir))
    assert event["waited_ms"] >= HANG_S * 1_000
    return process


def event_of(process: subprocess.Popen[str], *names: str) -> dict[str, Any]:
    """Read lines until all these events have come, in any order. Returns the last one."""
    assert process.stdout is not None
    missing = set(names)
    for line in process.stdout:
        fields = json.loads(line) if line.startswith("{") else {}
        missing.discard(fields.get("event"))
        if not missing:
            return dict(fields)
    raise AssertionError(f"it ended without {missing}")


async def test_a_start_on_a_disk_that_hangs_reports_it_and_continues(
    machine: HangingDiskBroker, starting: subprocess.Popen[str]
) -> None:
    machine.held.set()
    await asyncio.to_thread(event_of, starting, "disk_goes_on", "ready")
    starting.terminate()
    await asyncio.to_thread(starting.communicate)
    assert starting.returncode == 0


@pytest.mark.proves("hang-amid-other-work")
async def test_a_start_on_a_disk_that_hangs_can_be_stopped(starting: subprocess.Popen[str]) -> None:
    starting.terminate()
    output, _ = await asyncio.to_thread(starting.communicate)
    assert starting.returncode == EXIT_STATUS
    last = json.loads(output.splitlines()[-1])
    assert last["event"] == "disk_failed"
    assert last["error"].startswith("the disk hangs: a call for ")


@pytest.mark.proves("hang-amid-other-work")
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("failures", [1, FOR_EVER])
@pytest.mark.parametrize(
    ("calls", "topics"), [(FDATASYNC, ["t"]), (SYNCS, ["t", "first"])], ids=["of a file", "of a file system"]
)
async def test_a_sync_that_fails_ends_the_process_and_nothing_acknowledged_is_lost(
    machine: HangingDiskBroker, calls: int, topics: list[str], failures: int, number: int
) -> None:
    """A failed sync is never retried: the kernel has dropped the pages that it could not write, and a second sync
    would succeed.
    """
    writer, _ = await prepared(machine)
    await writer.create_topic("first")
    wires = [await machine.wire() for _ in topics]
    machine.held.set(calls=calls, error=number, failures=failures)
    answers = [send(wire, topic, b"in doubt") for wire, topic in zip(wires, topics, strict=True)]
    assert await asyncio.to_thread(machine.broker.ended, 20) == EXIT_STATUS
    assert f"({'Input/output error' if number == errno.EIO else 'No space left on device'})" in machine.broker.log[-1]
    assert 0 not in await asyncio.gather(*answers, return_exceptions=True)
    machine.held.set()
    machine.broker.start()
    row = await (await machine.wire()).fetch("t", 0, max_wait_ms=0)
    assert records_of(row.records)[0].value == b"before"
    assert await send(await machine.wire()) == 0
