"""Shows the progress of the queries: a table on a terminal, or a text line or a JSON line for each batch."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Protocol

import click
import msgspec
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from semel_protocol.visible import visible, visible_json

from pyspark_semel.pipeline.readings import Reading, Totals


class Screen(Protocol):
    """Shows each new batch, and messages about other events."""

    def __enter__(self) -> Screen: ...
    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None) -> None: ...
    def show_batch(self, reading: Reading, totals: Mapping[str, Totals]) -> None: ...
    def show_message(self, text: str) -> None: ...


def screen(how: str, console: Console) -> Screen:
    """Return a screen. `how`: "auto", "table", "lines" or "json"."""
    if how == "json":
        return JsonLines()
    return TableScreen(console) if how == "table" or (how == "auto" and console.is_terminal) else PlainLines()


class PlainLines:
    """Prints one plain line for each batch, for a log."""

    def __enter__(self) -> PlainLines:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None) -> None:
        return

    def show_batch(self, reading: Reading, totals: Mapping[str, Totals]) -> None:
        total = totals[reading.query]
        words = [f"{reading.query} batch {reading.batch}: {reading.rows_in:,} rows in"]
        words += [f"{reading.rows_out:,} out"] * (reading.rows_out >= 0)
        words += [f"{reading.rows_per_s:,.0f}/s", f"{reading.batch_ms / 1000:.1f} s"]
        words += [f"{reading.lag:,} behind"] * (reading.lag >= 0)
        words += [f"watermark {reading.watermark}"] * bool(reading.watermark)
        words += [f"{reading.late_rows:,} too late"] * bool(reading.late_rows)
        click.echo(visible(", ".join([*words, f"{total.rows_in:,} in all"])))

    def show_message(self, text: str) -> None:
        for line in text.splitlines():
            click.echo(visible(line))


class JsonLines(PlainLines):
    """Prints one JSON object per line: a `Reading`, or {"says": …}."""

    def show_batch(self, reading: Reading, totals: Mapping[str, Totals]) -> None:
        click.echo(visible_json(msgspec.json.encode(reading).decode()))

    def show_message(self, text: str) -> None:
        click.echo(visible_json(msgspec.json.encode({"says": text}).decode()))


class TableScreen:
    """Shows one table row for each query."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4)

    def __enter__(self) -> TableScreen:
        self._live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None) -> None:
        self._live.__exit__(kind, e, t)

    def show_batch(self, reading: Reading, totals: Mapping[str, Totals]) -> None:
        self._live.update(table(totals))

    def show_message(self, text: str) -> None:
        for line in text.splitlines():
            self._live.console.print(visible(line), highlight=False, markup=False)


def table(totals: Mapping[str, Totals]) -> Table:
    """Return a table with the totals and the last batch of each query."""
    made = Table(box=None, pad_edge=False)
    made.add_column("query")
    for name in ("batches", "rows in", "rows out", "rows/s", "behind", "batch", "too late", "watermark"):
        made.add_column(name, justify="right")
    for name, total in totals.items():
        last = total.last
        if last is None:
            made.add_row(escape(visible(name)), "[dim]starting[/]")
            continue
        made.add_row(
            escape(visible(name)),
            f"{total.batches:,}",
            f"{total.rows_in:,}",
            f"{total.rows_out:,}" if last.rows_out >= 0 else "-",
            f"{last.rows_per_s:,.0f}",
            f"{last.lag:,}" if last.lag >= 0 else "-",
            f"{last.batch_ms / 1000:.1f} s",
            f"{total.late_rows:,}",
            last.watermark or "-",
        )
    return made
