"""Prints the result of the counting demo as tables, and whether every figure is exact."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from demo.counting.totals import Total
from demo.report import Audit


def show(console: Console, audit: Audit, counted: dict[str, Total], right: dict[str, Total], kills: int) -> bool:
    """Prints both tables; returns True if every figure is exact."""
    table = Table(title=f"The log, after {kills} × SIGKILL of the broker", box=box.SIMPLE_HEAVY)
    for column in ("records sent", "stored", "duplicated", "lost"):
        table.add_column(column, justify="right")
    table.add_row(*(f"{n:,}" for n in (audit.sent, audit.stored, audit.duplicated, audit.lost)))
    console.print(table)

    table = Table(title="Flights and departure delay per carrier", box=box.SIMPLE_HEAVY)
    table.add_column("carrier")
    for column in ("flights counted", "in the file", "delay counted (min)", "in the file (min)", "mean (min)"):
        table.add_column(column, justify="right")
    table.add_column("")
    for carrier in sorted({*counted, *right}):
        got, want = counted.get(carrier, Total()), right.get(carrier, Total())
        cells = (f"{got.flights:,}", f"{want.flights:,}", f"{got.delay_min:,}", f"{want.delay_min:,}")
        mean = f"{want.delay_min / want.flights:.1f}" if want.flights else ""
        table.add_row(carrier, *cells, mean, "[green]exact[/]" if got == want else "[red]WRONG[/]")
    console.print(table)
    exact = audit.exact and counted == right
    console.print("[bold green]Every figure is exact.[/]" if exact else "[bold red]Not exact: see the tables.[/]")
    return exact
