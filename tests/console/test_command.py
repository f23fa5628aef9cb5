"""`semel console` as a process: its help, its first line, its end, and its error without its extra."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import urllib.request
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

import pytest
from click.testing import CliRunner
from console.processes import LIMIT_S, running_console
from semel.cli.main import main
from semel_broker.testing.in_process import EphemeralBroker
from semel_protocol.extras import install_command

pytestmark = pytest.mark.real_time


def test_the_help_names_the_options() -> None:
    shown = CliRunner().invoke(main, ["console", "--help"]).output
    for option in ("--port", "--host", "--write", "--allow-host", "--bootstrap-server", "--config-file"):
        assert option in shown
    assert "console" in CliRunner().invoke(main, ["--help"]).output


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["console"], 1),
        (["console", "--port", "0"], 1),
        (["console", "--help"], 0),
        (["pipeline", "run", "flights.toml"], 1),
        (["pipeline", "-h"], 0),
        (["pipeline", "run", "--help"], 0),
    ],
)
async def test_without_its_extra_a_command_has_help_and_says_what_to_install(arguments: list[str], status: int) -> None:
    hidden = "for name in ('starlette', 'pyspark'): sys.modules[name] = None"
    program = f"import sys\n{hidden}\nfrom semel.cli.main import main\nmain({arguments})"
    ran = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=PIPE, stderr=PIPE)
    shown, said = (" ".join(output.decode().split()) for output in await ran.communicate())
    assert ran.returncode == status
    package, extra = ("starlette", "console") if arguments[0] == "console" else ("pyspark", "spark")
    assert f"needs the package '{package}'" in (said if status else shown)
    assert install_command(extra) in (said if status else shown)
    assert status or "--help" in shown


async def test_it_serves_until_it_is_interrupted(semel_broker: EphemeralBroker) -> None:
    async with running_console(semel_broker.bootstrap_servers) as console:
        host = console.base.removeprefix("http://").rstrip("/")
        entered = urllib.request.Request(
            f"{console.base}api/login",
            json.dumps({"token": console.token}).encode(),
            {"Content-Type": "application/json", "Origin": f"http://{host}"},
        )
        with await asyncio.to_thread(urllib.request.urlopen, entered) as answer:
            cookie = answer.headers["Set-Cookie"].partition(";")[0]
        asked = urllib.request.Request(f"{console.base}api/facts/overview", headers={"Cookie": cookie})
        with await asyncio.to_thread(urllib.request.urlopen, asked) as answer:
            assert json.load(answer)["health"]["verdict"] == "healthy"
        console.process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(console.process.wait(), 20) == 130


async def test_a_port_in_use_is_a_sentence(semel_broker: EphemeralBroker) -> None:
    async with running_console(semel_broker.bootstrap_servers) as console:
        port = console.base.rstrip("/").rpartition(":")[2]
        tried = CliRunner().invoke(main, ["console", "--port", port])
        assert tried.exit_code == 1
        assert "--port 0" in tried.output


async def test_it_ends_when_its_parent_is_gone(semel_broker: EphemeralBroker) -> None:
    command = ("-m", "semel", "console", "-b", semel_broker.bootstrap_servers, "--port", "0", "--until-input-ends")
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    assert (await asyncio.wait_for(process.stdout.readline(), LIMIT_S)).startswith(b"Open http://127.0.0.1:")
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), LIMIT_S) == 0


async def test_serve_offers_the_page_and_ends_it_with_the_broker(tmp_path: Path) -> None:
    for ending in (signal.SIGTERM, signal.SIGKILL):
        command = ("-m", "semel_broker", "--data-dir", str(tmp_path), "--port", "0", "--console", "0")
        process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=DEVNULL, stderr=PIPE)
        assert process.stderr is not None
        line = (await asyncio.wait_for(process.stderr.readline(), LIMIT_S)).decode()
        assert line.startswith("Open http://127.0.0.1:"), line
        base = line.removeprefix("Open ").partition("#")[0]
        with await asyncio.to_thread(urllib.request.urlopen, base) as answer:
            assert b"semel console" in answer.read()
        process.send_signal(ending)
        await asyncio.wait_for(process.wait(), LIMIT_S)
        assert await asyncio.wait_for(process.stderr.read(), LIMIT_S) == b""  # the console held the other end


async def test_without_its_extra_serve_says_what_the_page_needs() -> None:
    program = "import sys; sys.modules['uvicorn'] = None; from semel_broker.__main__ import serve; serve(['--console'])"
    ran = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stderr=PIPE)
    _, said = await ran.communicate()
    assert ran.returncode == 1
    assert install_command("console") in said.decode()
