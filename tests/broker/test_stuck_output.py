"""A broker process whose outputs are not read: pipes, a named pipe as audit log, a closed descriptor. Nothing waits."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from fcntl import fcntl
from pathlib import Path

import pytest
from broker.harness import Wire, batch
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from semel_storage.disk.os_disk import EXIT_STATUS
from support.etcd import free_ports

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(sys.platform != "linux", reason="sizes of pipes"),
    pytest.mark.proves("unread-output"),
]

F_SETPIPE_SZ = 1031
PIPE_BYTES = 4096
TOPICS = 100
"""Each has lines in both logs; a tenth of them fills a pipe."""
TIMEOUT_S = 60

Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """A small pipe: (the end to read, the end to write)."""
    ends = os.pipe()
    fcntl(ends[0], F_SETPIPE_SZ, PIPE_BYTES)
    yield ends
    for end in ends:
        os.close(end)


def fill(writing: int) -> None:
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b" " * PIPE_BYTES)
    except BlockingIOError:
        os.set_blocking(writing, True)


async def start(
    tmp_path: Path, *settings: str, port: int, stdout: int | None, stderr: int | None = None
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "semel_broker", "--log-format", "json"),
        *("--data-dir", str(tmp_path / "data"), "--port", str(port)),
        *(f"--set={setting}" for setting in ("metrics.listener=", *settings)),
        stdout=stdout,
        stderr=stderr,
        env={name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")},
    )


async def connected(port: int) -> Wire:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                return await Wire.connect(port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.05)


async def work(port: int) -> None:
    """Send requests that each cause a line. A bystander sends Produce requests meanwhile."""
    wire, bystander = await connected(port), await connected(port)
    async with asyncio.timeout(TIMEOUT_S):
        await bystander.create_topic("bystander")
        for number in range(TOPICS):
            await wire.create_topic(f"topic-{number}")
            assert (await bystander.produce("bystander", batch(b"v"))).error_code == 0
    await wire.close()
    await bystander.close()


async def ended(process: asyncio.subprocess.Process, number: signal.Signals | None = signal.SIGTERM) -> int:
    if number is not None:
        process.send_signal(number)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_pipe_that_is_not_read_stops_neither_requests_nor_the_end(tmp_path: Path, pipe: Pipe) -> None:
    (port,) = free_ports(1)
    process = await start(tmp_path, port=port, stdout=pipe[1])
    try:
        await work(port)
    finally:
        status = await ended(process)
    assert status == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert len(os.read(pipe[0], 1 << 20)) >= PIPE_BYTES // 2, "the pipe was full"


async def test_what_waited_is_read_later_without_a_gap(tmp_path: Path, pipe: Pipe) -> None:
    (port,) = free_ports(1)
    process = await start(tmp_path, port=port, stdout=pipe[1])
    try:
        await work(port)
        process.send_signal(signal.SIGTERM)
        data = b""
        while b'"stopped"' not in data:  # a line of its own
            async with asyncio.timeout(TIMEOUT_S):
                data += await asyncio.to_thread(os.read, pipe[0], 1 << 20)
    finally:
        assert await ended(process, None) == 0
    lines = [json.loads(line) for line in data.splitlines()]
    created = [line["topic"] for line in lines if line["event"] == "topic_created"]
    assert created == ["bystander", *(f"topic-{number}" for number in range(TOPICS))]


async def test_a_named_pipe_as_audit_log_stops_neither_requests_nor_the_end(tmp_path: Path) -> None:
    path = tmp_path / "audit.pipe"
    os.mkfifo(path)
    holder = os.open(path, os.O_RDWR)
    fcntl(holder, F_SETPIPE_SZ, PIPE_BYTES)
    (port,) = free_ports(1)
    with (tmp_path / "log").open("wb") as log:
        process = await start(tmp_path, f"audit.log.file={path}", port=port, stdout=log.fileno())
    try:
        await work(port)
    finally:
        status = await ended(process)
        os.close(holder)
    assert status == 0
    events = [json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines()]
    assert events[-2:] == ["stopped", "audit_log_not_written"], "lost lines are counted at the end"


async def test_a_required_audit_log_that_is_not_read_refuses_until_it_is_read_and_loses_nothing(tmp_path: Path) -> None:
    """The test takes three seconds, because a write counts as hanging after two."""
    path = tmp_path / "audit.pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    fcntl(reader, F_SETPIPE_SZ, PIPE_BYTES)
    (port,) = free_ports(1)
    settings = (f"audit.log.file={path}", "audit.log.required=true")
    with (tmp_path / "log").open("wb") as log:
        process = await start(tmp_path, *settings, port=port, stdout=log.fileno())
    wire = await connected(port)
    created: list[str] = []

    async def create(name: str) -> int:
        row = CreateTopicsRequestTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        answer = await wire.call(CreateTopicsRequest(topics=[row], timeout_ms=10_000, validate_only=False))
        code: int = answer.topics[0].error_code
        if code == 0:
            created.append(name)
        return code

    data = b""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while await create(f"topic-{len(created)}") == 0:
                await asyncio.sleep(0.02)  # until a write has taken too long
            assert await create("refused") == ErrorCode.KAFKA_STORAGE_ERROR
            assert (await wire.produce("topic-0", batch(b"v"))).error_code == 0, "it has no line in the audit log"
            while b'"after"' not in data:
                with contextlib.suppress(BlockingIOError):
                    data += os.read(reader, 1 << 20)
                await asyncio.sleep(0.02)
                if created[-1] != "after":
                    await create("after")
    finally:
        await wire.close()
        status = await ended(process)
        os.close(reader)
    assert status == 0
    assert [json.loads(line)["resource"] for line in data.splitlines()] == created
    events = [json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines()]
    assert events.count("audit_log_not_written") == 1
    assert events.count("audit_log_written_again") == 1


async def test_a_closed_standard_output_stops_nothing(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    semel = str(Path(sys.executable).parent / "semel")
    process = await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", 'exec "$@" >&- 2>&-', "sh", semel, "serve", "--data-dir", str(tmp_path / "data")),
        *("--port", str(port), "--set", "metrics.listener="),
    )
    try:
        await work(port)
    finally:
        assert await ended(process) == 0


async def test_a_failed_start_ends_although_both_outputs_hang(tmp_path: Path, pipe: Pipe) -> None:
    fill(pipe[1])
    (tmp_path / "data").write_text("no directory")
    process = await start(tmp_path, port=0, stdout=pipe[1], stderr=pipe[1])
    assert await ended(process, None) == 1


@pytest.mark.parametrize("is_stuck", [False, True])
async def test_a_failed_disk_ends_the_process_with_its_reason_or_without(pipe: Pipe, is_stuck: bool) -> None:
    if is_stuck:
        fill(pipe[1])
    program = "from semel_storage.disk.os_disk import end_process; end_process('write of x failed')"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stderr=pipe[1])
    assert await ended(process, None) == EXIT_STATUS
    said = os.read(pipe[0], 1 << 20)
    assert (b"write of x failed; the process ends" in said) == (not is_stuck)


async def test_a_broker_ends_for_its_disk_although_both_outputs_hang(tmp_path: Path, pipe: Pipe) -> None:
    """The end waits only a bounded time for the log and the last message."""
    fill(pipe[1])
    program = (
        "import sys; from semel_broker.__main__ import _close_outputs, _end_for_disk;"
        "from semel_broker.audit_file import audit_room; from semel_broker.logging import LogOutput, make_logger;"
        "output = LogOutput(sys.stdout, audit_room=audit_room(is_required=False));"
        "log = make_logger('info', 'json', output);"
        "_end_for_disk(log, output, lambda: _close_outputs(output, None), 'write of x failed')"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=pipe[1], stderr=pipe[1])
    assert await ended(process, None) == EXIT_STATUS


@pytest.mark.parametrize("is_stuck", [False, True])
async def test_an_unexpected_error_ends_the_process_with_its_traceback_or_without(
    tmp_path: Path, pipe: Pipe, is_stuck: bool
) -> None:
    if is_stuck:
        fill(pipe[1])
    program = (
        "import semel_broker.__main__ as main\n"
        "async def failing(*_): raise RuntimeError('a bug')\n"
        "main._serve = failing\n"
        f"main.serve(['--data-dir', {str(tmp_path / 'data')!r}])"
    )
    log = tmp_path / "log"
    with log.open("wb") as out:
        stdout = pipe[1] if is_stuck else out.fileno()
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=stdout, stderr=pipe[1])
    assert await ended(process, None) == 1
    assert (b"RuntimeError: a bug" in os.read(pipe[0], 1 << 20)) == (not is_stuck)
    if not is_stuck:
        line = json.loads(log.read_text())
        assert line["event"] == "ended_by_error"
        assert "RuntimeError: a bug" in line["exception"]


async def test_what_python_and_libraries_would_print_is_in_the_log() -> None:
    program = (
        "import logging, sys, threading, warnings; from semel_broker.output.python_messages import route;"
        "from semel_broker.audit_file import audit_room; from semel_broker.logging import LogOutput, make_logger;"
        "output = LogOutput(sys.stdout, audit_room=audit_room(is_required=False));"
        "log = make_logger('info', 'json', output); route(log.warning, log.error);"
        "logging.getLogger('asyncio').warning('slow %s', 'callback');"
        "warnings.warn('old', DeprecationWarning);"
        "thread = threading.Thread(target=lambda: 1 / 0, name='t'); thread.start(); thread.join();\n"
        "class Bad:\n    def __del__(self): 1 / 0\n"
        "Bad()\n"
        "output.close(20)"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "always", "-c", program), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(TIMEOUT_S):
        printed, errors = await process.communicate()
    assert errors == b""
    lines = [json.loads(line) for line in printed.splitlines()]
    assert [line["event"] for line in lines] == [*["library_message"] * 2, "thread_failed", "unraisable_error"]
    assert lines[0]["message"] == "slow callback"
    assert "DeprecationWarning: old" in lines[1]["message"]
    assert all("ZeroDivisionError" in line["exception"] for line in lines[2:])
