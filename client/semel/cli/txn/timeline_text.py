"""PURE: draws a partition's timeline for the terminal: one line for each producer, offsets from left to right."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from semel._texts import plural
from semel.diagnose import Outcome, PartitionTimeline, Span

STYLE = {Outcome.COMMITTED: "green", Outcome.ABORTED: "red", Outcome.OPEN: "yellow", Outcome.PLAIN: "blue"}
RECORDS = {Outcome.COMMITTED: "█", Outcome.ABORTED: "▒", Outcome.OPEN: "░", Outcome.PLAIN: "▄"}
MARKER = {Outcome.COMMITTED: "C", Outcome.ABORTED: "A"}
IN_BETWEEN = "─"
CELL_COLUMNS_MAX = 4
LANES_MAX = 40
LABEL_MAX = 32


class Scale:
    """Maps offsets to columns: several offsets share a column, or an offset has several columns."""

    def __init__(self, start: int, end: int, columns: int) -> None:
        self.start, self.end = start, end
        count = max(1, end - start)
        self.offsets_per_column = max(1, -(-count // columns))
        self.columns_per_offset = min(CELL_COLUMNS_MAX, max(1, columns // count))
        self.columns = -(-count // self.offsets_per_column) * self.columns_per_offset

    def column(self, offset: int) -> int:
        """The first column of an offset."""
        return (offset - self.start) // self.offsets_per_column * self.columns_per_offset

    def columns_of(self, first: int, last: int) -> range:
        """The columns of the offsets first to last, within the scale."""
        left = self.column(max(first, self.start))
        return range(left, min(self.column(last) + self.columns_per_offset, self.columns))


def draw(timeline: PartitionTimeline, width: int) -> Iterator[Text]:
    """The lines of one partition's picture, at most `width` columns wide."""
    yield headline(timeline)
    if timeline.end <= timeline.start:
        yield Text("  no offsets to show", "dim")
        return
    lanes = timeline.lanes()
    shown = list(lanes)[:LANES_MAX]
    label_columns = min(LABEL_MAX, max(len("last stable offset"), *map(len, shown))) if shown else 18
    scale = Scale(timeline.start, timeline.end, max(10, width - label_columns - 4))
    for name in shown:
        if len(name) > label_columns:
            yield Text(f"  {name}")
        label = name if len(name) <= label_columns else ""
        yield Text(f"  {label:<{label_columns}}  ").append_text(_lane(lanes[name], timeline, scale))
    if len(lanes) > len(shown):
        yield Text(f"  … and {plural(len(lanes) - len(shown), 'producer')} more; --svg draws them all", "dim")
    yield from _axis(timeline, scale, label_columns)


def headline(timeline: PartitionTimeline) -> Text:
    """The range of offsets, and the number of transactions by outcome."""
    topic, partition = timeline.partition
    text = Text(f"{topic}-{partition}", "bold").append(
        f"  offsets {timeline.start:,} to {timeline.end:,}"
        + (f" (the log starts at {timeline.log_start:,})" if timeline.log_start < timeline.start else ""),
        "not bold",
    )
    for outcome in Outcome:
        if outcome is not Outcome.PLAIN and (count := timeline.count(outcome)):
            text.append(f"  {count:,} {outcome.value}", STYLE[outcome])
    return text


def legend() -> Text:
    """The meaning of the signs."""
    text = Text("  ")
    for outcome in Outcome:
        text.append(RECORDS[outcome], STYLE[outcome]).append(f" {outcome.value}  ")
    text.append("C", "bold green").append(" commit marker  ").append("A", "bold red").append(" abort marker")
    return text


def _lane(spans: list[Span], timeline: PartitionTimeline, scale: Scale) -> Text:
    cells: list[tuple[str, str]] = [(" ", "")] * scale.columns
    for span in spans:
        style = STYLE[span.outcome]
        if span.outcome is not Outcome.PLAIN:
            end = timeline.end - 1 if span.outcome is Outcome.OPEN else span.last_offset
            for column in scale.columns_of(span.first_offset, end):
                if cells[column][0] == " ":
                    cells[column] = (IN_BETWEEN, style)
        for first, last in span.pieces:
            for column in scale.columns_of(first, last):
                cells[column] = (RECORDS[span.outcome], style)
    for span in spans:  # markers are drawn last, so that nothing hides them
        if span.marker_offset is not None and span.marker_offset >= scale.start:
            cells[scale.column(span.marker_offset)] = (MARKER[span.outcome], f"bold {STYLE[span.outcome]}")
    return Text.assemble(*cells)


def _axis(timeline: PartitionTimeline, scale: Scale, label_columns: int) -> Iterator[Text]:
    margin = " " * (label_columns + 4)
    first, last = f"{timeline.start:,}", f"{timeline.end:,}"
    gap = max(1, scale.columns - len(first) - len(last))
    yield Text(f"{margin}{first}{' ' * gap}{last}", "dim")
    lso = timeline.last_stable_offset
    if lso < timeline.start:
        where, column = f"◄ {lso:,}, before the range shown", 0
    else:
        column = min(scale.column(lso), scale.columns)
        held = timeline.end - lso
        where = f"▲ {lso:,}" + (f", {plural(held, 'offset')} held back" if held else ", nothing held back")
        if column + len(where) > scale.columns:
            where = where[2:] + " ▲"
            column = max(0, column + 1 - len(where))
    yield Text(f"  {'last stable offset':<{label_columns}}  ", "bold").append(" " * column + where, "bold")
