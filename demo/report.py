"""Prints the result of the demo as tables, and whether every figure is exact."""

from __future__ import annotations

from rich.console import Console
from semel_protocol.tables import show_table

from demo.processes import Worker
from demo.roles import BrokerKill


class RowAudit:
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


def show_topics(console: Console, source: RowAudit, committed: RowAudit, uncommitted: int) -> None:
    """Print the record counts of both topics, and how many records of aborted transactions the second one holds."""
    leftovers = f"{uncommitted - committed.stored:,}"
    rows = [
        ("flights", "", *_counts(source), ""),
        ("flights-by-airline", "committed", *_counts(committed), leftovers),
        ("flights-by-airline", "uncommitted", f"{committed.sent:,}", f"{uncommitted:,}", "", "", ""),
    ]
    columns = ("topic", "read", "expected", "stored", "twice", "lost", "aborted, not seen")
    show_table(console, "The topics", columns, rows, left=("read",))


def _counts(audit: RowAudit) -> tuple[str, ...]:
    return tuple(f"{n:,}" for n in (audit.sent, audit.stored, audit.duplicated, audit.lost))


def show_processes(console: Console, broker_kills: int, workers: list[Worker], zombie: Worker) -> None:
    """Print how often each process was killed, and whether the zombie was fenced."""
    paused = f"{zombie.transactional_id}, paused and resumed"
    rows = [
        ("brokers", str(broker_kills), ""),
        *((worker.transactional_id, str(worker.kills), str(worker.aborted)) for worker in workers),
        (paused, "0", str(zombie.aborted)),
    ]
    show_table(console, "The processes", ("process", "SIGKILLs", "transactions aborted by an error"), rows)
    fate = f"fenced: {zombie.fenced}" if zombie.fenced else "[red]NOT FENCED[/]"
    console.print(f"{paused}: {fate}", highlight=False, soft_wrap=not console.is_terminal)


def show_broker_kills(console: Console, kills: list[BrokerKill]) -> None:
    """Print one row for every SIGKILL of a broker: its roles, and how long its partitions had no leader."""
    rows = [
        (
            each.broker,
            each.role,
            str(each.roles.partitions),
            f"{each.takeover_s:.1f} s",
            f"{each.in_sync_s:.1f} s",
            each.roles.other_roles,
        )
        for each in kills
    ]
    columns = ("broker", "killed as", "partitions led", "no leader for", "all in sync after", "other roles")
    show_table(console, "The brokers killed", columns, rows, left=("killed as", "other roles"))


def show_airlines(console: Console, counted: dict[str, int], right: dict[str, int]) -> None:
    """Print the flights by airline beside the counts from the file."""
    rows = []
    for name in sorted({*counted, *right}):
        got, want = counted.get(name, 0), right.get(name, 0)
        rows.append((name, f"{got:,}", f"{want:,}", "[green]exact[/]" if got == want else "[red]WRONG[/]"))
    show_table(console, "Flights by airline", ("airline", "flights read", "in the file", ""), rows, left=("",))


def verdict(console: Console, source: RowAudit, committed: RowAudit, fenced: bool, airlines_right: bool) -> bool:
    """Print the last line; return True if every figure is exact and the zombie was fenced."""
    exact = source.exact and committed.exact and fenced and airlines_right
    console.print("[bold green]Every figure is exact.[/]" if exact else "[bold red]Not exact: see the tables.[/]")
    return exact
