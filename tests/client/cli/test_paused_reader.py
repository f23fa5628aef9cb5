"""A reader of the output that pauses, as in `semel consume | less`, does not hold the client: it stays in its group."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import fcntl
from typing import BinaryIO

import pytest
from semel import Producer
from semel._command_line.warnings_thread import LINES_MAX as WARNINGS_MAX
from semel._command_line.warnings_thread import WarningsThread
from semel.cli.consume.printer import text_printer
from semel_broker.node import Node
from semel_broker.testing.in_process import EphemeralBroker

pytestmark = pytest.mark.real_time

F_SETPIPE_SZ = 1031
PIPE_BYTES = 4096
RECORDS = 2_000
HEARTBEAT = 12
MORE_HEARTBEATS = 30
"""At 100 ms each they take longer than max_poll_interval_ms, which is 1.5 s."""


async def fill(broker: EphemeralBroker) -> None:
    async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(RECORDS):
            await producer.send("t", b"%d" % number)


def full_pipe() -> tuple[int, int]:
    """A pipe that is full of spaces: (the end to read, the end to write)."""
    outside, inside = os.pipe()
    os.set_blocking(inside, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(inside, b" " * PIPE_BYTES)
    os.set_blocking(inside, True)
    return outside, inside


@contextmanager
def consuming(broker: EphemeralBroker) -> Iterator[tuple[subprocess.Popen[bytes], BinaryIO]]:
    """`semel consume` as a member of the group `g`, and the end of its pipe that is not read."""
    outside, inside = os.pipe()
    fcntl(inside, F_SETPIPE_SZ, PIPE_BYTES)
    line = [sys.executable, "-m", "semel", "consume", "t", "-g", "g", "--from-beginning"]
    settings = ("max_poll_interval_ms=1500", "heartbeat_interval_ms=100", "session_timeout_ms=6000")
    line += ["-b", broker.bootstrap_servers, *(word for each in settings for word in ("-X", each))]
    with os.fdopen(outside, "rb") as reader, subprocess.Popen(line, stdout=inside, stderr=subprocess.PIPE) as process:
        os.close(inside)
        try:
            yield process, reader
        finally:
            process.kill()


def heartbeats(broker: EphemeralBroker) -> int:
    async def count(node: Node) -> int:
        return node.broker.counters.requests.of(HEARTBEAT).requests

    return broker.call(count)


def wait_for_heartbeats(broker: EphemeralBroker, count: int) -> None:
    until = time.monotonic() + 60
    while heartbeats(broker) < count:
        assert time.monotonic() < until, f"{heartbeats(broker)} heartbeats"
        time.sleep(0.02)


@pytest.mark.proves("paused-pager")
@pytest.mark.skipif(sys.platform != "linux", reason="sizes of pipes")
def test_a_member_stays_in_its_group_while_its_output_is_not_read(semel_broker: EphemeralBroker) -> None:
    semel_broker.create_topic("t", 1)
    asyncio.run(fill(semel_broker))
    with consuming(semel_broker) as (process, reader):
        wait_for_heartbeats(semel_broker, 1)
        before = heartbeats(semel_broker)
        wait_for_heartbeats(semel_broker, before + MORE_HEARTBEATS)
        for number in range(RECORDS):
            assert reader.readline() == b"%d\n" % number
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read().strip() == b"2,000 records"


@pytest.mark.skipif(sys.platform != "linux", reason="sizes of pipes")
def test_a_signal_ends_a_command_whose_output_is_not_read(semel_broker: EphemeralBroker) -> None:
    semel_broker.create_topic("t", 1)
    asyncio.run(fill(semel_broker))
    with consuming(semel_broker) as (process, _):
        wait_for_heartbeats(semel_broker, 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stderr is not None
        said = process.stderr.read().strip()
        assert said.endswith(b" records")
        assert said != b"2,000 records", "those that the pipe has taken are counted"


async def test_the_printer_waits_for_a_bound_and_prints_in_order() -> None:
    outside, inside = os.pipe()
    with os.fdopen(inside, "wb") as output:
        printer = text_printer(output)
        assert await printer.wait(0, 0)
        for number in range(100):
            printer.put(b"%d" % number * 2_000, 1)
        assert not await printer.wait(0, 0.01)
        assert printer.records < 100
        read = b""
        while not await printer.wait(0, 0):
            read += await asyncio.to_thread(os.read, outside, 65_536)
        assert printer.records == 100
        printer.end()
    while piece := os.read(outside, 65_536):
        read += piece
    assert read == b"".join(b"%d" % number * 2_000 for number in range(100))
    os.close(outside)


async def test_a_closed_pipe_is_an_error_of_the_one_that_waits() -> None:
    outside, inside = os.pipe()
    os.close(outside)
    with os.fdopen(inside, "wb") as output:
        printer = text_printer(output)
        printer.put(b"line\n", 1)
        with pytest.raises(BrokenPipeError):
            await printer.wait(0, 60)
        assert (printer.records, printer.is_closed) == (0, True)
        printer.put(b"line\n", 1)
        with pytest.raises(BrokenPipeError):
            await printer.wait(0, 60)


async def test_the_thread_of_the_printer_ends_with_the_command_after_its_last_line() -> None:
    outside, inside = os.pipe()
    with os.fdopen(inside, "wb") as output:
        printer = text_printer(output)
        printer.put(b"line\n", 1)
        (thread,) = (each for each in threading.enumerate() if each.name == "semel-printer")
        printer.end()
        await asyncio.to_thread(thread.join)
    assert os.read(outside, 100) == b"line\n"
    os.close(outside)


def test_warnings_of_the_client_wait_in_a_thread_and_are_printed_in_order() -> None:
    outside, inside = full_pipe()
    handler = WarningsThread(inside)
    for number in range(WARNINGS_MAX + 100):
        handler.handle(logging.makeLogRecord({"msg": "%d " + "x" * 200, "args": (number,), "levelno": logging.WARNING}))
    assert not handler.wait(0.01)
    os.set_blocking(outside, False)
    read = b""
    while not handler.wait(0.001):
        with contextlib.suppress(BlockingIOError):
            read += os.read(outside, 1 << 20)
    with contextlib.suppress(BlockingIOError):
        read += os.read(outside, 1 << 20)
    assert [int(line.split()[0]) for line in read.splitlines()] == list(range(WARNINGS_MAX))
    os.close(outside)
    os.close(inside)


def test_a_command_prints_the_warnings_of_the_client_and_a_pipe_that_is_not_read_bounds_its_end() -> None:
    program = (
        "import logging; from semel._command_line.common import run\n"
        "async def main(): logging.getLogger('semel').warning('first'); logging.getLogger('semel').info('not shown')\n"
        "run(main())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "first\n")
    outside, inside = full_pipe()
    assert subprocess.run([sys.executable, "-c", program], stderr=inside, timeout=60).returncode == 0
    os.close(outside)
    os.close(inside)
