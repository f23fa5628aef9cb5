"""`semel serve` as a real process: start, signals, its data directory, and SIGKILL."""

import asyncio
import json
import os
import re
import signal
import socket
import stat
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from broker.conftest import StartBroker
from broker.harness import Wire, batch, produce_request
from broker.sasl_login import log_in
from semel_protocol import __version__
from semel_protocol.errors import ErrorCode
from semel_protocol.extras import install_command
from semel_protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from semel_protocol.messages.k16_list_groups import ListGroupsRequest
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest
from support.processes import why_it_failed

pytestmark = pytest.mark.real_time

IN_TERMINAL = (sys.executable, "-m", "semel_broker")
COMMAND = (*IN_TERMINAL, "--log-format", "json")


class ServeProcess:
    """One broker process and the lines it printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self.wires: list[Wire] = []

    async def line(self, event: str) -> dict[str, Any]:
        """The next line with this event name."""
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(20):
                while data := await self.process.stdout.readline():
                    self.lines.append(json.loads(data))
                    if self.lines[-1]["event"] == event:
                        return self.lines[-1]
        except TimeoutError:
            pass  # the error below says what the process does
        raise AssertionError(f"no {event}: {self.lines}; {await why_it_failed(self.process)}")

    async def wire(self) -> Wire:
        self.wires.append(await Wire.connect(self.port))
        return self.wires[-1]

    async def ready(self) -> "ServeProcess":
        self.port = int((await self.line("ready"))["port"])
        return self

    async def end(self, number: signal.Signals | None) -> int:
        """Send the signal, unless it was sent before, and return the exit status."""
        for wire in self.wires:
            await wire.close()
        if number is not None:
            self.process.send_signal(number)
        async with asyncio.timeout(20):
            return await self.process.wait()


Spawn = Callable[..., Awaitable[ServeProcess]]


@pytest.fixture
async def spawn(tmp_path: Path) -> AsyncIterator[Spawn]:
    spawned: list[ServeProcess] = []

    async def start(*arguments: str, data: str = "data") -> ServeProcess:
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *("--data-dir", str(tmp_path / data), *(arguments or ("--port", "0"))),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")},
        )
        spawned.append(ServeProcess(process))
        return spawned[-1]

    yield start
    for one in spawned:
        if one.process.returncode is None:
            one.process.kill()
            await one.process.wait()


async def refused(process: ServeProcess) -> str:
    """The only message of a process that has ended with status 1: an event of its log, and nothing on stderr."""
    async with asyncio.timeout(20):
        printed, errors = await process.process.communicate()
    assert process.process.returncode == 1, errors
    assert errors == b""
    (line,) = map(json.loads, printed.splitlines())
    assert (line["event"], line["level"]) == ("start_failed", "error")
    return str(line["error"])


async def test_a_failure_shows_how_the_process_ended_and_its_stderr(spawn: Spawn) -> None:
    """Otherwise a broker that fails to start once in a thousand runs cannot be explained."""
    with pytest.raises(
        AssertionError, match=r"no ready: \[\]; it ended with status 2, stderr: (?s:.*)--no-such-option"
    ):
        await (await spawn("--no-such-option")).ready()


async def test_sigterm_stops_cleanly_without_later_recovery(spawn: Spawn, tmp_path: Path) -> None:
    first = await (await spawn()).ready()
    wire = await first.wire()
    await wire.create_topic("t")
    assert (await wire.produce("t", batch(b"a"))).error_code == 0
    assert await first.end(signal.SIGTERM) == 0
    assert [line["event"] for line in [*first.lines, await first.line("stopped")]][-1] == "stopped"
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "data" / "t-0" / f"{1:020d}.snapshot").exists()
    second = await (await spawn()).ready()
    assert "recovered_after_unclean_stop" not in [line["event"] for line in second.lines]
    assert await (await second.wire()).values("t") == [b"a"]
    assert await second.end(signal.SIGINT) == 0


async def test_a_signal_ends_a_start_that_waits_for_etcd(spawn: Spawn) -> None:
    asked = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    etcd = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = etcd.sockets[0].getsockname()[1]
    for number in (signal.SIGTERM, signal.SIGINT):
        asked.clear()
        process = await spawn("--port", "0", "--etcd", f"http://127.0.0.1:{port}")
        async with asyncio.timeout(20):
            await asked.wait()
        process.process.send_signal(number)
        await process.line("stopped_before_ready")
        assert await process.end(None) == 0
    etcd.close()


@pytest.mark.proves("secrets-shown")
async def test_the_file_with_credentials_is_readable_for_the_brokers_user_alone(spawn: Spawn, tmp_path: Path) -> None:
    """From its first byte on.

    A start corrects the mode of a file that an earlier version has written readable for all.
    """
    store = tmp_path / "data" / "semel.store"
    first = await (await spawn()).ready()
    assert stat.S_IMODE(store.stat().st_mode) == 0o600
    await (await first.wire()).create_topic("t")
    assert await first.end(signal.SIGTERM) == 0
    assert stat.S_IMODE(store.stat().st_mode) == 0o600
    store.chmod(0o644)
    second = await (await spawn()).ready()
    assert stat.S_IMODE(store.stat().st_mode) == 0o600
    assert await second.end(signal.SIGTERM) == 0


async def test_sigterm_answers_the_produces_in_flight(spawn: Spawn) -> None:
    process = await (await spawn()).ready()
    wire = await process.wire()
    await wire.create_topic("t")
    for i in range(200):
        wire.send(produce_request("t", batch(b"%d" % i)))
    process.process.send_signal(signal.SIGTERM)
    answered = 0
    while True:
        try:
            row = (await wire.receive()).responses[0].partition_responses[0]
        except (asyncio.IncompleteReadError, ConnectionResetError):
            break
        assert (row.error_code, row.base_offset) == (0, answered)
        answered += 1
    assert await process.end(None) == 0
    again = await (await spawn()).ready()
    assert len(await (await again.wire()).values("t")) >= answered


@pytest.mark.parametrize("durability", ["os", "fsync"])
async def test_sigkill_loses_nothing_acknowledged_and_retries_are_recognised(spawn: Spawn, durability: str) -> None:
    sequence, acknowledged, wanted = 0, 0, 0
    producer_ids = []
    for _ in range(4):
        process = await (await spawn("--port", "0", "--set", f"durability={durability}")).ready()
        wire = await process.wire()
        if not producer_ids:
            await wire.create_topic("t")
        response = await wire.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1))
        producer_ids.append(response.producer_id)
        sequence = acknowledged  # resend unacknowledged records with the same sequences
        wanted = acknowledged + 300
        killed_at = acknowledged + 150
        while sequence < wanted and acknowledged < killed_at:
            while sequence < wanted and sequence - acknowledged < 5:
                data = batch(b"%d" % sequence, producer_id=producer_ids[0], producer_epoch=0, base_sequence=sequence)
                wire.send(produce_request("t", data))
                sequence += 1
            row = (await wire.receive()).responses[0].partition_responses[0]
            assert (row.error_code, row.base_offset) == (0, acknowledged)
            acknowledged += 1
        assert await process.end(signal.SIGKILL) == -signal.SIGKILL
    process = await (await spawn()).ready()
    (recovered,) = [line for line in process.lines if line["event"] == "recovered_after_unclean_stop"]
    assert recovered["logs"] == 1
    assert process.lines[-1]["version"] == __version__
    values = await (await process.wire()).values("t")
    assert values[:acknowledged] == [b"%d" % i for i in range(acknowledged)]
    assert values == [b"%d" % i for i in range(len(values))]  # without duplicates at the end
    assert len(values) <= acknowledged + 5
    assert len(set(producer_ids)) == 4


async def test_a_second_process_on_the_same_data_is_refused(spawn: Spawn) -> None:
    first = await (await spawn()).ready()
    message = await refused(await spawn())
    assert str(first.process.pid) in message
    wire = await first.wire()
    await wire.create_topic("t")
    assert (await wire.produce("t", batch(b"a"))).error_code == 0


async def test_a_port_in_use_is_refused_with_a_message(spawn: Spawn) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        message = await refused(await spawn("--port", str(port)))
    assert f"127.0.0.1:{port} is in use" in message
    assert await (await (await spawn()).ready()).end(signal.SIGTERM) == 0  # the directory is unlocked


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--set", "num.partitons=3"), "num.partitions"),
        (("--set", "num.partitions=none"), "whole number"),
        (("--port", "99999"), "65535"),
        (("--host", "192.0.2.1", "--port", "0"), "no such address"),
        (("--host", "a..b", "--port", "0"), "no such address"),
        (("--host", "no-such-host.invalid", "--port", "0"), "cannot listen there"),
        (("--rack", "\udcff", "--port", "0"), "broker.rack = '\\udcff': must be Unicode text"),
        (("--host", "0.0.0.0", "--port", "0"), "--advertised-host"),
    ],
)
async def test_bad_arguments_are_explained(spawn: Spawn, arguments: tuple[str, ...], words: str) -> None:
    assert words in await refused(await spawn(*arguments))


async def start_in_terminal(data: Path, *arguments: str, log: Path | None = None) -> tuple[int | None, str]:
    """A start that fails, with a terminal as stderr and, without the file `log`, as stdout: the exit status and what
    the terminal shows."""
    terminal, inside = os.openpty()
    with (log or Path(os.devnull)).open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *(*IN_TERMINAL, "--data-dir", str(data), *arguments), stdout=inside if log is None else file, stderr=inside
        )
        async with asyncio.timeout(20):
            status = await process.wait()
    os.set_blocking(terminal, False)
    shown = await asyncio.to_thread(os.read, terminal, 65_536)
    os.close(inside)
    os.close(terminal)
    return status, shown.decode()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--host", "192.0.2.1", "--port", "0"), "no such address"),
        (("--set", "num.partitons=3"), "num.partitions"),
        (("--set", "num.partitons=3", "--log-format", "json"), "num.partitions"),
    ],
)
async def test_a_terminal_shows_a_failed_start_once(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    """Also when the log goes to a file, as in `semel serve > log`: then the file has the event, too."""
    assert (await start_in_terminal(tmp_path / "data", *arguments))[1].count(words) == 1
    status, shown = await start_in_terminal(tmp_path / "data", *arguments, log=tmp_path / "log")
    assert status == 1
    assert shown.count(words) == 1
    assert "Traceback" not in shown
    assert [json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines()] == ["start_failed"]


async def test_without_a_log_standard_error_says_why_the_start_failed(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(*COMMAND, "--data-dir", str(tmp_path / "data"), "--host", "192.0.2.1", "--port", "0"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(20):
        _, errors = await process.communicate()
    (line,) = errors.decode().splitlines()
    assert "no such address" in line


async def test_the_log_of_a_broker_alone_begins_with_what_runs_where(tmp_path: Path) -> None:
    """Its registration and its election concern no other broker: they are at the level debug."""
    terminal, inside = os.openpty()
    process = await asyncio.create_subprocess_exec(
        *(*IN_TERMINAL, "--data-dir", str(tmp_path / "data"), "--port", "0"), stdout=inside, stderr=inside
    )
    os.close(inside)
    first = b""
    while b"\n" not in first:
        first += await asyncio.to_thread(os.read, terminal, 65_536)
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(20):
        assert await process.wait() == 0
    os.close(terminal)
    line = re.sub(r"\x1b\[[0-9;]*m", "", first.decode()).splitlines()[0]
    assert " ready " in line
    for fact in (f"version={__version__}", f"data_dir={tmp_path / 'data'}", "advertised=127.0.0.1:", "stop=Ctrl-C"):
        assert fact in line
    assert "try='semel topic create first -b 127.0.0.1:" in line.replace('"', "'")


async def test_an_unusable_data_directory_is_refused_with_a_message(spawn: Spawn, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for data in ("file", "file/below"):
        message = await refused(await spawn(data=data))
        assert str(tmp_path / "file") in message
        assert "--data-dir" in message
        assert "Traceback" not in message


async def test_listening_beyond_loopback_logs_a_warning(spawn: Spawn) -> None:
    process = await spawn("--host", "0.0.0.0", "--advertised-host", "127.0.0.1", "--port", "0")
    line = await (await process.ready()).line("listens_beyond_loopback")
    assert line["level"] == "warning"


async def test_settings_come_from_file_environment_and_flags(spawn: Spawn, tmp_path: Path) -> None:
    file = tmp_path / "semel.toml"
    file.write_text("num.partitions = 3\n[auto.create]\ntopics.enable = false\n")
    process = await (await spawn("--config", str(file), "--set", "num.partitions=4", "--port", "0")).ready()
    wire = await process.wire()
    await wire.create_topic("t", partitions=-1)
    assert (await wire.produce("t", batch(b"x"), partition=3)).error_code == 0
    assert (await wire.produce("u", batch(b"x"))).error_code == 3


async def test_stopping_does_not_wait_for_a_rebalance(start_broker: StartBroker) -> None:
    broker = await start_broker(group_initial_rebalance_delay_ms="60000")
    wire = await broker.wire()
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    wire.send(join, version=3)
    async with asyncio.timeout(10):
        while not (await (await broker.wire()).call(ListGroupsRequest())).groups:
            await asyncio.sleep(0.01)
    began = time.monotonic()
    assert broker.node is not None
    stopping = asyncio.create_task(broker.node.stop())
    assert (await wire.receive()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await wire.closed_by_peer()
    await stopping
    broker.node = None
    assert time.monotonic() - began < 3


async def test_a_damaged_log_is_named_and_not_changed_and_all_others_are_served(spawn: Spawn, tmp_path: Path) -> None:
    first = await (await spawn()).ready()
    wire = await first.wire()
    for topic in ("t", "u"):
        await wire.create_topic(topic)
        for _ in range(3):
            await wire.produce(topic, batch(b"precious"))
    assert await first.end(signal.SIGKILL) == -signal.SIGKILL
    log = tmp_path / "data" / "t-0" / f"{0:020d}.log"
    damaged = bytearray(log.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF  # in the middle, before whole batches: not a torn tail
    log.write_bytes(damaged)
    for number in (signal.SIGTERM, signal.SIGKILL):  # a clean stop does not make the next start trust the log
        process = await spawn()
        line = await process.line("partition_offline")
        assert line["level"] == "error"
        assert log.name in line["reason"]
        wire = await (await process.ready()).wire()
        assert (await wire.produce("t", batch(b"more"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await wire.produce("u", batch(b"more"))).error_code == 0
        assert log.read_bytes() == damaged
        await process.end(number)


async def test_a_metrics_listener_in_use_stops_the_start_only_if_it_was_asked_for(spawn: Spawn, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listener = f"metrics.listener=127.0.0.1:{taken.getsockname()[1]}"
        process = await spawn("--port", "0", "--set", listener)
        line = await process.line("start_failed")
        assert line["error"].startswith(listener.replace("=", " = "))
        assert await process.end(None) == 1
    process = await (await spawn("--port", "0", "--set", "metrics.listener=127.0.0.1:0")).ready()
    assert process.lines[-1]["metrics_port"] > 0


# --- messages at the start -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extra", "missing", "arguments"),
    [
        ("broker", "structlog", ()),
        ("broker", "uvloop", ()),
        ("broker", "h11", ("--etcd", "http://127.0.0.1:2379")),
    ],
)
async def test_without_the_packages_of_an_extra_one_sentence_says_what_to_install(
    extra: str, missing: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from semel.cli.main import main; main()"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code, "serve", "--data-dir", str(tmp_path / "data"), "--port", "0", *arguments),
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(20):
        _, errors = await process.communicate()
    assert process.returncode == 1
    (line,) = errors.decode().splitlines()
    assert f"{missing!r}" in line
    assert install_command(extra) in line
    assert not (tmp_path / "data").exists()


async def test_a_broker_without_etcd_starts_without_h11() -> None:
    code = "import sys; sys.modules['h11'] = None; import semel_broker.node"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    async with asyncio.timeout(20):
        assert await process.wait() == 0


async def test_a_foreign_folder_is_refused_in_one_sentence(spawn: Spawn, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "thesis.tex").touch()
    said = await refused(await spawn())
    assert len(said.splitlines()) == 1
    assert "thesis.tex" in said
    assert [each.name for each in (tmp_path / "data").iterdir()] == ["thesis.tex"]


async def test_an_unknown_format_version_is_refused_in_one_sentence(spawn: Spawn, tmp_path: Path) -> None:
    await (await (await spawn()).ready()).end(signal.SIGTERM)
    meta = tmp_path / "data" / "meta.properties"
    meta.write_text(meta.read_text().replace("version=1", "version=7"))
    said = await refused(await spawn())
    assert "version=7" in said
    assert len(said.splitlines()) == 1


async def test_sighup_stops_cleanly(spawn: Spawn, tmp_path: Path) -> None:
    process = await (await spawn()).ready()
    assert await process.end(signal.SIGHUP) == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


async def test_a_closed_terminal_stops_it_cleanly(tmp_path: Path) -> None:
    """From then on writes of log lines fail."""
    terminal, inside = os.openpty()
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "--data-dir", str(tmp_path / "data"), "--port", "0", stdout=inside, stderr=inside
    )
    os.close(inside)
    shown = b""
    while b'"ready"' not in shown:
        shown += await asyncio.to_thread(os.read, terminal, 65_536)
    os.close(terminal)
    process.send_signal(signal.SIGHUP)
    async with asyncio.timeout(20):
        assert await process.wait() == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


async def test_a_closed_log_pipe_does_not_stop_it(tmp_path: Path) -> None:
    outside, inside = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "--data-dir", str(tmp_path / "data"), "--port", "0", stdout=inside
    )
    os.close(inside)
    shown = b""
    while b'"ready"' not in shown:
        shown += await asyncio.to_thread(os.read, outside, 65_536)
    os.close(outside)
    ready = next(line for line in map(json.loads, shown.splitlines()) if line["event"] == "ready")
    wire = await Wire.connect(ready["port"])
    for number in range(3):
        await wire.create_topic(f"t{number}")  # each is logged
    await wire.close()
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(20):
        await process.wait()
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


async def test_under_nohup_a_hangup_changes_nothing(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *("nohup", *COMMAND, "--data-dir", str(tmp_path / "data"), "--port", "0"), stdout=asyncio.subprocess.PIPE
    )
    broker = await ServeProcess(process).ready()
    process.send_signal(signal.SIGHUP)
    await (await broker.wire()).create_topic("t")
    assert await broker.end(signal.SIGTERM) == 0


async def test_the_first_user_is_made_at_the_first_start_and_then_left_alone(spawn: Spawn, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("a kettle\n")
    flags = ("--set", "listeners=SASL_PLAINTEXT://127.0.0.1:0", "--bootstrap-user", "admin")
    assert "SEMEL_BOOTSTRAP_PASSWORD" in await refused(await spawn(*flags))
    for event in ("bootstrap_user_made", "bootstrap_user_not_made"):
        process = await spawn(*flags, "--bootstrap-password-file", str(password))
        assert (await process.line(event))["user"] == "admin"
        await process.ready()
        assert (await process.line("no_authorizer"))["listeners"] == ["SASL_PLAINTEXT"]
        wire = await process.wire()
        assert (await log_in(wire, "admin", "a kettle", "SCRAM-SHA-512")).error_code == 0
        assert await process.end(signal.SIGTERM) == 0
        assert "a kettle" not in str(process.lines)


async def test_a_first_user_without_rights_is_warned_of(spawn: Spawn, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("a kettle\n")
    process = await spawn(
        *("--set", "listeners=SASL_PLAINTEXT://127.0.0.1:0", "--bootstrap-user", "admin"),
        *("--bootstrap-password-file", str(password)),
        *("--set", "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    )
    await process.ready()
    assert "User:admin" in (await process.line("bootstrap_user_has_no_rights"))["do"]
