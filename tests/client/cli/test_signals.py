"""A signal ends a command as Ctrl-C does: its records are stored, its group is left, its exit status says which signal.

Closed and full standard streams end a command with one line.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from client.shell import Shell
from support.processes import BrokerProcess

pytestmark = pytest.mark.real_time
ENDING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker")).start()
    yield process
    assert process.stop() == 0


@pytest.fixture
def semel(broker: BrokerProcess) -> Shell:
    return Shell(broker)


@contextmanager
def running(broker: BrokerProcess, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    line = [sys.executable, "-m", "semel", *arguments, "-b", broker.address]
    pipe = subprocess.PIPE
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", ENDING, ids=lambda number: number.name)
def test_produce_stores_what_has_arrived_and_says_how_much(
    broker: BrokerProcess, semel: Shell, number: signal.Signals
) -> None:
    topic = f"input-{number.name}"
    semel("topic", "create", topic, "-p", "1")
    with running(broker, "produce", topic) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"a\nlast")
        process.stdin.flush()
        assert semel("consume", topic, "-o", "0", "-n", "1") == "a\n"
        process.send_signal(number)
        assert process.wait(30) == 128 + number
        assert process.stderr.read() == f"2 records stored in {topic}, the last one at partition 0, offset 1\n".encode()
    assert semel("consume", topic, "-o", "0", "-e") == "a\nlast\n"


@pytest.mark.parametrize("number", ENDING, ids=lambda number: number.name)
def test_consume_leaves_its_group_and_has_committed_what_it_printed(
    broker: BrokerProcess, semel: Shell, number: signal.Signals
) -> None:
    topic = f"output-{number.name}"
    semel("topic", "create", topic, "-p", "1")
    semel("produce", topic, text="a\n")
    with running(broker, "consume", topic, "-g", topic, "-o", "beginning") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"a\n"
        process.send_signal(number)
        assert process.wait(30) == 0
        assert process.stderr.read().strip() == b"1 record"
    described = semel("group", "describe", topic)
    assert f"{topic}: Empty, 0 members" in described


@pytest.mark.parametrize("number", ENDING, ids=lambda number: number.name)
def test_a_command_that_shows_frames_ends_with_the_status_of_the_signal(
    broker: BrokerProcess, number: signal.Signals
) -> None:
    with running(broker, "top", "--json", "--interval", "0.1") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"{")
        process.send_signal(number)
        process.stdout.read()
        assert process.wait(30) == 128 + number
        assert process.stderr.read() == b""


def test_a_second_signal_ends_a_command_that_still_waits_for_brokers(broker: BrokerProcess, semel: Shell) -> None:
    semel("topic", "create", "held", "-p", "1")
    with running(broker, "produce", "held", "-X", "delivery_timeout_ms=200000") as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"a\n")
        process.stdin.flush()
        assert semel("consume", "held", "-o", "0", "-n", "1") == "a\n"
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            process.stdin.write(b"b\n")
            process.stdin.flush()
            assert process.stderr.readline().startswith(b"waiting: ")
            process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1)
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 143
        finally:
            os.kill(broker.pid, signal.SIGCONT)


def test_an_ignored_hangup_stays_ignored(broker: BrokerProcess) -> None:
    line = f"trap '' HUP; exec {sys.executable} -m semel top --json --interval 0.1 -b {broker.address}"
    with subprocess.Popen(["sh", "-c", line], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        for _ in range(3):
            assert process.stdout.readline().startswith(b"{")
        process.terminate()
        process.stdout.read()
        assert process.wait(30) == 143


NO_SPACE, CLOSED = "No space left on device", "Bad file descriptor"


@pytest.mark.parametrize(
    ("arguments", "redirection", "status", "said"),
    [
        ("topic list", ">&-", 1, f"Error: cannot write the output: {CLOSED}"),
        ("topic list", ">/dev/full", 1, f"Error: cannot write the output: {NO_SPACE}"),
        ("--help", ">&-", 1, f"Error: cannot write the output: {CLOSED}"),
        ("serve --settings toml", ">&-", 1, f"Error: cannot write the output: {CLOSED}"),
        ("console --help", ">&-", 1, f"Error: cannot write the output: {CLOSED}"),
        ("topic list", "<&-", 0, ""),
        ("topic list", "2>&-", 0, ""),
        ("topic list", ">/dev/full 2>&1 <&-", 1, ""),
        ("topic list", ">&- 2>&- <&-", 1, ""),
        ("produce streams", "2>&- <&-", 1, ""),
        ("produce streams", "<&-", 1, f"Error: cannot read the input: {CLOSED}"),
        ("produce streams --quiet", ">&- </dev/null", 0, ""),
        ("consume streams -o beginning -e", ">&-", 1, f"Error: cannot write the records to the output: {CLOSED}"),
        ("consume streams -o 0 -e", ">/dev/full", 1, f"Error: cannot write the records to the output: {NO_SPACE}"),
    ],
)
def test_a_stream_that_is_closed_or_full(
    broker: BrokerProcess, semel: Shell, arguments: str, redirection: str, status: int, said: str
) -> None:
    semel("produce", "streams", text="a\n")
    line = f"exec {sys.executable} -m semel {arguments} {redirection}"
    environment = {**os.environ, **semel.environment}
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr.strip()) == (status, said)
