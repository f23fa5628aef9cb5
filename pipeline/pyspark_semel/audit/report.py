"""Prints the result of the audit as tables, or returns it as JSON."""

from __future__ import annotations

from itertools import groupby

import msgspec
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from semel_protocol.visible import visible, visible_json

from pyspark_semel.audit.checks import Check
from pyspark_semel.audit.job import Audit
from pyspark_semel.audit.partition_result import Partition

TOLD_MAX = 40


def show(console: Console, audit: Audit) -> None:
    """Prints the topics, the open transactions, the checks with their breaches, the breaches, and a summary line."""
    console.print(_topics(audit.partitions))
    if any(each.open for each in audit.partitions):
        console.print(_open_ones(audit.partitions))
    console.print(_checks(audit.partitions))
    told = 0
    for partition in audit.partitions:
        for breach in partition.breaches.noted[: max(0, TOLD_MAX - told)]:
            told += 1
            place = f"{partition.topic}-{partition.partition} @ {breach.offset}"
            console.print(f"[red]{breach.check}[/]: {escape(visible(f'{place}: {breach.what}'))}", highlight=False)
    total = sum(sum(each.breaches.counts.values()) for each in audit.partitions)
    if total > told:
        console.print(f"… and {total - told:,} more")
    size = sum(each.size_bytes for each in audit.partitions)
    console.print(
        f"{size / 1e6:,.0f} MB in {audit.seconds:.1f} s, {size / 1e6 / max(audit.seconds, 1e-9):,.0f} MB/s",
        highlight=False,
    )
    verdict = "[bold green]The logs are sound.[/]" if audit.is_sound else f"[bold red]{total:,} breaches.[/]"
    console.print(verdict)


def as_json(audit: Audit) -> str:
    """Returns one object: is_sound, seconds, and every partition with the fields of `Partition`."""
    found = {"is_sound": audit.is_sound, "seconds": audit.seconds, "partitions": audit.partitions}
    return visible_json(msgspec.json.encode(found).decode())


def _topics(partitions: list[Partition]) -> Table:
    table = Table(title="Partitions and records by topic", box=box.SIMPLE_HEAVY, title_justify="left")
    table.add_column("topic")
    for column in ("partitions", "segments", "MB", "batches", "records", "committed", "aborted", "torn", "breaches"):
        table.add_column(column, justify="right")
    for topic, group in groupby(partitions, key=lambda each: each.topic):
        each = list(group)
        sums = [sum(getattr(one, name) for one in each) for name in ("batches", "records", "commits", "aborts")]
        breaches = sum(sum(one.breaches.counts.values()) for one in each)
        torn = sum(one.torn_bytes for one in each)
        table.add_row(
            escape(visible(topic)),
            str(len(each)),
            str(sum(one.segments for one in each)),
            f"{sum(one.size_bytes for one in each) / 1e6:,.1f}",
            *(f"{number:,}" for number in sums),
            f"{torn:,} bytes" if torn else "",
            f"[red]{breaches:,}[/]" if breaches else "0",
        )
    return table


def _open_ones(partitions: list[Partition]) -> Table:
    table = Table(
        title="Open transactions, which hold the last stable offset back", box=box.SIMPLE_HEAVY, title_justify="left"
    )
    table.add_column("partition")
    for column in ("producer id", "epoch", "since offset", "last stable offset", "end offset"):
        table.add_column(column, justify="right")
    for each in partitions:
        for one in each.open[:TOLD_MAX]:
            numbers = (one.producer_id, one.producer_epoch, one.first_offset, each.last_stable_offset, each.end_offset)
            table.add_row(escape(visible(f"{each.topic}-{each.partition}")), *map(str, numbers))
    return table


def _checks(partitions: list[Partition]) -> Table:
    table = Table(title="Checks of every batch", box=box.SIMPLE_HEAVY, title_justify="left")
    table.add_column("check")
    table.add_column("breaches", justify="right")
    for check in Check:
        count = sum(each.breaches.counts.get(check, 0) for each in partitions)
        table.add_row(str(check), f"[red]{count:,}[/]" if count else "[green]none[/]")
    return table
