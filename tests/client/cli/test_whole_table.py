"""Tables with every name and number whole, at any width and into a pipe."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from semel.cli.shared.whole_table import show_table

COLUMNS = ("topic", "records in all", "aborted, not seen", "state")
ROWS = [
    ("a-topic-with-a-long-name-that-has-no-blank-in-it-0123456789", "123,456,789,012", "97,123", "[green]exact[/]"),
    ("__transaction_state", "0", "", "[red]WRONG[/]"),
]
CELLS = ("a-topic-with-a-long-name-that-has-no-blank-in-it-0123456789", "123,456,789,012", "97,123", "exact", "WRONG")


def shown(width: int, *, is_terminal: bool) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=is_terminal, no_color=True, highlight=False)
    show_table(console, "The topics", COLUMNS, ROWS, left=("state",))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [20, 60, 80, 120])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_every_name_and_number_is_whole_in_one_line(width: int, is_terminal: bool) -> None:
    lines = shown(width, is_terminal=is_terminal)
    for cell in CELLS:
        assert any(cell in line for line in lines), (cell, lines)
    assert not any("…" in line for line in lines)


def test_a_row_in_a_pipe_is_one_line() -> None:
    (line,) = [line for line in shown(20, is_terminal=False) if "a-topic" in line]
    assert all(cell in line for cell in CELLS[:4])


def test_a_narrow_terminal_gets_a_paragraph_for_each_row() -> None:
    lines = shown(80, is_terminal=True)
    at = lines.index(ROWS[0][0])
    assert lines[at + 1].strip() == "records in all: 123,456,789,012; aborted, not seen: 97,123; state: exact"


def test_headers_wrap_between_words() -> None:
    lines = shown(120, is_terminal=False)
    assert not any("aborted, not seen" in line for line in lines)
    assert any("aborted," in line for line in lines)
    assert any("not seen" in line for line in lines)
