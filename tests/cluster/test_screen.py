"""Messages and logs on a terminal: printed in a thread, so that a terminal that is stopped holds nothing else."""

from __future__ import annotations

import contextlib
import io
import os
import threading
from pathlib import Path

import pytest
from rich.console import Console

from tools.cluster.screen import LogScreen, Tail

pytestmark = pytest.mark.real_time


def test_messages_and_new_lines_of_logs_are_printed(tmp_path: Path) -> None:
    printed = io.StringIO()
    console = Console(file=printed, width=200)
    log = tmp_path / "broker-1.log"
    log.write_text("before\n")
    screen = LogScreen(console)
    screen.follow(Tail([log], console, from_start=False))
    for number in range(3):
        screen.say(f"message {number}")
    with log.open("a") as file:
        file.write("after\nincomplete")
    assert screen.close(20)
    lines = printed.getvalue().splitlines()
    assert sorted(lines) == ["broker-1 | after", "message 0", "message 1", "message 2"]


def test_nothing_to_say_needs_no_thread() -> None:
    before = threading.active_count()
    assert LogScreen(Console(file=io.StringIO())).close(0)
    assert threading.active_count() == before


def test_a_pipe_that_is_not_read_holds_neither_messages_nor_the_end() -> None:
    outside, inside = os.pipe()
    with os.fdopen(inside, "w") as file:
        screen = LogScreen(Console(file=file, width=200))
        for _ in range(1_000):
            screen.say("x" * 199)  # returns
        assert not screen.close(0.05)
        os.set_blocking(outside, False)
        while not screen.close(0.001):
            with contextlib.suppress(BlockingIOError):
                os.read(outside, 1 << 20)
    os.close(outside)
