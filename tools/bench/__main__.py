"""Measure every figure of docs/figures.md on this machine in this run. ARGS="--only produce" selects sections."""

from __future__ import annotations

import argparse
import functools
import json
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path

import psutil
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tools.bench import (
    arrow_read,
    attacks,
    audit,
    clusters,
    console_page,
    curves,
    fetch_sessions,
    fixture_start,
    groups,
    isolation,
    logins,
    many,
    markers,
    metrics,
    rights,
    scale,
    sections,
    simulator,
    spark_read,
    spark_scale,
    spark_write,
    tls,
    transactions,
)
from tools.bench.figure import Figure

SECTIONS = {
    "start": sections.start,
    "produce": sections.produce,
    "consume": sections.consume,
    "round-trip": sections.round_trip,
    "recovery": sections.recovery,
    "client": sections.client,
    "tls": tls.tls,
    "logins": logins.logins,
    "rights": rights.rights,
    "transactions": transactions.transactions,
    "transaction-clients": transactions.transaction_clients,
    "read-committed": isolation.read_committed,
    "transactional-ids": many.many_ids,
    "aborted": many.many_aborted,
    "log-length": curves.log_length,
    "partitions": curves.partitions,
    "fetch-sessions": fetch_sessions.fetch_sessions,
    "groups": groups.groups,
    "idle-groups": groups.idle_groups,
    "connections": curves.connections,
    "simulator": simulator.simulator,
    "replicated": clusters.replicated,
    "failover": clusters.failover,
    "idle": clusters.idle,
    "many-leaders": clusters.many_leaders,
    "markers": markers.markers,
    "metrics": metrics.metrics,
    "scale": scale.scale,
    "audit": audit.audit,
    "console": console_page.console,
    "attacks": attacks.attacks,
    "arrow": arrow_read.arrow_read,
    "fixture": fixture_start.fixture_start,
    "spark-read": spark_read.spark_read,
    "spark-write": spark_write.spark_write,
    "spark-scale": spark_scale.spark_scale,
}


def machine() -> str:
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    memory = psutil.virtual_memory().total >> 30
    return (
        f"{model}, {psutil.cpu_count()} cores, {memory} GiB, Python {platform.python_version()}, {platform.release()}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--only", default=",".join(SECTIONS), help=f"some of: {', '.join(SECTIONS)}")
    parser.add_argument("--records", type=int, default=1_000_000, help="records per run (default 1,000,000)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each rate; the median is shown (default 3)")
    parser.add_argument("--members", type=int, default=groups.MEMBERS, help="members of `groups` (default %(default)s)")
    parser.add_argument("--kafka", default="", help="releases of Apache Kafka that groups run on, too: 4.1.1,4.4.0")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.only.split(",") if name not in SECTIONS]
    if unknown:
        parser.error(f"no section {unknown[0]!r}; choose from {', '.join(SECTIONS)}")

    releases = [release for release in arguments.kafka.split(",") if release]
    measure: dict[str, Callable[[Path, int, int], list[Figure]]] = {
        **SECTIONS,
        "groups": functools.partial(groups.groups, members=arguments.members, releases=releases),
        "idle-groups": functools.partial(groups.idle_groups, releases=releases),
    }
    console = Console(width=None if Console().is_terminal else 140)
    console.print(machine(), highlight=False)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="semel-bench-") as directory:
        for name in arguments.only.split(","):
            with console.status(f"{name} …"):
                found = measure[name](Path(directory) / name, arguments.records, arguments.runs)
            figures += found
            console.print(table(name, found))
    if arguments.json:
        arguments.json.write_text(json.dumps([figure._asdict() for figure in figures], indent=1) + "\n")
    short = [figure for figure in figures if figure.met is False]
    for figure in short:
        console.print(f"short of its aim: {figure.name}: {figure.shown} (aim {figure.aim})", highlight=False)


def table(name: str, figures: list[Figure]) -> Table:
    made = Table(title=name, box=box.SIMPLE_HEAD, title_justify="left")
    made.add_column("figure")
    made.add_column("measured", justify="right")
    made.add_column("aim", justify="right")
    made.add_column("")
    for figure in figures:
        verdict = {True: "[green]met[/]", False: "[red]short[/]", None: ""}[figure.met]
        made.add_row(escape(figure.name), escape(figure.shown), escape(figure.aim), verdict)
    return made


if __name__ == "__main__":
    main()
