"""`python -m tools.cluster` as a user runs it: up in the background, ps, faults, run, down, and a clean end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from support.etcd import free_ports

from tools.cluster import namespaces, user_namespaces
from tools.cluster.__main__ import main
from tools.cluster.state import StateFolder

ROOT = Path(__file__).parents[2]

TEXT = """
services:
  store:
    image: python
    command: [python3, -u, /srv/echo.py, 0.0.0.0, "7000"]
    volumes: [".:/srv"]
    ports: ["127.0.0.1:${PORT}:7000"]
    init: true
    healthcheck: {test: [CMD, python3, /srv/ask.py, store, "7000", "5"], start_interval: 20ms, start_period: 20s}
  app:
    image: python
    command: [python3, -u, /srv/echo.py, app, "7000"]
    volumes: [".:/srv"]
    depends_on: {store: {condition: service_healthy}}
  once:
    profiles: [tools]
    image: python
    network_mode: host
    command: [python3, /srv/ask.py, 127.0.0.1, "${PORT}", "5"]
    volumes: [".:/srv"]
    depends_on: {store: {condition: service_healthy}}
"""


class ProjectCommands:
    """The command line on one project; `done` runs a command and gives what it printed."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / ("deep" * 20) / "state"  # a socket's name may have 108 bytes
        (folder / "docker-compose.yml").write_text(TEXT)
        (port,) = free_ports(1)
        self.environment = {**os.environ, "PORT": str(port), "COLUMNS": "200"}
        self.line = [
            sys.executable,
            "-m",
            "tools.cluster",
            "-f",
            str(folder / "docker-compose.yml"),
            "--state",
            str(self.state),
        ]

    def run(self, *words: str) -> tuple[int, str]:
        """A command in this process; `up` in one of its own. Its exit status, and what it printed."""
        if words[0] == "up":
            done = subprocess.run(
                [*self.line, *words],
                cwd=ROOT,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60,
                check=False,
            )
            return done.returncode, done.stdout
        result = CliRunner().invoke(main, [*self.line[3:], *words], env=self.environment)
        return result.exit_code, result.output

    def done(self, *words: str) -> str:
        status, said = self.run(*words)
        assert status == 0, f"{words}: {said}"
        return said

    def refused(self, *words: str) -> str:
        status, said = self.run(*words)
        assert status == 1, f"{words}: {said}"
        return said

    def row(self, service: str) -> list[str]:
        """The row of a service in `ps`."""
        (line,) = (line for line in self.done("ps").splitlines() if line.split()[:1] == [service])
        return line.split()


@pytest.fixture
def commands(scripts: Path) -> Iterator[ProjectCommands]:
    made = ProjectCommands(scripts)
    yield made
    made.run("down")


@pytest.mark.parametrize("on", ["loopback", "namespaces", "user-namespaces"])
def test_up_ps_kill_run_and_down_work_from_the_command_line(on: str, commands: ProjectCommands) -> None:
    if on == "namespaces" and not namespaces.works():
        pytest.skip("network namespaces cannot be made by this user")
    if on == "user-namespaces" and not user_namespaces.works():
        pytest.skip("this user may not have a user namespace of its own (`unshare -Urn true` fails)")
    said = commands.done("up", "-d", "--on", on)
    assert f"starting store, app on {on}" in said
    assert "only with containers, not here: init" in said
    assert said.endswith("ready\n")
    assert commands.row("store")[1:3] == ["running", "healthy"]
    assert f"127.0.0.1:{commands.environment['PORT']}->7000" in commands.row("store")
    processes = [psutil.Process(int(commands.row(name)[-2])) for name in ("store", "app")]

    assert "in use by process" in commands.refused("up", "-d")
    commands.done("kill", "app")
    assert commands.row("app")[1:3] == ["exited", "(SIGKILL)"]
    commands.done("start", "app")
    commands.done("pause", "app")
    assert commands.row("app")[1] == "paused"
    assert "app is paused: only a running service" in commands.refused("pause", "app")
    commands.done("unpause", "app")
    assert "no service 'apt'; the services are store, app, once" in commands.refused("stop", "apt")

    commands.done("run", "once")
    assert "AssertionError: other words" in commands.refused("run", "once", "python3", "-c", "assert 0, 'other words'")
    assert commands.row("once")[1:3] == ["exited", "(1)"]
    if on == "loopback":
        assert "there are no partitions on loopback" in commands.refused("partition", "store", "app")
    else:
        commands.done("partition", "store", "host")
        assert "cut store -> host" in commands.done("ps")
        commands.refused("run", "once", "python3", "/srv/ask.py", "127.0.0.1", commands.environment["PORT"], "0.5")
        commands.done("heal")
        commands.done("run", "once")
    assert re.search(r"^store \| listens$", commands.done("logs", "store"), re.MULTILINE)

    commands.done("down")
    assert not any(process.is_running() for process in processes)
    assert "nothing runs with the state folder" in commands.refused("ps")
    assert "listens" in commands.done("logs", "store"), "logs stay"


def test_ctrl_c_stops_everything_in_reverse_order(commands: ProjectCommands) -> None:
    with subprocess.Popen(
        [*commands.line, "up"], cwd=ROOT, env=commands.environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if {"ready", "store | listens"} <= set(said.splitlines()) and line in ("ready\n", "store | listens\n"):
                process.send_signal(signal.SIGINT)  # once both are there: logs are shown in the foreground
        assert process.wait() == 0
    assert [line.split()[0] for line in said.splitlines() if "ended" in line] == ["app", "store"]


def test_ctrl_c_of_a_run_stops_its_service_and_nothing_else(commands: ProjectCommands) -> None:
    commands.done("up", "-d", "--on", "loopback")
    sleeps = "import time; print('sleeps', flush=True); time.sleep(60)"
    with subprocess.Popen(
        [*commands.line, "run", "once", "python3", "-c", sleeps],
        cwd=ROOT,
        env=commands.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "once | sleeps\n"
        assert commands.row("once")[1] == "running"
        process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + 20
    while commands.row("once")[1:3] != ["exited", "(SIGTERM)"]:
        assert time.monotonic() < deadline
    assert commands.row("store")[1] == "running"


def test_a_runner_that_is_killed_takes_its_services_with_it_and_can_be_run_again(commands: ProjectCommands) -> None:
    commands.done("up", "-d", "--on", "loopback")
    processes = [psutil.Process(int(commands.row(name)[-2])) for name in ("store", "app")]
    os.kill(int(StateFolder(commands.state).owner()), signal.SIGKILL)
    gone, _ = psutil.wait_procs(processes, timeout=20)
    assert len(gone) == 2
    deadline = time.monotonic() + 20
    while StateFolder(commands.state).is_taken() and time.monotonic() < deadline:
        time.sleep(0.01)  # the kernel closes what it held
    commands.done("up", "-d", "--on", "loopback")
    assert commands.row("store")[2] == "healthy"


def test_up_names_the_reason_of_its_failure(commands: ProjectCommands) -> None:
    file = commands.state.parents[1] / "docker-compose.yml"
    port = commands.environment["PORT"]
    with socket.create_server(("127.0.0.1", int(port))):
        assert f"cannot publish 127.0.0.1:{port}: Address already in use" in commands.refused(
            "up", "-d", "--on", "loopback"
        )
    file.write_text(TEXT.replace('[python3, -u, /srv/echo.py, 0.0.0.0, "7000"]', "[python3, -c, raise SystemExit(7)]"))
    assert "not up: store is ended (7), and its log is empty" in commands.refused("up", "-d", "--on", "loopback")
    file.write_text(TEXT.replace("image: python", "image: postgres"))
    assert "there is no program here for the image 'postgres'" in commands.refused("up", "-d", "--on", "loopback")
    file.write_text(TEXT.replace("init: true", "inti: true"))
    assert "unknown field `inti`" in commands.refused("up", "-d")
    assert "nothing runs with the state folder" in commands.refused("ps")


def test_config_prints_what_would_run(commands: ProjectCommands) -> None:
    assert "app: python3 -u /srv/echo.py app 7000" in commands.done("config")
