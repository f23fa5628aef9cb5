"""Names, ids and records with control characters are printed escaped by every command."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import semel._command_line.common
from client.shell import Shell
from rich.text import Text
from semel import Consumer, ConsumerRecord, Producer, TopicPartition, TransactionGroup
from semel._command_line.common import console, say, show, tell
from semel.cli.consume.record_text import Form, as_json, by_pattern
from semel.errors import NotSemelBrokerError
from semel_protocol.tables import Table
from support.against import OutsideBroker, outside
from support.processes import BrokerProcess

EVIL = "\x1b[2Jred\x9b31m\nFAKED 0 0\r[bold]:smile:[/]\u202e"
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")
TOPIC = "hostile"


def assert_harmless(out: str) -> None:
    out = out.replace("\t", " ")  # between the cells of a table
    assert not CONTROL.search(out), out
    assert not any(line.startswith("FAKED") for line in out.splitlines()), out


@pytest.fixture(scope="module")
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess | OutsideBroker]:
    if there := outside(request):
        asyncio.run(fill(there.address))
        yield there
        return
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), **{"group.initial.rebalance.delay.ms": "0"}).start()
    asyncio.run(fill(process.address))
    yield process
    assert process.stop() == 0


async def fill(address: str) -> None:
    """Fill the broker: each name that a client may choose contains control characters."""
    async with Producer(bootstrap_servers=address, client_id=EVIL) as producer:
        await producer.send_and_wait(TOPIC, EVIL.encode(), EVIL.encode(), headers=[(EVIL, EVIL.encode())])
    for evil_id in (EVIL, f"{EVIL} 2"):
        producer = Producer(bootstrap_servers=address, client_id=EVIL, transactional_id=evil_id)
        async with producer, producer.transaction():
            await producer.send(TOPIC, b"in a transaction")
            await producer.send_offsets_to_transaction({TopicPartition(TOPIC, 0): 1}, EVIL)
    with suppress(NotSemelBrokerError):
        await commit_a_step(address)


async def commit_a_step(address: str) -> None:
    async with TransactionGroup(EVIL, owner=EVIL, bootstrap_servers=address, client_id=EVIL) as group:
        step = await group.begin()
        member = Producer(
            bootstrap_servers=address, client_id=EVIL, transactional_id=f"{EVIL}/m", transaction_group_step=step
        )
        async with member as producer:
            await producer.begin_transaction()
            await producer.send(TOPIC, b"of a group")
            prepared = await producer.prepare_transaction()
            assert prepared is not None
            await group.commit(step, EVIL, [prepared])


@pytest.fixture
def shell(broker: BrokerProcess) -> Shell:
    return Shell(broker)


@pytest.mark.parametrize(
    "command",
    [
        "cluster",
        "cluster --json",
        "topic list",
        f"topic describe {TOPIC}",
        f"topic stuck {TOPIC}",
        f"topic reassign {TOPIC}",
        f"topic elect {TOPIC}",
        "group list",
        "group list -q",
        "group describe EVIL",
        "group stuck EVIL --wait 0",
        "group reset EVIL --to earliest",
        "txn list",
        "txn list -q",
        "txn describe EVIL",
        "txn why EVIL",
        "txn why UNKNOWN",
        "txn abort EVIL -y",
        "txn groups",
        "txn groups EVIL",
        f"txn timeline {TOPIC}",
        f"txn timeline {TOPIC} --list",
        "txn hanging",
        f"consume {TOPIC} --from-beginning -e -g EVIL --json",
        "topic create UNKNOWN",
        "topic describe UNKNOWN",
        "group describe UNKNOWN",
        "group delete UNKNOWN -y",
        "group delete UNKNOWN -y --if-exists",
        "topic delete UNKNOWN -y --if-exists",
    ],
)
def test_every_command_escapes_what_it_did_not_choose(shell: Shell, command: str) -> None:
    names = {"EVIL": EVIL, "UNKNOWN": f"{EVIL} unknown"}
    done = shell.run(*(names.get(word, word) for word in command.split()))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert_harmless(done.output)


def test_every_name_of_aiokafka_exists(shell: Shell) -> None:
    assert "\\x1b[2Jred" in shell("group", "list")
    assert "[bold]:smile:[/]" in shell("txn", "list", "-q")
    assert len(shell("group", "list", "-q").splitlines()) == 1


@pytest.mark.real_time
async def test_members_of_a_group_are_escaped(shell: Shell) -> None:
    consumer = Consumer(
        TOPIC, bootstrap_servers=shell.address, group_id=f"{EVIL} members", client_id=EVIL, group_instance_id=EVIL
    )
    async with consumer:
        for command in ("describe", "stuck"):
            wait = ("--wait", "0") if command == "stuck" else ()
            done = await asyncio.to_thread(shell.run, "group", command, f"{EVIL} members", *wait)
            assert_harmless(done.output)
            assert "smile" in done.output


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_dump_is_escaped(shell: Shell, broker: BrokerProcess, form: tuple[str, ...]) -> None:
    homes = [home for home in Path(broker.data_dir).iterdir() if list(home.glob("*.log"))]
    dumped = ""
    for home in homes:
        out = shell.run("log", "dump", str(home), "--values", *form).output
        assert_harmless(out)
        dumped += out
    assert "\\u001b[2Jred" in dumped or "\\x1b[2Jred" in dumped


def record() -> ConsumerRecord[Any, Any]:
    fields = ConsumerRecord.__struct_fields__
    given: dict[str, Any] = dict.fromkeys(fields, 0)
    given |= {"topic": "t", "key": EVIL.encode(), "value": EVIL.encode() + b"\xff", "headers": ((EVIL, EVIL.encode()),)}
    return ConsumerRecord(**given)


def test_records_are_raw_to_a_pipe_and_escaped_to_a_terminal() -> None:
    pattern = "%k\\t%v\\t%h\\n"
    raw = by_pattern(pattern, Form())(record())
    assert raw == b"\t".join([EVIL.encode(), EVIL.encode() + b"\xff", EVIL.encode() + b"=" + EVIL.encode()]) + b"\n"
    shown = by_pattern(pattern, Form(escaped=True))(record()).decode()
    assert shown.count("\n") == 1
    assert_harmless(shown.replace("\t", " "))
    shown = as_json(Form(escaped=True))(record()).decode()
    assert_harmless(shown)
    assert json.loads(shown) == json.loads(as_json(Form())(record()))


@pytest.mark.parametrize("terminal", [False, True])
def test_names_from_brokers_are_escaped_in_tables_and_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr(semel._command_line.common, "is_terminal", lambda: terminal)
    shown = Table(EVIL, "a", "b", below=("b",))
    shown.add_row(EVIL, Text(EVIL, "bold"))
    show(shown)
    tell(EVIL)
    console().print(EVIL)
    console().print(Text(EVIL, "bold").append("end"))
    say(EVIL)
    out = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)
    assert_harmless(out)
    assert out.count("smile") == 7


def test_commands_print_by_what_escapes() -> None:
    """Commands print through `say`, `confirm`, `failure`, `show`, `tell` and `console` of semel._command_line.common.

    JSON escapes by itself.
    """
    unsafe = re.compile(
        r"click\.(echo|confirm|ClickException)\((?!visible_json)|\brich\.table\b|(?<!\w)Console\((?!stderr)"
    )
    client = Path(semel.__file__).parent
    for file in (*client.glob("cli/**/*.py"), *client.glob("_command_line/*.py")):
        if file.name not in ("common.py", "main.py"):
            assert not unsafe.search(file.read_text()), file
