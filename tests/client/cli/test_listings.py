"""Every command that lists or explains: in a terminal of 80 and 120 columns, in a pipe, and as JSON."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from broker.consumers import HeartbeatingMember as Member
from broker.wire import Wire
from click.testing import CliRunner, Result
from client.cli.test_tables import ID, OWNER, TOPIC, WIDTHS, assert_whole
from client.consuming import until
from semel import Admin, Consumer, NewTopic, Producer, TransactionGroup
from semel._command_line import common
from semel.admin import (
    Acl,
    Operation,
    PatternType,
    Permission,
    QuotaEntity,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from semel.cli.main import OWN, main
from semel.errors import NotSemelBrokerError
from semel_broker.testing.in_process import EphemeralBroker
from semel_protocol.tables import Table
from support.against import OutsideBroker

STYLE = re.compile("\x1b\\[[0-9;]*m")
GROUP = "g" * 60
SINK = "bank-" + "b" * 40
TABLES = (
    "acl list",
    "cluster",
    "config describe --all",
    "config list",
    "quota list",
    "top --once --interval 0.1",
    "topic list",
    f"topic describe {TOPIC} --all-configs",
    "group list",
    f"group describe {GROUP}",
    f"group reset other {TOPIC} --to 0 --dry-run",
    "txn list",
    "txn groups",
    f"txn groups {SINK}",
    f"txn timeline {TOPIC} --list",
    "user list",
)
TEXTS = (
    f"topic stuck {TOPIC}",
    "topic reassign",
    f"group stuck {GROUP} --wait 0",
    f"txn describe {ID}",
    f"txn why {ID}",
    "txn hanging",
)
ACL = Acl(
    ResourceType.TRANSACTIONAL_ID, ID, PatternType.PREFIXED, "User:" + "a" * 60, "*", Operation.WRITE, Permission.ALLOW
)
pytestmark = pytest.mark.semel(
    settings={
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
)
TROUBLE = ("topic stuck", "group stuck")
"""The commands that find problems here: open transactions, and a consumer that did not commit."""


class Terminal:
    """Runs commands as in a terminal of `width` columns, or as in a pipe."""

    def __init__(self, address: str) -> None:
        self.environment = {"SEMEL_BOOTSTRAP_SERVER": address, "FORCE_COLOR": "1", "TERM": "xterm-256color"}

    def run(self, command: str, width: int = 0) -> Result:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(common, "is_terminal", lambda: bool(width))
            done = CliRunner().invoke(main, command.split(), env=self.environment | {"COLUMNS": str(width or 80)})
        assert done.exit_code == (3 if command.startswith(TROUBLE) else 0), (command, done.output, done.exception)
        return done

    def __call__(self, command: str, width: int = 0) -> list[str]:
        return STYLE.sub("", self.run(command, width).output).splitlines()


async def topic_broker(address: str, commands: Callable[[Terminal], None]) -> None:
    """Run `commands` while a transaction and a step are open and a group has a member, all with long names."""
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic(TOPIC, 12, 1, topic_configs={"retention.ms": "3600000"})])
        await admin.create_acls([ACL])
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512)
        await admin.alter_user_scram_credentials([UserScramCredentialUpsertion("u" * 60, info, "a password")])
        await admin.alter_client_quotas({QuotaEntity(user="a" * 60, client_id=ID): {"producer_byte_rate": 1e9}})

        async def is_listed() -> bool:  # Kafka's broker follows its controller
            return await admin.describe_acls() == [ACL]

        await until(is_listed)
    group = TransactionGroup(SINK, bootstrap_servers=address, owner=OWNER)
    consumer = Consumer(
        TOPIC, bootstrap_servers=address, group_id=GROUP, auto_offset_reset="earliest", enable_auto_commit=False
    )
    first = Producer(bootstrap_servers=address, transactional_id=ID, client_id="semel-spark-sink")
    async with group, consumer, first, Producer(bootstrap_servers=address) as plain:
        await plain.send_and_wait(TOPIC, b"v", partition=2)
        await first.begin_transaction()
        await first.send_and_wait(TOPIC, b"v", partition=0)
        try:
            step = await group.begin()
        except NotSemelBrokerError:
            step = None
        member = f"{SINK}/{'m' * 40}"
        second = Producer(bootstrap_servers=address, transactional_id=member, transaction_group_step=step)
        async with second:
            await second.begin_transaction()
            await second.send_and_wait(TOPIC, b"v", partition=1)
            while not consumer.assignment():
                await consumer.getmany(timeout_ms=50)
            await asyncio.to_thread(commands, Terminal(address))
            await second.abort_transaction()
        await first.abort_transaction()


def listings(broker: EphemeralBroker | OutsideBroker) -> list[str]:
    """The commands that this broker can answer."""
    every = [*TABLES, *TEXTS]
    if isinstance(broker, EphemeralBroker):
        return every
    return [each for each in every if "txn groups" not in each and each != "config list"]  # Kafka before 4.1


def test_no_command_breaks_a_word_or_number_in_a_terminal(
    semel_broker: EphemeralBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Table] = []
    init = Table.__init__

    def noting(self: Table, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        made.append(self)

    monkeypatch.setattr(Table, "__init__", noting)

    def commands(terminal: Terminal) -> None:
        for width in WIDTHS:
            for command in listings(semel_broker):
                if command.startswith("config") and isinstance(semel_broker, OutsideBroker):
                    continue  # Kafka's explanations of settings are HTML with words wider than the terminal's column
                made.clear()
                lines = terminal(command, width)
                assert bool(made) == (command in TABLES), command
                for line in lines:
                    is_command = line.strip().startswith("semel ")
                    is_wide_word = len(line.split()) == 1
                    assert len(line) <= width or is_command or is_wide_word, (command, line)
                for each in made:
                    assert_whole(lines, each, width)

    asyncio.run(topic_broker(semel_broker.bootstrap_servers, commands))


def test_a_pipe_gets_rows_and_json_has_numbers_states_and_times(semel_broker: EphemeralBroker) -> None:
    found: dict[str, Any] = {}

    def commands(terminal: Terminal) -> None:
        for command in listings(semel_broker):
            lines = terminal(command)
            assert all(lines), f"{command}: an empty line"
            if command in TABLES and "timeline" not in command:
                assert any("\t" in line for line in lines), command
                assert not any("─" in line or "━" in line for line in lines), command
            if command.startswith("txn timeline"):
                assert f"No offsets to show: {TOPIC}: 3-11" in lines
            name = " ".join(command.split()[:2])
            found[name] = json.loads(terminal.run(f"{command} --json").stdout)
            other = json.loads(terminal.run(f"{command} --output json").stdout)
            assert type(other) is type(found[name]), command
            assert terminal(f"{command} --output table"), command

    asyncio.run(topic_broker(semel_broker.bootstrap_servers, commands))
    (topic,) = found["topic describe"]
    assert topic["partitions"][2] == {
        "partition": 2,
        "leader": 0,
        "leader_epoch": 0,
        "start_offset": 0,
        "end_offset": 1,
        "replicas": [0],
        "in_sync": [0],
        "state": "ok",
        "moving_to": None,
    }
    assert {"name": "retention.ms", "value": "3600000", "from": "topic"} in topic["settings"]
    assert found["topic reassign"]["changes"] == []
    stuck = found["topic stuck"]
    assert (stuck["stuck"], stuck["partitions_checked"]) == (True, 12)
    assert [(row["partition"], row["offsets_held_back"]) for row in stuck["held_back"]] == [(0, 1), (1, 1)]
    (spark, _) = stuck["transactions"]
    assert (spark["transactional_id"], spark["verdict"]) == (ID, "ongoing")
    is_semel = isinstance(semel_broker, EphemeralBroker)
    assert spark["opened_by"] == ("client 'semel-spark-sink' at 127.0.0.1" if is_semel else None)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", spark["expires"])
    assert spark["expires_ms"] - spark["open_since_ms"] == 60_000
    (group,) = [row for row in found["group list"] if row["group"] == GROUP]
    assert (group["state"], group["members"], group["lag"]) == ("Stable", 1, 3)
    (group,) = found["group describe"]
    assert (group["total_lag"], group["lag_without_commit"], len(group["partitions"])) == (3, 3, 12)
    progress = [row["progress"] for row in found["group stuck"]["partitions"]]
    assert progress == ["nothing committed"] * 3 + ["empty"] * 9
    assert (found["group reset"]["changed"], len(found["group reset"]["partitions"])) == (0, 12)
    (row,) = [row for row in found["txn list"] if row["transactional_id"] == ID]
    assert (row["state"], row["opened_by"]) == ("Ongoing", spark["opened_by"])
    assert row["open_since_ms"] == spark["open_since_ms"]
    (described,) = found["txn describe"]
    fences = [] if is_semel else None
    assert (described["timeout_ms"], described["fences"], described["partitions"]) == (60_000, fences, [f"{TOPIC}-0"])
    why = found["txn why"]
    assert (why["state"], why["advice"]) == ("Ongoing", None)
    assert why["first_offsets"] == [{"topic": TOPIC, "partition": 0, "first_offset": 0}]
    assert found["txn hanging"]["hanging"] == found["txn hanging"]["overdue_groups"] == []
    if is_semel:
        (sink,) = found["txn groups"]
        assert (sink["transaction_group"], sink["state"], sink["owner"]) == (SINK, "Open", OWNER)
        assert [member["state"] for member in sink["members"]] == ["Ongoing"]
    (span,) = found["txn timeline"][0]["transactions"]
    assert (span["transactional_id"], span["outcome"], span["records"], span["took_ms"]) == (ID, "open", 1, None)
    assert found["cluster"]["verdict"] == "healthy"


def name_of(line: str) -> str:
    """The command of a line, without its arguments."""
    words = line.split()
    return " ".join(words[: 1 if words[0] in ("cluster", "top") else 2])


def test_the_page_names_the_fields_of_every_json(semel_broker: EphemeralBroker) -> None:
    page = (Path(__file__).parents[3] / "docs" / "commands.md").read_text()
    rows = page.split("<!-- fields: begin")[1].split("<!-- fields: end")[0].splitlines()
    said = {}
    for row in rows:
        if row.startswith("| `"):
            name, form, fields = (cell.strip() for cell in row.strip("|").split(" | "))
            said[name.strip("`")] = (form, re.findall(r"`([a-z_]+)`", re.sub(r"\([^)]*\)", "", fields)))
    said["txn why"] = ("object", [*said["txn describe"][1], *said["txn why"][1]])

    def commands(terminal: Terminal) -> None:
        for command in listings(semel_broker):
            name = name_of(command)
            found = json.loads(terminal.run(f"{command} --json").stdout)
            form, element = ("array", found[0]) if isinstance(found, list) else ("object", found)
            assert said[name] == (form, list(element)), name

    asyncio.run(topic_broker(semel_broker.bootstrap_servers, commands))
    listing = {name_of(line) for line in (*TABLES, *TEXTS)}
    assert said.keys() == listing


def test_transaction_groups_are_refused_by_name_where_there_are_none(semel_broker: EphemeralBroker) -> None:
    if isinstance(semel_broker, EphemeralBroker):
        pytest.skip("for --against alone: this broker has transaction groups")
    for line in ("txn groups", "txn groups g", "txn abort --group g -y"):
        done = CliRunner().invoke(main, line.split(), env={"SEMEL_BOOTSTRAP_SERVER": semel_broker.bootstrap_servers})
        assert done.exit_code == 1
        assert "cannot do this here: transaction groups need semel's own API" in done.output
        assert "it is Apache Kafka or another Kafka" in done.output


def test_every_command_with_json_is_looked_at() -> None:
    """A new listing command has to join the commands above."""
    found = set()
    for name in OWN:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        for path, each in (
            [(f"{name} {sub}", part) for sub, part in command.commands.items()]
            if isinstance(command, click.Group)
            else [(name, command)]
        ):
            forms = [option.type.choices for option in each.params if "--output" in option.opts]
            if forms and "table" in forms[0]:  # `consume` has forms of records
                found.add(path)
    assert found == {name_of(line) for line in (*TABLES, *TEXTS)}


def test_the_forms_of_the_output_are_checked(semel_broker: EphemeralBroker) -> None:
    environment = {"SEMEL_BOOTSTRAP_SERVER": semel_broker.bootstrap_servers}
    for line, words in (
        ("topic list --json --output table", "give either --json or --output table"),
        ("topic list --output yaml", "'yaml' is not one of"),
        ("txn timeline t --json --svg -", "give either --svg or JSON"),
        ("topic reassign --json --execute", "JSON is for the plan"),
        ("group reset g --to 0 --json", "give --dry-run or --yes"),
    ):
        done = CliRunner().invoke(main, line.split(), env=environment)
        assert done.exit_code == 2
        assert words in done.output


@pytest.mark.parametrize(
    "command", [*(line.split()[:2] for line in (*TABLES, *TEXTS) if line != "cluster"), ["cluster"]]
)
def test_every_listing_says_in_its_help_how_to_get_json(command: list[str]) -> None:
    out = CliRunner().invoke(main, [*command, "--help"]).output
    assert "--output [table|json]" in out
    assert "--json" in out


@pytest.mark.parametrize("command", ["cluster", "topic stuck", "group stuck", "txn hanging"])
def test_every_command_that_looks_for_trouble_says_its_exit_statuses(command: str) -> None:
    out = " ".join(CliRunner().invoke(main, [*command.split(), "--help"]).output.split())
    assert "Exit status 0: " in out
    assert " 3: " in out


def test_groups_of_the_consumer_protocol_fit_a_terminal_and_have_the_fields_of_classic_ones() -> None:
    async def two_members(broker: EphemeralBroker) -> None:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(TOPIC, 12)])
        wire = await Wire.connect(int(broker.bootstrap_servers.rpartition(":")[2]))
        names = ("5Hn0v2l3T9SxkYFgSo9uGQ", "i1sVfHqLQ9mHk4rZ7Jw0bA")
        members = [Member(wire, name, "g", topics=(TOPIC,), instance=f"reader-{name}") for name in names]
        assert [await each.beat() for each in (*members, members[0])] == [0, 0, 0]
        await asyncio.to_thread(commands, Terminal(broker.bootstrap_servers))
        await wire.close()

    def commands(terminal: Terminal) -> None:
        for command in ("group list --protocol consumer", "group describe g"):
            for width in WIDTHS:
                lines = terminal(command, width)
                assert all(len(line) <= width or len(line.split()) == 1 for line in lines), (command, lines)
        said = " ".join(" ".join(terminal("group describe g", 80)).split())
        assert "Protocol: consumer, group epoch 2, assignment epoch 2, assignor uniform" in said
        assert "which reader-5Hn0v2l3T9SxkYFgSo9uGQ has not given up yet" in said
        (row,) = json.loads(terminal.run("group list --json").stdout)
        assert (row["group"], row["state"], row["protocol"]) == ("g", "Reconciling", "consumer")
        (described,) = json.loads(terminal.run("group describe g --json").stdout)
        assert [each["epoch"] for each in described["member_list"]] == [1, 2]
        assert "has not given up what reader-i1sVfHqLQ9mHk4rZ7Jw0bA waits for" in " ".join(
            terminal("group stuck g --wait 0")
        )
        for line in ("group reset g --to 0", "group delete g -y"):
            done = CliRunner().invoke(main, line.split(), env=terminal.environment)
            assert done.exit_code == 1
            assert "g has 2 members (reader-5Hn0v2l3T9SxkYFgSo9uGQ on 127.0.0.1, " in done.output
            assert done.output.endswith(": stop them first\n")

    with EphemeralBroker() as broker:
        asyncio.run(two_members(broker))
