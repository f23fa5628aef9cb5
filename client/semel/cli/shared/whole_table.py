"""A table that prints every name and every number whole, at any width of the terminal and into a pipe.

    show_table(console, "Records by topic", ("topic", "batches", "records"), [("flights", "1,204", "336,776")])

The first column holds names, the others numbers or short words. Headers wrap between words. If the rows do not fit in
the terminal, each row becomes a paragraph. Without a terminal the table is as wide as its rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from textwrap import wrap

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

HEADER_WIDTH_MIN = 8


def show_table(
    console: Console,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Collection[str] = (),
) -> None:
    """Prints the table. Cells may have rich's markup. left: the columns, besides the first, that are aligned left."""
    table = Table(title=title, box=box.SIMPLE_HEAVY, title_justify="left", padding=(0, 1, 0, 0))
    for at, column in enumerate(columns):
        widest = max((Text.from_markup(row[at]).cell_len for row in rows), default=0)
        is_left = at == 0 or column in left
        table.add_column(_header(column, widest), justify="left" if is_left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    whole = Measurement.get(console, console.options.update(max_width=1_000_000), table).maximum
    if whole <= console.width:
        console.print(table, highlight=False)
    elif not console.is_terminal:
        before, console.width = console.width, whole
        console.print(table, highlight=False)
        console.width = before
    else:
        _show_paragraphs(console, title, columns, rows)


def _header(column: str, widest: int) -> str:
    """The header in lines no wider than its column has to be."""
    longest_word = max(map(len, column.split()), default=0)
    return "\n".join(wrap(column, max(widest, longest_word, HEADER_WIDTH_MIN)))


def _show_paragraphs(console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a line with the name for each row, and below it the other cells with their headers."""
    console.print(Text.from_markup(title, style="table.title"))
    for name, *cells in rows:
        console.print(Text.from_markup(name), highlight=False, crop=False, soft_wrap=True)
        facts = [
            f"{column}: {cell}" if column else cell for column, cell in zip(columns[1:], cells, strict=True) if cell
        ]
        console.print(Text.from_markup("; ".join(facts)), highlight=False)
    console.print()
