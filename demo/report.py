"""What the demo found, as tables, and whether every figure is exact."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from demo.duties import Strike
from demo.processes import Worker


class Audit:
    """A topic read back from its first offset: which rows are there, and how often."""

    def __init__(self, sent: int) -> None:
        self.sent = sent
        self.stored = 0
        self._seen = bytearray(sent)
        self.duplicated = 0
        self.strange = 0

    def saw(self, row: int) -> None:
        self.stored += 1
        if not 0 <= row < self.sent:
            self.strange += 1
        elif self._seen[row]:
            self.duplicated += 1
        else:
            self._seen[row] = 1

    @property
    def lost(self) -> int:
        return self.sent - sum(self._seen)

    @property
    def exact(self) -> bool:
        return self.stored == self.sent and not (self.duplicated or self.lost or self.strange)


def show_topics(console: Console, source: Audit, committed: Audit, uncommitted: int) -> None:
    """Records of both topics, and what aborted transactions left behind in the second."""
    table = Table(title="The topics", box=box.SIMPLE_HEAVY, title_justify="left")
    table.add_column("read")
    for column in ("expected", "stored", "duplicated", "lost", "aborted leftovers"):
        table.add_column(column, justify="right")
    table.add_row("flights", *_counts(source), "")
    leftovers = f"{uncommitted - committed.stored:,} not seen"
    table.add_row("flights-by-airline, read_committed", *_counts(committed), leftovers)
    table.add_row("flights-by-airline, read_uncommitted", f"{committed.sent:,}", f"{uncommitted:,}", "", "", "seen")
    console.print(table)


def _counts(audit: Audit) -> tuple[str, ...]:
    return tuple(f"{n:,}" for n in (audit.sent, audit.stored, audit.duplicated, audit.lost))


def show_processes(console: Console, broker_kills: int, workers: list[Worker], zombie: Worker) -> None:
    """Who was killed how often, and what became of the zombie."""
    table = Table(title="The processes", box=box.SIMPLE_HEAVY, title_justify="left")
    table.add_column("process")
    for column in ("SIGKILLs", "transactions aborted by an error"):
        table.add_column(column, justify="right")
    table.add_column("")
    table.add_row("brokers", str(broker_kills), "", "")
    for worker in workers:
        table.add_row(worker.transactional_id, str(worker.kills), str(worker.aborted), "")
    fate = f"fenced: {zombie.fenced}" if zombie.fenced else "[red]NOT FENCED[/]"
    table.add_row(f"{zombie.transactional_id}, stopped and woken", "0", str(zombie.aborted), fate)
    console.print(table)


def show_strikes(console: Console, strikes: list[Strike]) -> None:
    """One line for every SIGKILL of a broker: who it was, what it had to do, and how long nobody did that."""
    table = Table(title="The brokers killed", box=box.SIMPLE_HEAVY, title_justify="left")
    for column in ("broker", "killed as", "led", "coordinated"):
        table.add_column(column)
    for column in ("nobody led for", "all in sync after"):
        table.add_column(column, justify="right")
    for each in strikes:
        times = (f"{each.led_again_s:.1f} s", f"{each.back_s:.1f} s")
        table.add_row(each.broker, each.office, each.duties.led, each.duties.offices, *times)
    console.print(table)


def show_airlines(console: Console, counted: dict[str, int], right: dict[str, int]) -> None:
    """Flights by airline beside the truth from the file."""
    table = Table(title="Flights by airline", box=box.SIMPLE_HEAVY, title_justify="left")
    table.add_column("airline")
    for column in ("flights read", "in the file"):
        table.add_column(column, justify="right")
    table.add_column("")
    for name in sorted({*counted, *right}):
        got, want = counted.get(name, 0), right.get(name, 0)
        table.add_row(name, f"{got:,}", f"{want:,}", "[green]exact[/]" if got == want else "[red]WRONG[/]")
    console.print(table)


def verdict(console: Console, source: Audit, committed: Audit, fenced: bool, airlines_right: bool) -> bool:
    """Prints the last line; True when every figure is exact and the zombie was fenced."""
    exact = source.exact and committed.exact and fenced and airlines_right
    console.print("[bold green]Every figure is exact.[/]" if exact else "[bold red]Not exact: see the tables.[/]")
    return exact
