"""Prints the result of the audit as tables, or returns it as JSON."""

from __future__ import annotations

from itertools import groupby

import msgspec
from rich.console import Console
from rich.markup import escape
from semel_protocol.tables import show_table
from semel_protocol.visible import visible, visible_json

from semel_storage.check.audit import Audit
from semel_storage.check.checks import Check
from semel_storage.check.partition_result import CheckedPartition

TOLD_MAX = 40


def show(console: Console, audit: Audit) -> None:
    """Print the topics, the open transactions, the checks with their breaches, the breaches, and a summary line."""
    _show_topics(console, audit.partitions)
    if any(each.open for each in audit.partitions):
        _show_open(console, audit.partitions)
    _show_checks(console, audit.partitions)
    told = 0
    for partition in audit.partitions:
        for breach in partition.breaches.noted[: max(0, TOLD_MAX - told)]:
            told += 1
            place = f"{partition.topic}-{partition.partition} @ {breach.offset}"
            said = f"[red]{breach.check}[/]: {escape(visible(f'{place}: {breach.what}'))}"
            console.print(said, highlight=False, soft_wrap=not console.is_terminal)
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
    """Return one object: is_sound, seconds, and every partition with the fields of `CheckedPartition`."""
    found = {"is_sound": audit.is_sound, "seconds": audit.seconds, "partitions": audit.partitions}
    return visible_json(msgspec.json.encode(found).decode())


def _show_topics(console: Console, partitions: list[CheckedPartition]) -> None:
    """Print two tables, because one with all columns is wider than 80 columns."""
    files, records = [], []
    for topic, group in groupby(partitions, key=lambda each: each.topic):
        each = list(group)
        name = escape(visible(topic))
        breaches = sum(sum(one.breaches.counts.values()) for one in each)
        torn = sum(one.torn_bytes for one in each)
        files.append(
            (
                name,
                str(len(each)),
                f"{sum(one.segments for one in each):,}",
                f"{sum(one.size_bytes for one in each) / 1e6:,.1f}",
                f"{torn:,}" if torn else "",
                f"[red]{breaches:,}[/]" if breaches else "0",
            )
        )
        sums = [sum(getattr(one, field) for one in each) for field in ("batches", "records", "commits", "aborts")]
        records.append((name, *(f"{number:,}" for number in sums)))
    show_table(console, "Files by topic", ("topic", "partitions", "segments", "MB", "torn bytes", "breaches"), files)
    show_table(console, "Records by topic", ("topic", "batches", "records", "committed", "aborted"), records)


def _show_open(console: Console, partitions: list[CheckedPartition]) -> None:
    rows = []
    for each in partitions:
        for one in each.open[:TOLD_MAX]:
            numbers = (one.producer_id, one.producer_epoch, one.first_offset, each.last_stable_offset, each.end_offset)
            rows.append((escape(visible(f"{each.topic}-{each.partition}")), *map(str, numbers)))
    columns = ("partition", "producer id", "epoch", "since offset", "last stable offset", "end offset")
    show_table(console, "Open transactions, which hold the last stable offset back", columns, rows)


def _show_checks(console: Console, partitions: list[CheckedPartition]) -> None:
    rows = []
    for check in Check:
        count = sum(each.breaches.counts.get(check, 0) for each in partitions)
        rows.append((str(check), f"[red]{count:,}[/]" if count else "[green]none[/]"))
    show_table(console, "Checks of every batch", ("check", "breaches"), rows)
