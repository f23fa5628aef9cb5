"""`semel config`, `semel topic truncate` and `semel completion` against a broker process."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from client.shell import Shell
from semel.cli.main import main
from support.processes import BrokerProcess


@pytest.fixture(scope="module")
def semel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker")).start()
    yield Shell(process)
    assert process.stop() == 0


def value(semel: Shell, name: str) -> dict[str, object]:
    (broker,) = json.loads(semel("config", "describe", name, "--broker", "0", "--json"))
    (row,) = broker["settings"]
    assert isinstance(row, dict)
    return row


def test_a_broker_s_own_value_wins_over_the_cluster_wide_one_and_that_over_the_default(semel: Shell) -> None:
    assert semel("config", "set", "num.partitions=3") == "all brokers: num.partitions = 3 (was not set)\n"
    assert (value(semel, "num.partitions")["value"], value(semel, "num.partitions")["from"]) == ("3", "cluster-wide")
    semel("topic", "create", "of-three")
    assert "of-three: 3 partitions" in semel("topic", "describe", "of-three")
    assert semel("config", "set", "num.partitions=4", "--broker", "0") == (
        "broker 0: num.partitions = 4 (was not set)\n"
    )
    assert semel("config", "set", "num.partitions=2").splitlines() == [
        "all brokers: num.partitions = 2 (was 3)",
        "broker 0: num.partitions = 4, its own value, stays",
    ]
    assert value(semel, "num.partitions")["from"] == "this broker"
    rows = semel("config", "describe").splitlines()
    assert rows[:3] == ["Cluster-wide", "setting\tvalue\tfrom\tdynamic", "num.partitions\t2\tcluster-wide\tyes"]
    assert "num.partitions\t4\tthis broker\tyes" in rows[3:]
    assert semel("config", "unset", "num.partitions", "--broker", "0") == (
        "broker 0: num.partitions has no dynamic value (was 4)\n"
    )
    semel("config", "unset", "num.partitions")
    assert (value(semel, "num.partitions")["value"], value(semel, "num.partitions")["from"]) == ("1", "default")


def test_all_settings_are_shown_with_their_meaning(semel: Shell) -> None:
    cluster_wide, broker = json.loads(semel("config", "describe", "--all", "--json"))
    assert (cluster_wide["broker"], broker["broker"]) == (None, 0)
    rows = {row["name"]: row for row in broker["settings"]}
    assert len(rows) > 50
    assert (rows["port"]["dynamic"], rows["num.partitions"]["dynamic"]) == (False, True)
    assert "Partitions of a topic created without a count" in rows["num.partitions"]["documentation"]


def test_a_dry_run_checks_and_changes_nothing(semel: Shell) -> None:
    assert semel("config", "set", "num.partitions=9", "--dry-run") == "Possible. Nothing was changed.\n"
    assert value(semel, "num.partitions")["value"] == "1"
    assert "must be a whole number" in semel.fails("config", "set", "num.partitions=many", "--dry-run")


def test_mistakes_are_explained(semel: Shell) -> None:
    for arguments, says in (
        (("set", "num.partitons=1"), "brokers have no setting num.partitons. Did you mean 'num.partitions'"),
        (("unset", "num.partitons"), "Did you mean 'num.partitions'"),
        (("describe", "num.partitons"), "Did you mean 'num.partitions'"),
        (("set", "port=1"), "port cannot change while the broker runs"),
        (("describe", "--broker", "7"), "there is no broker 7; the brokers are 0"),
        (("set", "num.partitions"), "is not KEY=VALUE"),
    ):
        assert says in semel.fails("config", *arguments)


def test_truncating_asks_with_the_counts_and_deletes_the_oldest_records(semel: Shell) -> None:
    semel("topic", "create", "cut", "-p", "2")
    semel("produce", "cut", "-p", "0", text="a\nb\nc\n")
    semel("produce", "cut", "-p", "1", text="d\n")
    asked = semel.run("topic", "truncate", "cut", "--before", "2", text="n\n")
    assert asked.exit_code == 1
    assert asked.output.splitlines()[:2] == ["cut-0: offsets 0 to 1 (2)", "cut-1: offsets 0 to 0 (1)"]
    assert "Delete about 3 records of 2 partitions of cut? [y/N]" in asked.output
    assert "Nothing was deleted." in semel("topic", "truncate", "cut", "--before", "2", "--dry-run")
    assert semel("consume", "cut", "-p", "0", "--from-beginning", "-e") == "a\nb\nc\n"
    assert "cut-0: the first offset is now 2" in semel("topic", "truncate", "cut", "-p", "0", "--before", "2", "-y")
    assert semel("consume", "cut", "-p", "0", "--from-beginning", "-e") == "c\n"
    assert semel("consume", "cut", "-p", "1", "--from-beginning", "-e") == "d\n"
    semel("topic", "truncate", "cut", "--before", "all", "-y")
    assert semel("consume", "cut", "--from-beginning", "-e") == ""
    assert semel("topic", "truncate", "cut", "--before", "all", "-y") == "Nothing to delete.\n"


def test_truncating_before_a_time_keeps_the_records_since(semel: Shell) -> None:
    semel("topic", "create", "timed", "-p", "1")
    semel("produce", "timed", text="a\nb\n")
    assert semel("topic", "truncate", "timed", "--before", "-1h", "-y") == "Nothing to delete.\n"
    assert "the first offset is now 2" in semel("topic", "truncate", "timed", "--before", "2100-01-01", "-y")


def test_truncating_explains_mistakes(semel: Shell) -> None:
    semel("topic", "create", "kept", "-p", "1")
    semel("produce", "kept", text="a\n")
    assert "kept ends at offset 1. To delete all, give `all`" in semel.fails(
        "topic", "truncate", "kept", "--before", "9", "-y"
    )
    assert "There is no topic 'ketp'. Did you mean 'kept'" in semel.fails("topic", "truncate", "ketp", "--before", "1")
    assert "kept has no partition 3; it has 1" in semel.fails("topic", "truncate", "kept", "-p", "3", "--before", "1")


def completions(words: str) -> set[str]:
    env = {"_SEMEL_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    out = CliRunner().invoke(main, [], env=env, prog_name="semel").output
    return {line.removeprefix("plain,") for line in out.splitlines()}


def test_a_shell_completes_commands_subcommands_and_options() -> None:
    assert {"completion", "config", "consume"} <= completions("semel co")
    assert "truncate" in completions("semel topic t")
    assert completions("semel consume --iso") == {"--isolation"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_of_a_shell_names_the_program(shell: str) -> None:
    out = CliRunner().invoke(main, ["completion", shell]).output
    assert f"_SEMEL_COMPLETE={shell}_complete" in out
    assert "complete --no-files --command semel" in out or "#compdef semel" in out
