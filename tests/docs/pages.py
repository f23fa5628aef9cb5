"""Types a page of the documents as a reader would: programs become files, commands run in one shell.

A block with `title="NAME"` becomes the file NAME. A Python block without a title is run as a program. In a block of
`console` each line after `$ ` is a command, and the lines below it are its output: `...` in a line stands for any text,
and a line that is only `...` for any lines. A block of `sh` has commands without output. A command without output in
the page has to end with status 0.
"""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field, replace
from pathlib import Path

from docs.blocks import COMMANDS, DocumentBlock
from docs.presumed import Presumed

MARK = "#### command"
ENDED = f'ended() {{ local status=$?; echo "#### status $status"; echo "{MARK}"; return $status; }}'
"""Between two commands. The second sees the status of the first in `$?`."""
STATUS = re.compile(r"^#### status (\d+)\n", re.M)
PATIENT = ".patient.properties"
WAITING = re.compile(r"^waiting for \S+: connection refused.*\n", re.M)
HERE_DOCUMENT = re.compile(r"<<-?\s*'?(\w+)'?")
PROGRAMS = str(Path(sys.executable).parent)
PLAIN_PROGRAMS = os.environ.get("SEMEL_TYPED_WITH", PROGRAMS)
"""The folder of `semel` and `python` for pages that need no extra but `broker`. `make dist` names an environment with
nothing but that."""


@dataclass
class Command:
    line: str
    output: list[str] = field(default_factory=list)

    def fails(self, printed: str) -> str:
        """The difference between `printed`, with this exit status, and the page; empty if there is none."""
        statuses = [int(each) for each in STATUS.findall(printed)]
        printed = WAITING.sub("", STATUS.sub("", printed))
        if not self.output:
            return f"status {statuses}" if statuses != [0] else ""
        lines = [r"(?:.*\n)*?" if line == "..." else _pattern(line) for line in self.output]
        text = printed if printed.endswith("\n") else f"{printed}\n"
        return "" if re.fullmatch("".join(lines), text) else f"the page says: {self.output}"


def _pattern(line: str) -> str:
    return re.escape(line).replace(re.escape("..."), ".*") + r"\n"


def type_page(blocks: list[DocumentBlock], at: Path, presumed: Presumed, timeout_s: float = 240) -> None:
    """Run the blocks of a page in the empty folder `at`. Ports are free ones instead of 9092, 9093, and the `tens`."""
    for old in presumed.replace:
        assert any(old in each.text for each in blocks), f"the page has no {old!r} any more: see presumed.py"
    for key in presumed.around:
        assert any(key in each.text for each in blocks), f"no block has {key!r} any more: see presumed.py"
    for tens in presumed.tens:
        assert any(f":{tens}" in each.text for each in blocks), f"no port begins with {tens} any more: see presumed.py"
    ports = {f":{port}": f":{free_port()}" for port in (9092, 9093)}
    ports |= {f":{old}": f":{free}" for old, free in zip(presumed.tens, free_tens(len(presumed.tens)), strict=True)}
    substitutes = {**ports, "{at}": str(at)}
    blocks = [replace(each, text=_substituted(each.text, {**presumed.replace, **substitutes})) for each in blocks]
    around = {
        key: (_substituted(before, substitutes), _substituted(after, substitutes))
        for key, (before, after) in presumed.around.items()
    }
    commands = [Command(line) for line in _lines(_substituted(presumed.first, substitutes))]
    programs = [each for each in blocks if each.language == "python" and not each.title]
    for number, block in enumerate(blocks):
        if block.title:
            (at / block.title).parent.mkdir(exist_ok=True)
            (at / block.title).write_text(block.text)
        elif block.language in COMMANDS:
            commands += _commands(block)
        elif block.language == "python" and (not presumed.one_program or block is programs[-1]):
            file = at / f"block_{number}.py"
            file.write_text(_program(programs if presumed.one_program else [block], around))
            commands.append(Command(f"python {file.name}"))
    commands += [Command(line) for line in _lines(_substituted(presumed.last, substitutes))]
    commands = _end_the_endless(commands, presumed.endless)
    programs_at = PROGRAMS if presumed.needs_extras else PLAIN_PROGRAMS
    outputs = _run(commands, at, f"localhost{ports[':9092']}", programs_at, timeout_s)
    for command, output in zip(commands, outputs, strict=True):
        wrong = command.fails(output)
        assert not wrong, f"$ {command.line}\n{wrong}\nprinted:\n{output}\nall:\n{''.join(outputs)}"


def _substituted(text: str, substitutes: dict[str, str]) -> str:
    for old, new in substitutes.items():
        text = text.replace(old, new)
    return text


def _commands(block: DocumentBlock) -> list[Command]:
    """Without the lines that are marked as not run."""
    commands: list[Command] = []
    for line in _lines(block.text):
        if block.language == "sh":
            commands.append(Command(line))
        elif line.startswith("$ "):
            commands.append(Command(re.sub(r"\s+# .*", "", line.removeprefix("$ "))))
        elif line.startswith("> "):  # the rest of a long command
            commands[-1].line += f"\n{line.removeprefix('> ')}"
        else:
            commands[-1].output.append(line)
    return [each for each in commands if not each.line.startswith(block.left_out)]


def _lines(text: str) -> list[str]:
    """The lines; those of a here document, and those that end with a backslash, in one piece with what follows."""
    found: list[str] = []
    until: str | None = None
    for line in text.splitlines():
        if until is not None or (found and found[-1].endswith("\\")):
            found[-1] += f"\n{line}"
            until = None if line == until else until
            continue
        found.append(line)
        started = HERE_DOCUMENT.search(line)
        until = started[1] if started else None
    return found


def _program(blocks: list[DocumentBlock], around: dict[str, tuple[str, str]]) -> str:
    """The blocks as one program, with what the page presumes around them. `await` outside of a function is allowed."""
    parts = []
    for block in blocks:
        mine = [each for key, each in around.items() if key in block.text]
        parts += [*(before for before, _ in mine), block.text, *(after for _, after in mine)]
    text = "\n".join(textwrap.dedent(part) for part in parts)
    try:
        compile(text, "page", "exec")
    except SyntaxError:
        return f"import asyncio\n\nasync def main():\n{textwrap.indent(text, '    ')}\n\nasyncio.run(main())\n"
    return text


def _end_the_endless(commands: list[Command], endless: dict[str, str]) -> list[Command]:
    """Commands that do not end by themselves run in the background, until the page ends; then SIGINT ends them.

    endless: the first words of such a command, and a command that waits until it does what the page says.
    """
    result, ends = [], []
    for command in commands:
        ready = [each for words, each in endless.items() if command.line.startswith(words)]
        if not ready:
            result.append(command)
            continue
        name = f"endless_{len(ends)}"
        result += [Command(f"env --default-signal=INT {command.line} & {name}=$!"), Command(ready[0], command.output)]
        ends.append(Command(f"kill -INT ${name}; wait ${name}"))
    assert len(ends) == len(endless), f"the page has not all of {sorted(endless)}: see presumed.py"
    return result + ends


def _run(commands: list[Command], at: Path, address: str, programs: str, timeout_s: float) -> list[str]:
    """The output of each command, with standard error in it, and its status.

    On a busy machine the broker that the page starts may need seconds: commands wait for it.
    """
    (at / PATIENT).write_text("bootstrap.timeout.ms=60000\n")
    script = [ENDED, f'echo "{MARK}"', *(line for each in commands for line in (each.line, "ended"))]
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(at),
        "COLUMNS": "100",
        "SEMEL_BOOTSTRAP_SERVER": address,
        "SEMEL_CONFIG_FILE": str(at / PATIENT),
        "SEMEL_PORT": address.rpartition(":")[2],
    }
    with subprocess.Popen(
        ["bash", "-m", "-c", "\n".join([*script, "kill $(jobs -p) 2>/dev/null", "wait"])],
        cwd=at,
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as running:
        try:
            out, _ = running.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _kill_session(running.pid)
            out, _ = running.communicate()
            raise AssertionError(f"not at the end after {timeout_s} s:\n{out}") from None
        finally:
            _kill_session(running.pid)
    parts = out.split(f"{MARK}\n")[1:-1]
    assert len(parts) == len(commands), out
    return parts


def _kill_session(session: int) -> None:
    """Kill what is left of a session: with job control each job has a process group of its own."""
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


def free_tens(count: int) -> list[str]:
    """Beginnings of ports, without their last digit: all ten ports of each were free a moment ago.

    They lie below the ports that the system gives to connections.
    """
    found: list[str] = []
    for tens in random.SystemRandom().sample(range(1100, 3200), 200):
        if len(found) < count and all(_is_free(port) for port in range(tens * 10, tens * 10 + 10)):
            found.append(str(tens))
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
