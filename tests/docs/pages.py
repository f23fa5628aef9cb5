"""Types a page of the documents as a reader would: programs become files, commands run in one shell.

A block of `python title="NAME"` becomes the file NAME. In a block of `console` each line after `$ ` is a command, and
the lines below it are its output: `...` in a line stands for any text, and a line that is only `...` for any lines.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$", re.M | re.S)
MARK = "#### command"
PATIENT = ".patient.properties"
WAITING = re.compile(r"^waiting for \S+: connection refused\n", re.M)
PROGRAMS = os.environ.get("SEMEL_TYPED_WITH", str(Path(sys.executable).parent))
"""The folder of the programs `semel` and `python`. `make dist` names an environment with nothing but the wheel."""


@dataclass
class Command:
    line: str
    output: list[str] = field(default_factory=list)

    def prints(self, printed: str) -> bool:
        """Whether `printed` is what the page promises. A command without output in the page may print anything."""
        if not self.output:
            return True
        lines = [r"(?:.*\n)*?" if line == "..." else _pattern(line) for line in self.output]
        return re.fullmatch("".join(lines), printed if printed.endswith("\n") else f"{printed}\n") is not None


def _pattern(line: str) -> str:
    return re.escape(line).replace(re.escape("..."), ".*") + r"\n"


def type_page(page: str, at: Path, environment: dict[str, str] | None = None, timeout_s: float = 120) -> None:
    """Runs all of the page's blocks in the empty folder `at`. The port is a free one instead of 9092."""
    address = f"localhost:{free_port()}"
    commands: list[Command] = []
    for block in BLOCK.finditer(page):
        text = block["text"].replace("localhost:9092", address)
        if block["language"] == "console":
            commands += _commands(text)
        elif block["title"]:
            (at / block["title"]).write_text(text)
    printed = _run(commands, at, {"SEMEL_PORT": address.partition(":")[2], **(environment or {})}, address, timeout_s)
    for command, output in zip(commands, printed, strict=True):
        assert command.prints(output), f"$ {command.line}\nthe page says: {command.output}\nprinted:\n{output}"


def _commands(text: str) -> list[Command]:
    commands: list[Command] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            commands.append(Command(re.sub(r"\s+# .*", "", line.removeprefix("$ "))))
        elif line.startswith("> "):  # the rest of a long command
            commands[-1].line += f"\n{line.removeprefix('> ')}"
        else:
            commands[-1].output.append(line)
    return commands


def _run(commands: list[Command], at: Path, mine: dict[str, str], address: str, timeout_s: float) -> list[str]:
    """The output of each command, with standard error in it.

    On a busy machine the broker that the page starts may need seconds: commands wait for it, and the line that says so
    is left out.
    """
    (at / PATIENT).write_text("bootstrap.timeout.ms=60000\n")
    script = [line for command in commands for line in (f'echo "{MARK}"', command.line)]
    path = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "SEMEL_BOOTSTRAP_SERVER": address, "COLUMNS": "100", **mine}
    environment["SEMEL_CONFIG_FILE"] = str(at / PATIENT)
    with subprocess.Popen(
        ["bash", "-m", "-c", "\n".join([*script, "kill $(jobs -p) 2>/dev/null", "wait"])],
        cwd=at,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as running:
        try:
            out, _ = running.communicate(timeout=timeout_s)
        finally:
            _kill_session(running.pid)
    parts = out.split(f"{MARK}\n")[1:]
    assert len(parts) == len(commands), out
    return [WAITING.sub("", part) for part in parts]


def _kill_session(session: int) -> None:
    """Kills what is left of a session: with job control each job has a process group of its own."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if int((process / "stat").read_text().rpartition(")")[2].split()[3]) == session:
                os.kill(int(process.name), signal.SIGKILL)
        except (OSError, ValueError):
            continue  # it ended meanwhile


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port
