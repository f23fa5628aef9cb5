"""Prints the result of the Spark demo as tables, and whether every figure is exact."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rich.console import Console
from semel_protocol.tables import show_table

from demo.report import RowAudit
from demo.spark.arrivals import Late

AIRPORTS_SHOWN = 12
Windows = Mapping[tuple[str, str], Late]


class Summed(NamedTuple):
    """The content of the topic `delays`. `repeated`: windows that appear more than once."""

    windows: dict[tuple[str, str], Late]
    names: dict[str, str]
    repeated: int


def row_of_json(value: bytes) -> int:
    """Return the row number at the start of an enriched flight: `{"row":17,…`."""
    return int(value[value.index(b":") + 1 : value.index(b",")])


def summed(values: Iterable[bytes]) -> Summed:
    windows: dict[tuple[str, str], Late] = {}
    names: dict[str, str] = {}
    repeated = 0
    for value in values:
        record = json.loads(value)
        window = (record["dest"], record["day"])
        repeated += window in windows
        windows[window] = Late(record["flights"], record["arrived"], record["late_min"])
        names[record["dest"]] = record["airport"]
    return Summed(windows, names, repeated)


def by_airport(windows: Windows) -> dict[str, Late]:
    found: dict[str, Late] = {}
    for (airport, _), late in windows.items():
        found[airport] = found.get(airport, Late()).plus(late)
    return found


def show_topics(console: Console, rows: list[tuple[str, RowAudit]], leftovers: Mapping[str, int]) -> None:
    found = []
    for name, audit in rows:
        counts = (f"{n:,}" for n in (audit.sent, audit.stored, audit.duplicated, audit.lost))
        found.append((name, *counts, f"{leftovers[name]:,}" if name in leftovers else ""))
    columns = ("topic", "input rows", "rows stored", "duplicates", "missing", "aborted leftovers, not seen")
    show_table(console, "The flights, read_committed", columns, found)


def show_delays(console: Console, found: Summed, right: Windows) -> bool:
    """Print the airports with the most flights beside the file's figures; return whether all windows are right."""
    got, want = by_airport(found.windows), by_airport(right)
    wrong = {window[0] for window in {*right, *found.windows} if found.windows.get(window) != right.get(window)}
    order = sorted({*got, *want}, key=lambda each: (each not in wrong, -want.get(each, Late()).flights, each))
    rows = []
    for airport in order[:AIRPORTS_SHOWN]:
        late, true = got.get(airport, Late()), want.get(airport, Late())
        rows.append(
            (
                found.names.get(airport, airport),
                *(f"{number:,}" for number in (late.flights, late.late_min, true.late_min)),
                f"{late.late_min / max(1, late.arrived):+.1f}",
                "[red]WRONG[/]" if airport in wrong else "[green]exact[/]",
            )
        )
    columns = ("airport", "flights", "minutes late", "in the file", "late on average", "")
    show_table(console, "How late flights arrived, by airport", columns, rows, left=("",))
    rest = len(order) - AIRPORTS_SHOWN
    if rest > 0:
        wrong_rest = sum(airport in wrong for airport in order[AIRPORTS_SHOWN:])
        console.print(f"… and {rest} more airports, {f'[red]{wrong_rest} wrong[/]' if wrong_rest else 'all exact'}.")
    console.print(
        f"{len(found.windows):,} windows of an airport and a day, {len(right):,} in the file; "
        f"{found.repeated:,} written twice.",
        highlight=False,
    )
    return not wrong and not found.repeated
