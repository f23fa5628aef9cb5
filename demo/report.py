"""Prints the result of the demo as tables, and whether every figure is exact."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from demo.processes import Worker
from demo.roles import BrokerKill


class Audit:
    """The rows of a topic that was read from its first offset: how many, which, and how often."""

    def __init__(self, sent: int) -> None:
        self.sent = sent
        self.stored = 0
        self._seen = bytearray(sent)
        self.duplicated = 0
        self.unexpected = 0

    def add(self, row: int) -> None:
        self.stored += 1
        if not 0 <= row < self.sent:
            self.unexpected += 1
        elif self._seen[row]:
            self.duplicated += 1
        else:
            self._seen[row] = 1

    @property
    def lost(self) -> int:
        return self.sent - sum(self._seen)

    @property
    def exact(self) -> bool:
        return self.stored == self.sent and not (self.duplicated or self.lost or self.unexpected)


def show_topics(console: Console, source: Audit, committed: Audit, uncommitted: int) -> None:
    """Prints the record counts of both topics, and how many records of aborted transactions the second one holds."""
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
    """Prints how often each process was killed, and whether the zombie was fenced."""
    table = Table(title="The processes", box=box.SIMPLE_HEAVY, title_justify="left")
    table.add_column("process")
    for column in ("SIGKILLs", "transactions aborted by an error"):
        table.add_column(column, justify="right")
    table.add_column("")
    table.add_row("brokers", str(broker_kills), "", "")
    for worker in workers:
        table.add_row(worker.transactional_id, str(worker.kills), str(worker.aborted), "")
    fate = f"fenced: {zombie.fenced}" if zombie.fenced else "[red]NOT FENCED[/]"
    table.add_row(f"{zombie.transactional_id}, paused and resumed", "0", str(zombie.aborted), fate)
    console.print(table)


def show_broker_kills(console: Console, kills: list[BrokerKill]) -> None:
    """Prints one row for every SIGKILL of a broker: its roles, and how long its partitions had no leader."""
    table = Table(title="The brokers killed", box=box.SIMPLE_HEAVY, title_justify="left")
    for column in ("broker", "killed as", "partitions led", "other roles"):
        table.add_column(column, justify="right" if column.endswith("led") else "left")
    for column in ("no leader for", "all in sync after"):
        table.add_column(column, justify="right")
    for each in kills:
        times = (f"{each.takeover_s:.1f} s", f"{each.in_sync_s:.1f} s")
        table.add_row(each.broker, each.role, str(each.roles.partitions), each.roles.other_roles, *times)
    console.print(table)


def show_airlines(console: Console, counted: dict[str, int], right: dict[str, int]) -> None:
    """Prints the flights by airline beside the counts from the file."""
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
    """Prints the last line; returns True if every figure is exact and the zombie was fenced."""
    exact = source.exact and committed.exact and fenced and airlines_right
    console.print("[bold green]Every figure is exact.[/]" if exact else "[bold red]Not exact: see the tables.[/]")
    return exact
