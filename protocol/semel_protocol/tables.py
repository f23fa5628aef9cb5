"""PURE: lays out tables and paragraphs for a terminal without breaking a word, and tables as rows for pipes.

A table has a name in its first column and facts in the others. It is made to fit a terminal in three steps; each is
taken only when the one before does not suffice. Columns in `below` become captioned lines below their row. A name that
is too long for its column stands on a line of its own. A caption's text is wrapped at spaces. Nothing is cut.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from semel_protocol.visible import visible

Cell = str | int | Text | None
"""An int is a count or an offset: it gets thousands separators in a terminal. None is shown as `-`."""

GAP = "  "
INDENT = 2
NAME_COLUMNS = 20
"""The least width that names get before facts become lines below."""
CAPTION_COLUMNS = 24
"""Texts after a longer caption are not aligned with it."""
NOTHING = "-"
WORD = re.compile(r"\S+")
CAPTION = re.compile(r" *\S+(?: \S+)*  +(?=\S)")


class Table:
    """Columns and rows. below: columns that may become lines below a row, the first to do so first."""

    def __init__(self, title: str, *columns: str, right: Sequence[str] = (), below: Sequence[str] = ()) -> None:
        self.title, self.columns = title, columns
        self.right, self._below = right, below
        self.added: list[tuple[Cell, ...]] = []

    def add_row(self, *cells: Cell) -> None:
        """One cell for each column."""
        assert len(cells) == len(self.columns), (cells, self.columns)
        self.added.append(cells)

    def rows(self) -> Iterator[str]:
        """For pipes: a line of headers, then one line a row, with a tab between cells. No cell is empty or cut, and
        numbers have no separators.
        """
        if self.title:
            yield visible(self.title)
        yield "\t".join(self.columns)
        for cells in self.added:
            yield "\t".join(visible(str(cell)) or NOTHING if cell is not None else NOTHING for cell in cells)

    def lines(self, width: int) -> Iterator[Text]:
        """For a terminal of this width."""
        if self.title:
            yield from wrapped(Text(visible(self.title), "bold"), width)
        shown = [[_shown(cell) for cell in cells] for cells in self.added]
        beside, below = self._split(shown, width)
        widths = {at: self._width(at, shown) for at in beside}
        first = beside[0]
        taken = sum(widths[at] + len(GAP) for at in beside[1:])
        widths[first] = max(INDENT, min(widths[first], width - taken))
        headers = [Text(name, "dim") for name in self.columns]
        yield from self._row(headers, beside, widths, width)
        above = ""
        for row in shown:
            yield from self._row(row, beside, widths, width, above)
            above = row[first].plain
            captions = [(self.columns[at], row[at]) for at in below if row[at].plain != NOTHING]
            yield from _below_row(captions, width)

    def _split(self, shown: Sequence[Sequence[Text]], width: int) -> tuple[list[int], list[int]]:
        """The columns beside each other, and those below."""
        beside = list(range(len(self.columns)))
        below: list[int] = []
        for name in self._below:
            widths = [self._width(at, shown) for at in beside]
            widths[0] = min(widths[0], max(cell_len(self.columns[0]), NAME_COLUMNS))  # a longer name may stand alone
            if sum(widths) + len(GAP) * (len(widths) - 1) <= width:
                break
            below.append(self.columns.index(name))
            beside.remove(below[-1])
        return beside, sorted(below)

    def _width(self, at: int, shown: Sequence[Sequence[Text]]) -> int:
        return max([cell_len(self.columns[at]), *(row[at].cell_len for row in shown)])

    def _row(
        self, cells: Sequence[Text], beside: Sequence[int], widths: Mapping[int, int], width: int, above: str = ""
    ) -> Iterator[Text]:
        """above: the name of the row above; one that needs a line of its own is not repeated."""
        first, *others = beside
        line = self._aligned(first, cells[first], widths)
        if line.cell_len > widths[first]:
            if cells[first].plain != above:
                yield from wrapped(cells[first], width)
            line = Text(" " * widths[first])
        for at in others:
            line = Text.assemble(line, GAP, self._aligned(at, cells[at], widths))
        line.rstrip()
        if line.plain:
            yield line

    def _aligned(self, at: int, cell: Text, widths: Mapping[int, int]) -> Text:
        space = " " * max(0, widths[at] - cell.cell_len)
        return Text.assemble(space, cell) if self.columns[at] in self.right else Text.assemble(cell, space)


def _below_row(captions: Sequence[tuple[str, Text]], width: int) -> Iterator[Text]:
    """The facts below a row: on one line if that fits, else one each."""
    parts = [Text.assemble((caption, "dim"), " ", said) for caption, said in captions]
    together = Text.assemble(" " * INDENT, Text(GAP).join(parts))
    yield from [together] if captions and together.cell_len <= width else captioned(captions, width)


def captioned(pairs: Sequence[tuple[str, Text | str]], width: int) -> Iterator[Text]:
    """Lines of a caption and its text, the texts below each other, wrapped at spaces."""
    left = INDENT + max((len(caption) for caption, _ in pairs), default=0) + len(GAP)
    for caption, said in pairs:
        head = Text(f"{' ' * INDENT}{caption}".ljust(left), "dim")
        yield from wrapped(Text.assemble(head, said if isinstance(said, Text) else visible(said)), width, left)


def hanging(line: str) -> int:
    """The indentation of a line's continuation: its text after a caption (two spaces end it), or two more columns."""
    caption = CAPTION.match(line)
    if caption is not None and caption.end() <= CAPTION_COLUMNS:
        return caption.end()
    return len(line) - len(line.lstrip()) + INDENT


def wrapped(text: Text, width: int, hanging: int = 0) -> list[Text]:
    """The lines of a text, broken at spaces alone; the second and later ones are indented by `hanging`. A longer word
    has a line of its own, indented by less. A text with `no_wrap` (a command to copy) stays on one line.
    """
    if text.no_wrap or text.cell_len <= width:
        return [text]
    pieces: list[Text] = []
    start = end = 0
    for word in WORD.finditer(text.plain):
        room = width - (hanging if pieces else 0)
        if end > start and cell_len(text.plain[start : word.end()]) > room:
            pieces.append(text[start:end])
            start = word.start()
        end = word.end()
    pieces.append(text[start:end])
    return [pieces[0], *(Text.assemble(" " * min(hanging, width - piece.cell_len), piece) for piece in pieces[1:])]


def _shown(cell: Cell) -> Text:
    """A cell as it stands in a terminal, with control characters escaped."""
    if isinstance(cell, Text):
        return Text(visible(cell.plain), cell.style)
    if cell is None or cell == "":
        return Text(NOTHING)
    return Text(f"{cell:,}" if isinstance(cell, int) else visible(cell))


def show_table(
    console: Console,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Collection[str] = (),
) -> None:
    """Print a table of ready texts. Cells may have rich's markup. left: the columns, besides the first, that are
    aligned left.
    """
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
