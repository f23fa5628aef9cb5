"""Tables with every name and number whole, at any width and into a pipe."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from semel_protocol.tables import show_table

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


def test_a_row_in_a_pipe_has_a_tab_between_cells() -> None:
    assert shown(20, is_terminal=False)[2] == f"{CELLS[0]}\t123,456,789,012\t97,123\texact"


def test_a_name_that_is_too_long_stands_on_a_line_of_its_own() -> None:
    lines = shown(80, is_terminal=True)
    at = lines.index(CELLS[0])
    assert lines[at + 1].split() == ["123,456,789,012", "97,123", "exact"]
