"""Prints the result of the counting demo as tables, and whether every figure is exact."""

from __future__ import annotations

from rich.console import Console
from semel_protocol.tables import show_table

from demo.counting.totals import Total
from demo.report import RowAudit


def show(console: Console, audit: RowAudit, counted: dict[str, Total], right: dict[str, Total], kills: int) -> bool:
    """Print both tables; return True if every figure is exact."""
    counts = tuple(f"{n:,}" for n in (audit.sent, audit.stored, audit.duplicated, audit.lost))
    title = f"The log, after {kills} × SIGKILL of the broker"
    show_table(console, title, ("topic", "records sent", "stored", "duplicated", "lost"), [("flights", *counts)])
    rows = []
    for carrier in sorted({*counted, *right}):
        got, want = counted.get(carrier, Total()), right.get(carrier, Total())
        cells = (f"{got.flights:,}", f"{want.flights:,}", f"{got.delay_min:,}", f"{want.delay_min:,}")
        mean = f"{want.delay_min / want.flights:.1f}" if want.flights else ""
        rows.append((carrier, *cells, mean, "[green]exact[/]" if got == want else "[red]WRONG[/]"))
    columns = (
        "carrier",
        "flights counted",
        "in the file",
        "delay counted (min)",
        "in the file (min)",
        "mean (min)",
        "",
    )
    show_table(console, "Flights and departure delay per carrier", columns, rows, left=("",))
    exact = audit.exact and counted == right
    console.print("[bold green]Every figure is exact.[/]" if exact else "[bold red]Not exact: see the tables.[/]")
    return exact
