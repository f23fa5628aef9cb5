"""`semel produce` against a broker process: order, limits, missing topics, interrupts."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from client.shell import Shell
from support.processes import BrokerProcess

LINES = 50_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker")).start()
    yield process
    assert process.stop() == 0


@pytest.fixture
def semel(broker: BrokerProcess) -> Shell:
    return Shell(broker)


def numbers(count: int) -> str:
    return "".join(f"{number}\n" for number in range(count))


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_many_lines_are_stored_once_and_in_order(semel: Shell, codec: str) -> None:
    name = f"many-{codec}"
    semel("topic", "create", name, "-p", "1")
    done = semel.run("produce", name, "-z", codec, "-H", "a=b", text=numbers(LINES))
    assert done.stderr == f"50,000 records stored in {name}, the last one at partition 0, offset 49999\n"
    assert semel("consume", name, "-o", "0", "-e") == numbers(LINES)
    assert semel("consume", name, "-o", "-1", "-e", "-f", "%o %v %h %K").split() == ["49999", "49999", "a=b", "-1"]


def test_many_lines_are_spread_over_partitions_or_go_to_the_one_that_is_asked_for(semel: Shell) -> None:
    semel("topic", "create", "spread", "-p", "3")
    semel("produce", "spread", text=numbers(LINES))
    rows = [line.split() for line in semel("consume", "spread", "-o", "0", "-e", "-f", "%p %v\\n").splitlines()]
    assert len({row[0] for row in rows}) > 1
    for partition in ("0", "1", "2"):
        values = [int(row[1]) for row in rows if row[0] == partition]
        assert values == sorted(values)
    assert sorted(int(row[1]) for row in rows) == list(range(LINES))
    semel("topic", "create", "chosen", "-p", "3")
    semel("produce", "chosen", "-p", "2", text=numbers(LINES))
    assert semel("consume", "chosen", "-p", "2", "-o", "0", "-e") == numbers(LINES)


def test_many_lines_with_keys_go_to_the_partitions_that_their_keys_have_in_every_client(semel: Shell) -> None:
    semel("topic", "create", "keyed", "-p", "3")
    text = "".join(f"{number % 50}={number}\n" for number in range(LINES))
    semel("produce", "keyed", "-k", "=", text=text)
    for key in range(50):
        semel("produce", "keyed", "-k", "=", text=f"{key}=one by one\n")
    rows = [line.split() for line in semel("consume", "keyed", "-o", "0", "-e", "-f", "%k %p %v\\n").splitlines()]
    for key in range(50):
        mine = [row for row in rows if row[0] == str(key)]
        assert len({row[1] for row in mine}) == 1
        assert [int(row[2]) for row in mine[:-1]] == list(range(key, LINES, 50))
    said = semel.fails("produce", "keyed", "-k", "=", text=text + "no separator\n" + text)
    assert "50,000 records stored, but line 50001 has no '=' between key and value: b'no separator'" in said


def test_separators_and_headers_that_are_not_utf_8_are_taken_as_bytes(semel: Shell) -> None:
    semel("topic", "create", "bytes", "-p", "1")
    semel("produce", "bytes", "-k", "é", "-H", "h\udcff=\udcfe", text="kévalue\n")
    row = json.loads(semel("consume", "bytes", "-o", "0", "-e", "--json"))
    assert (row["key"], row["value"], row["headers"]) == ("k", "value", [["h\\udcff", "\\xfe", "/g=="]])
    said = semel.fails("produce", "bytes", "-k", "\udcff", text="kvalue\n")
    assert "line 1 has no" in said, said


def test_line_ends_of_windows_and_empty_lines_are_kept_apart_in_many_lines(semel: Shell) -> None:
    semel("topic", "create", "ends", "-p", "1")
    semel("produce", "ends", text="one\r\n\r\n\n" * 20_000 + "last")
    assert semel("consume", "ends", "-o", "0", "-e") == "one\n\n\n" * 20_000 + "last\n"


def test_batches_are_no_larger_than_the_topic_allows(semel: Shell) -> None:
    semel("topic", "create", "tight", "-p", "1", "-c", "max.message.bytes=2000")
    semel("produce", "tight", text=numbers(LINES))
    assert semel("consume", "tight", "-o", "0", "-e") == numbers(LINES)
    said = semel.fails("produce", "tight", text=numbers(40) + "x" * 3_000 + "\n" + numbers(40))
    assert "80 records stored, but line 41 is not stored: " in said
    assert "MESSAGE_TOO_LARGE" in said
    assert "semel topic alter tight -c max.message.bytes=N" in said


@pytest.mark.parametrize("before", [3, 1_000])
@pytest.mark.parametrize("length", [200_000, 3_000_000])
def test_a_line_that_is_too_long_is_named_and_the_lines_before_it_are_stored(
    semel: Shell, before: int, length: int
) -> None:
    name = f"long-{before}-{length}"
    semel("topic", "create", name, "-p", "1")
    text = numbers(before) + "x" * length + "\nbehind\n"
    said = semel.fails("produce", name, "-X", "max.request.size=100000", text=text)
    assert f"{before:,} records stored, but line {before + 1} is longer than a record may be" in said
    assert "-X max_request_size=N" in said
    assert semel("consume", name, "-o", "0", "-e") == numbers(before)
    semel("topic", "alter", name, "-c", "max.message.bytes=4000000")
    semel("produce", name, "-X", "max.request.size=4000000", text=text)


def test_a_topic_that_the_broker_creates_is_said_to_be_new(semel: Shell) -> None:
    said = semel.run("produce", "created", text="a\n").stderr
    assert "topic created did not exist; the broker created it with 1 partition\n" in said
    assert "did not exist" not in semel.run("produce", "created", text="b\n").stderr
    assert "did not exist" not in semel.run("produce", "created-quietly", "-q", text="b\n").stderr
    assert "There is no topic 'craeted'. Did you mean 'created'" in semel.fails("produce", "craeted", "--no-create")
    assert "craeted" not in semel("topic", "list", "-q").split()


def test_a_topic_that_the_broker_does_not_create_is_refused(semel: Shell) -> None:
    semel("config", "set", "auto.create.topics.enable=false")
    try:
        said = semel.fails("produce", "not-made", text="a\n")
    finally:
        semel("config", "unset", "auto.create.topics.enable")
    assert "There is no topic 'not-made', and the broker does not create it (auto.create.topics.enable)" in said


def test_acknowledgements_of_one_broker_or_none_need_no_idempotence(semel: Shell) -> None:
    semel("topic", "create", "acks", "-p", "1")
    for given in (("--acks", "1"), ("--acks", "0"), ("--acks", "all")):
        semel("produce", "acks", *given, text="a\n")
    assert semel("consume", "acks", "-o", "0", "-n", "3") == "a\na\na\n"
    assert "does not write transactions" in semel.fails("produce", "acks", "-X", "transactional.id=t", text="a\n")


INTERRUPTED_IMPORT = """
import sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == "semel.admin":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
from semel_command import main
main()
"""


def test_ctrl_c_during_the_imports_ends_silently() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED_IMPORT, "topic", "list"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_ends_a_command_that_waits_silently_with_the_status_of_a_signal() -> None:
    line = [sys.executable, "-m", "semel", "topic", "list", "-b", "127.0.0.1:1", "-X", "bootstrap_timeout_ms=60000"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "waiting for 127.0.0.1:1: connection refused (ECONNREFUSED)\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (130, "", "")


def test_ctrl_c_does_not_wait_for_a_terminal_that_gets_no_more_lines(broker: BrokerProcess, semel: Shell) -> None:
    semel("topic", "create", "open-end", "-p", "1")
    line = [sys.executable, "-m", "semel", "produce", "open-end", "-b", broker.address]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("a\n")
        process.stdin.flush()
        assert semel("consume", "open-end", "-o", "0", "-n", "1") == "a\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130, "its standard input is still open"
        assert "1 record stored" in process.stderr.read()
