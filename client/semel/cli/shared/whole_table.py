"""Prints a table of ready texts on any console: the reports of the demos and of the audit.

    show_table(console, "Records by topic", ("topic", "batches", "records"), [("flights", "1,204", "336,776")])

`tables.Table` lays it out: names and numbers are whole at any width, and a pipe gets rows with tabs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.console import Console
from rich.text import Text

from semel.cli.shared.tables import Table


def show_table(
    console: Console,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Collection[str] = (),
) -> None:
    """Prints the table. Cells may have rich's markup. left: the columns, besides the first, that are aligned left."""
    facts = columns[1:]
    table = Table(title, *columns, right=[each for each in facts if each not in left], below=facts[::-1])
    for row in rows:
        table.add_row(*map(Text.from_markup, row))
    if not console.is_terminal:
        console.file.writelines(f"{line}\n" for line in table.rows())  # rich would replace the tabs
        return
    for line in table.lines(console.width):
        console.print(line, soft_wrap=True, highlight=False)
    console.print()
