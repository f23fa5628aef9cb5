"""The `semel` command against a broker process: the commands that a user types, and their output."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from client.shell import Shell
from semel.cli.main import main
from support.against import OutsideBroker, outside
from support.processes import BrokerProcess


@pytest.fixture(scope="module")
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess | OutsideBroker]:
    if there := outside(request):
        yield there
        return
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), **{"group.initial.rebalance.delay.ms": "0"}).start()
    yield process
    assert process.stop() == 0


@pytest.fixture
def semel(broker: BrokerProcess) -> Shell:
    return Shell(broker)


def test_help_lists_every_command_and_each_has_its_own(semel: Shell) -> None:
    out = semel("--help")
    for command in ("cluster", "consume", "group", "log", "produce", "serve", "topic"):
        assert command in out
        assert "Usage" in semel(command, "--help")


def test_a_setting_without_effect_is_said_to_have_none(semel: Shell) -> None:
    created = semel.run("topic", "create", "words", "-c", "file.delete.delay.ms=60000", "-c", "retention.ms=3600000")
    assert created.exit_code == 0
    assert created.stdout == "words created with 1 partition\n"
    assert created.stderr.startswith("file.delete.delay.ms has no effect: Files of segments are removed at once.")
    assert "retention.ms" not in created.stderr
    altered = semel.run("topic", "alter", "words", "-c", "preallocate=true", "-u", "file.delete.delay.ms")
    assert altered.exit_code == 0
    assert altered.stderr.startswith("preallocate has no effect: ")
    assert "delete.delay" not in altered.stderr


def test_a_topic_is_created_shown_and_deleted(semel: Shell) -> None:
    assert "cli-a created with 3 partitions" in semel(
        "topic", "create", "cli-a", "-p", "3", "-c", "retention.ms=3600000"
    )
    assert "cli-a" in semel("topic", "list", "-q").split()
    described = semel("topic", "describe", "cli-a")
    assert "3 partitions" in described
    assert "retention.ms" in described
    assert "segment.bytes" not in described
    assert "segment.bytes" in semel("topic", "describe", "cli-a", "--all-configs")
    again = semel.run("topic", "create", "cli-a")
    assert again.exit_code == 1
    assert "exists already" in again.output
    assert "exists already" in semel("topic", "create", "cli-a", "--if-not-exists")
    assert "deleted" in semel("topic", "delete", "cli-a", "-y")
    assert semel.run("topic", "delete", "cli-a", "-y").exit_code == 1
    assert "does not exist" in semel("topic", "delete", "cli-a", "-y", "--if-exists")


def test_a_single_broker_is_a_healthy_cluster(semel: Shell) -> None:
    semel("topic", "create", "cli-cluster", "-p", "3")
    out = semel("cluster")
    assert "controller" in out
    assert out.splitlines()[-1].startswith("Healthy: ")
    assert json.loads(semel("cluster", "--json"))["verdict"] == "healthy"
    described = semel("topic", "describe", "cli-cluster").splitlines()
    assert [line.split()[-1] for line in described if line.split()[:1] in (["0"], ["1"], ["2"])] == ["ok"] * 3
    assert "Nothing to move: 3 partitions already spread evenly." in semel("topic", "reassign", "cli-cluster")
    assert "0 new leaders; 3 partitions had the preferred one." in semel("topic", "elect", "cli-cluster")


def test_deleting_asks_first(semel: Shell) -> None:
    semel("topic", "create", "cli-kept")
    assert semel.run("topic", "delete", "cli-kept", text="n\n").exit_code == 1
    assert "cli-kept" in semel("topic", "list", "-q").split()


def test_the_question_names_partitions_and_records(semel: Shell) -> None:
    semel("topic", "create", "cli-counted", "-p", "2")
    semel("produce", "cli-counted", text="a\nb\n")
    asked = semel.run("topic", "delete", "cli-counted", text="n\n").output
    assert "Delete cli-counted (2 partitions, about 2 records) with all records?" in asked


def test_a_missing_topic_is_reported_before_the_question(semel: Shell) -> None:
    semel("topic", "create", "cli-flights")
    said = semel.fails("topic", "delete", "cli-flihgts", text="y\n")
    assert "There is no topic 'cli-flihgts'. Did you mean 'cli-flights'?" in said
    assert "[y/N]" not in said
    assert "does not exist" in semel("topic", "delete", "cli-flihgts", "--if-exists")
    assert "--if-not-exists" in semel.fails("topic", "create", "cli-flights")


@pytest.mark.parametrize(
    "command", ["topic describe", "topic stuck", "topic alter -p 2", "topic elect", "txn timeline", "txn hanging"]
)
def test_a_missing_topic_is_reported_with_the_nearest_name(semel: Shell, command: str) -> None:
    semel("topic", "create", "cli-trains", "--if-not-exists")
    said = semel.fails(*command.split(), "cli-trians")
    assert "Error: There is no topic 'cli-trians'. Did you mean 'cli-trains'? Create the topic, or check its" in said


def test_a_missing_group_is_reported_with_the_nearest_name(semel: Shell) -> None:
    semel("topic", "create", "cli-near")
    semel("group", "reset", "cli-kitchen", "cli-near", "--to", "0", "-y")
    assert "no such group: cli-kitchn. Did you mean 'cli-kitchen'?" in semel.fails("group", "describe", "cli-kitchn")


def test_a_mistyped_command_gets_a_proposal(semel: Shell) -> None:
    assert "No such command 'prduce'. Did you mean 'produce'?" in semel.fails("prduce")
    assert "No such command 'xyzzy'." in semel.fails("xyzzy")


def test_listings_as_json_have_numbers(semel: Shell) -> None:
    semel("topic", "create", "cli-listed", "-p", "2")
    semel("produce", "cli-listed", "-p", "1", text="a\nb\nc\n")
    (topic,) = [row for row in json.loads(semel("topic", "list", "--json")) if row["topic"] == "cli-listed"]
    assert topic == {"topic": "cli-listed", "partitions": 2, "replicas": 1, "offsets_held": 3}
    semel("consume", "cli-listed", "-g", "cli-listed-group", "--from-beginning", "-n", "2")
    (group,) = [row for row in json.loads(semel("group", "list", "--json")) if row["group"] == "cli-listed-group"]
    assert (group["state"], group["members"]) == ("Empty", 0)
    (described,) = json.loads(semel("group", "describe", "cli-listed-group", "--json"))
    assert described["total_lag"] == 1
    (row,) = [row for row in described["partitions"] if row["partition"] == 1]
    assert (row["committed"], row["end_offset"], row["lag"], row["owner"]) == (2, 3, 1, None)
    assert [row for row in json.loads(semel("txn", "list", "--json")) if row["open_since"]] == []


def test_lag_counts_partitions_that_a_topic_got_later(semel: Shell) -> None:
    semel("topic", "create", "cli-grows", "-p", "1")
    semel("produce", "cli-grows", text="a\nb\n")
    semel("consume", "cli-grows", "-g", "cli-grows-group", "--from-beginning", "-e")
    semel("topic", "alter", "cli-grows", "-p", "2")
    semel("produce", "cli-grows", "-p", "1", text="c\nd\ne\n")
    out = semel("group", "describe", "cli-grows-group")
    assert "Total lag: 3, of it 3 in 1 partition without a committed offset" in out
    assert [line.split("\t")[:5] for line in out.splitlines() if line.startswith("cli-grows\t")] == [
        ["cli-grows", "0", "2", "2", "0"],
        ["cli-grows", "1", "-", "3", "3"],
    ]
    (row,) = [line for line in semel("group", "list").splitlines() if line.startswith("cli-grows-group")]
    assert row.split("\t") == ["cli-grows-group", "Empty", "0", "3", "-", "classic"]


@pytest.mark.semel_only("Kafka deletes a group that has neither members nor offsets")
def test_a_group_whose_topics_are_gone_has_no_lag(semel: Shell) -> None:
    semel("topic", "create", "cli-gone", "-p", "1")
    semel("produce", "cli-gone", text="a\n")
    semel("consume", "cli-gone", "-g", "cli-gone-group", "--from-beginning", "-e")
    semel("topic", "delete", "cli-gone", "-y")
    (row,) = [line for line in semel("group", "list").splitlines() if line.startswith("cli-gone-group")]
    assert row.split("\t") == ["cli-gone-group", "Empty", "0", "-", "-", "classic"]
    assert "Total lag: -" in semel("group", "describe", "cli-gone-group")


def test_a_line_without_separator_is_named_with_what_was_stored(semel: Shell) -> None:
    semel("topic", "create", "cli-keys")
    said = semel.fails("produce", "cli-keys", "-k", ":", text="a:b\nc:d\nno separator\ne:f\n")
    assert "2 records stored, but line 3 has no ':' between key and value: b'no separator'" in said
    assert semel("consume", "cli-keys", "--from-beginning", "-e") == "b\nd\n"


@pytest.mark.parametrize("command", ["consume", "produce"])
def test_ctrl_c_ends_with_the_number_of_records(broker: BrokerProcess, semel: Shell, command: str) -> None:
    name = f"cli-interrupted-{command}"
    semel("topic", "create", name, "-p", "1")
    line = [sys.executable, "-m", "semel", command, name, "-b", broker.address]
    with subprocess.Popen(
        [*line, "--from-beginning"] if command == "consume" else line,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        if command == "consume":
            semel("produce", name, text="a\nb\n")
            assert process.stdout is not None
            assert [process.stdout.readline(), process.stdout.readline()] == ["a\n", "b\n"]
        else:
            process.stdin.write("a\nb\n")
            process.stdin.flush()
            assert semel("consume", name, "--from-beginning", "-n", "2") == "a\nb\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    assert "2 records" in said
    assert "Aborted" not in said
    assert process.returncode == (0 if command == "consume" else 130)


def test_a_closed_pipe_ends_consume_without_an_error(broker: BrokerProcess, semel: Shell) -> None:
    """As `semel consume … | head -1`."""
    semel("topic", "create", "cli-head", "-p", "1")
    semel("produce", "cli-head", text="line\n" * 50_000)
    line = [sys.executable, "-m", "semel", "consume", "cli-head", "-b", broker.address, "--from-beginning"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "line\n"
        process.stdout.close()
        assert process.wait(20) == 0
        assert process.stderr.read() == ""


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_closed_pipe_ends_top_without_an_error(broker: BrokerProcess, form: str) -> None:
    """As `semel top | head -1`."""
    line = [sys.executable, "-m", "semel", "top", "-b", broker.address, "--interval", "0.1", "--output", form]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert (process.wait(20), process.stderr.read()) == (0, "")


def test_lines_are_written_and_read_back(semel: Shell, tmp_path: Path) -> None:
    semel("topic", "create", "cli-lines", "-p", "1")
    semel("produce", "cli-lines", text="one\r\ntwo\n\nlast without an end")
    assert semel("consume", "cli-lines", "--from-beginning", "-e") == "one\ntwo\n\nlast without an end\n"
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"k{i}=v{i}\n" for i in range(5000)))
    done = semel.run("produce", "cli-lines", str(file), "-k", "=", "-z", "zstd", "-H", "source=file")
    assert "5,000 records stored in cli-lines" in done.output
    out = semel("consume", "cli-lines", "-o", "4", "-e", "--format", "%p/%o %k=%v %h\\n").splitlines()
    assert out[0] == "0/4 k0=v0 source=file"
    assert len(out) == 5000


def test_reading_begins_at_a_time(semel: Shell) -> None:
    semel("topic", "create", "cli-times", "-p", "1")
    semel("produce", "cli-times", text="old\n")
    old = json.loads(semel("consume", "cli-times", "-o", "0", "-n", "1", "--json"))["timestamp"]
    while time.time_ns() // 1_000_000 <= old:
        pass
    semel("produce", "cli-times", text="new\n")
    after = datetime.fromtimestamp((old + 1) / 1000, UTC).isoformat()
    assert semel("consume", "cli-times", "-o", after, "-e") == "new\n"
    assert semel("consume", "cli-times", "-o", "2000-01-01", "-e") == "old\nnew\n"
    assert semel("consume", "cli-times", "-o", "2100-01-01", "-e") == ""
    assert "semel group reset" in semel.fails("consume", "cli-times", "-g", "any", "-o", "2000-01-01")


def test_json_shows_nulls_and_binary(semel: Shell) -> None:
    semel("topic", "create", "cli-json", "-p", "1")
    semel("produce", "cli-json", text="plain\n")
    row = json.loads(semel("consume", "cli-json", "--from-beginning", "-n", "1", "--json"))
    assert (row["key"], row["value"], row["offset"], row["headers"]) == (None, "plain", 0, [])


def test_groups_are_listed_by_state_and_protocol(semel: Shell) -> None:
    semel("topic", "create", "cli-filtered")
    semel("group", "reset", "cli-filtered-group", "cli-filtered", "--to", "0", "-y")
    for quiet in ([], ["-q"]):
        assert "cli-filtered-group" in semel("group", "list", "--state", "empty", "--protocol", "classic", *quiet)
        assert "cli-filtered-group" not in semel("group", "list", "--state", "Stable", *quiet)
        assert "cli-filtered-group" not in semel("group", "list", "--protocol", "consumer", *quiet)
    assert "'gone' is not one of" in semel.fails("group", "list", "--state", "gone")


def test_a_group_continues_where_it_stopped_and_is_described(semel: Shell) -> None:
    semel("topic", "create", "cli-group", "-p", "2")
    semel("produce", "cli-group", text="".join(f"{i}\n" for i in range(100)))
    first = semel("consume", "cli-group", "-g", "cli-readers", "--from-beginning", "-e").split()
    semel("produce", "cli-group", text="more\n")
    second = semel("consume", "cli-group", "-g", "cli-readers", "--from-beginning", "-e").split()
    assert sorted(first, key=int) == [str(i) for i in range(100)]
    assert second == ["more"]
    assert "cli-readers" in semel("group", "list", "-q").split()
    assert "Total lag: 0" in semel("group", "describe", "cli-readers")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["group", "describe", "nobody"], "no such group: nobody"),
        (["topic", "describe", "nothing"], "Create the topic"),
        (["consume", "nothing", "-e"], "nothing"),
        (["consume", "x", "-o", "noon"], "neither earliest, latest, an offset nor a time"),
        (["consume", "x", "--format", "%q"], "not a field"),
        (["topic", "create", "x", "-c", "novalue"], "is not KEY=VALUE"),
        (["produce", "x", "-k", ":"], "no ':' between key and value"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_mistakes_are_explained_in_one_line(semel: Shell, arguments: list[str], says: str) -> None:
    done = semel.run(*arguments, text="a line\n")
    assert done.exit_code != 0
    assert says in done.output
    assert "Traceback" not in done.output


def test_describing_a_topic_does_not_create_it(semel: Shell) -> None:
    semel.run("consume", "never-made", "-e")
    assert "never-made" not in semel("topic", "list", "-q").split()


def test_an_unreachable_broker_is_explained(semel: Shell) -> None:
    done = semel.run("topic", "list", "-b", "127.0.0.1:1")
    assert done.exit_code == 1
    assert "127.0.0.1:1" in done.output


def test_on_windows_the_command_says_that_the_broker_does_not_run_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test hides a Python module that Windows lacks."""
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "resource", None)
    monkeypatch.delitem(sys.modules, "semel_broker.__main__", raising=False)
    result = CliRunner().invoke(main, ["serve", "--help"])
    assert result.exit_code == 1
    assert "runs on Linux and macOS, not on win32: use WSL or a container" in result.output
