"""EDGE: output on the terminal: the table of services, and log lines after the name of their service."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import Empty, SimpleQueue

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tools.cluster.control import ControlAnswer

COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "bright_red", "bright_cyan", "bright_yellow")
HEALTH_COLOUR = {"healthy": "green", "unhealthy": "red", "starting": "yellow"}
FOLLOW_INTERVAL_S = 0.1
READ_BYTES_MAX = 1 << 20


def show(console: Console, answer: ControlAnswer) -> None:
    """Print the table of `ps`, the cuts and the kind of network."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("service", "state", "health", "address", "published", "pid", "starts"):
        table.add_column(column, justify="right" if column in ("pid", "starts") else "left", overflow="fold")
    for row in answer.rows:
        health = f"[{HEALTH_COLOUR[row.health]}]{row.health}[/]" if row.health else ""
        pid = "" if row.pid is None else str(row.pid)
        table.add_row(row.service, row.state, health, row.address, ", ".join(row.published), pid, str(row.starts))
    console.print(table)
    for source, target in answer.cuts:
        console.print(f"[red]cut[/] {source} -> {target}")
    console.print(f"on {answer.place}", style="dim")


class Tail:
    """Prints the logs of some services line by line: from their start, or only new lines."""

    def __init__(self, logs: Iterable[Path], console: Console, *, from_start: bool) -> None:
        self._console = console
        self._at = {path: 0 if from_start else size(path) for path in logs}
        self._rest = dict.fromkeys(self._at, b"")
        self._width = max((len(path.stem) for path in self._at), default=0)

    def read(self) -> None:
        """Print the lines since the last call. An incomplete line waits for its end."""
        for i, path in enumerate(self._at):
            while found := self._next(path):
                *lines, self._rest[path] = (self._rest[path] + found).split(b"\n")
                for line in lines:
                    self._print(path.stem, COLOURS[i % len(COLOURS)], line)

    def _next(self, path: Path) -> bytes:
        try:
            with path.open("rb") as log:
                log.seek(self._at[path])
                found = log.read(READ_BYTES_MAX)
        except FileNotFoundError:
            return b""
        self._at[path] += len(found)
        return found

    def _print(self, name: str, colour: str, line: bytes) -> None:
        text = Text.assemble((f"{name:<{self._width}} | ", colour), Text.from_ansi(line.decode(errors="replace")))
        self._console.print(text, soft_wrap=True)

    async def follow(self) -> None:
        """Print new lines until cancelled."""
        while True:
            self.read()
            await asyncio.sleep(FOLLOW_INTERVAL_S)


class LogScreen:
    """Prints messages and the lines of logs in a thread. A terminal that is stopped (Ctrl-S) or a pager that pauses
    holds neither the services nor the forwarding of their ports.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._texts: SimpleQueue[str | None] = SimpleQueue()  # None: the end
        self._read: Callable[[], None] = lambda: None
        self._thread: threading.Thread | None = None

    def say(self, text: str) -> None:
        """Print a message."""
        self._texts.put(text)
        self._begin()

    def follow(self, tail: Tail) -> None:
        """Print new lines of logs, too, from now on."""
        self._read = tail.read
        self._begin()

    def close(self, wait_s: float) -> bool:
        """Print what waits, for at most `wait_s` seconds. Returns whether it is printed."""
        self._texts.put(None)
        if self._thread is None:
            return True
        self._thread.join(wait_s)
        return not self._thread.is_alive()

    def _begin(self) -> None:
        """Start the thread, once there is something to print: the process may replace itself before."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._print_all, name="screen", daemon=True)
            self._thread.start()

    def _print_all(self) -> None:
        while True:
            try:
                text = self._texts.get(timeout=FOLLOW_INTERVAL_S)
            except Empty:
                self._read()
                continue
            if text is None:
                self._read()
                return
            self._console.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)


def size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
