"""Rebalances of a large group with each group protocol, and the cost of many idle groups.

Members are librdkafka's, on semel and, with `--kafka`, on Apache Kafka in the same run; then those of semel's client.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from semel_protocol import __version__

from tools.bench.figure import Figure, at_most
from tools.bench.group_members import HEARTBEAT_MS, PROTOCOLS, Phase
from tools.bench.idle_groups import INTERVALS_S
from tools.bench.measure import broker, measured_by
from tools.strangers.runner import KAFKA_NEEDS, ROOT, lacking

MEMBERS = 50
IDLE_GROUPS = 1_000
SETTINGS = {
    "group.initial.rebalance.delay.ms": "300",
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
}
"""The same for all brokers, so that only their behaviour differs."""
IDLE_SETTINGS = {"group.initial.rebalance.delay.ms": "300"}
STOP_TIMEOUT_S = 60


class RunningBroker(NamedTuple):
    """A broker. `metrics_port`: where its counters of requests are, None for Apache Kafka."""

    address: str
    pid: int
    metrics_port: int | None = None


def groups(
    directory: Path, records: int, runs: int, members: int = MEMBERS, releases: Sequence[str] = ()
) -> list[Figure]:
    """Measure one run of each protocol on each broker; `releases` are those of Apache Kafka."""
    measured, figures = brokers(releases)
    runs_of: list[tuple[str, str | None]] = [*(("librdkafka", release) for release in measured), ("semel", None)]
    for protocol in PROTOCOLS:
        for client, release in runs_of:
            with running(release, directory / f"{client}-{release}-{protocol}", SETTINGS) as served:
                found: dict[str, Any] = measured_by(
                    "tools.bench.group_members", protocol=protocol, members=members, client=client, **served._asdict()
                )
            phases = {name: Phase(**fields) for name, fields in found.items()}
            figures += rebalances(f"{name_of(release)}, {protocol}, {members} members of {client}", phases)
    return figures


def idle_groups(directory: Path, records: int, runs: int, releases: Sequence[str] = ()) -> list[Figure]:
    """Measure the broker's CPU for groups of one member each that only send heartbeats."""
    measured, figures = brokers(releases)
    for protocol, interval_s in INTERVALS_S.items():
        for release in measured:
            with running(release, directory / f"{release}-{protocol}", IDLE_SETTINGS) as served:
                done = measured_by(
                    "tools.bench.idle_groups",
                    protocol=protocol,
                    groups=IDLE_GROUPS,
                    address=served.address,
                    pid=served.pid,
                )
            name = f"{name_of(release)}, {IDLE_GROUPS:,} groups, {protocol}, a heartbeat every {interval_s:g} s: CPU"
            figures += [
                at_most(name, 100 * done["share"], "% of a core", digits=1),
                at_most("  without groups", 100 * done["without"], "% of a core", digits=1),
                at_most("  more for each heartbeat", done["ms"], "ms"),
            ]
    return figures


def brokers(releases: Sequence[str]) -> tuple[list[str | None], list[Figure]]:
    """The releases of Apache Kafka to measure after semel (None), and rows for those that cannot run here."""
    missing = lacking(KAFKA_NEEDS)
    if not missing:
        return [None, *releases], []
    why = f"not measured: {', '.join(missing)} not on the path"
    return [None], [Figure(name_of(release), 0, why) for release in releases]


def rebalances(name: str, phases: dict[str, Phase]) -> list[Figure]:
    """The rows of a broker and a protocol; each shows its phases side by side."""

    def row(what: str, values: list[float], digits: int = 0) -> Figure:
        shown = " / ".join(f"{value:,.{digits}f}" for value in values)
        return Figure(f"{name}: {what}" if what == first else f"  {what}", max(values), shown)

    all_ = list(phases.values())
    first = f"partitions taken from members that stay, {' / '.join(phases)}"
    figures = [
        row(first, [each.taken for each in all_]),
        row("partitions assigned", [each.assigned for each in all_]),
        row("longest time of a partition without an owner, s", [each.longest_s for each in all_], 2),
        row("median time of a partition without an owner, s", [each.median_s for each in all_], 2),
        row("time without an owner, sum over partitions, s", [each.without_owner_s for each in all_], 0),
        row("length of the phase, s", [each.length_s for each in all_]),
        row("broker CPU, s", [each.cpu_s for each in all_], 1),
    ]
    if all(each.requests is not None for each in all_):
        figures.append(row("requests of the group", [each.requests or 0 for each in all_]))
    for what, wrong in (
        ("partitions with two owners at once", [each.overlaps for each in all_]),
        ("changes that were not complete in time", [each.unsettled for each in all_]),
    ):
        if any(wrong):
            figures.append(row(what, [float(each) for each in wrong]))
    return figures


def name_of(release: str | None) -> str:
    return f"semel {__version__}" if release is None else f"Apache Kafka {release}"


@contextlib.contextmanager
def running(release: str | None, directory: Path, settings: dict[str, str]) -> Iterator[RunningBroker]:
    """Run a fresh broker: semel, or Apache Kafka of this release. Raises RuntimeError if it does not start."""
    if release is None:
        with broker(directory, **settings, **{"metrics.listener": "127.0.0.1:0"}) as process:
            ready = next(line for line in process.log if '"ready"' in line)
            yield RunningBroker(process.address, process.pid, int(json.loads(ready)["metrics_port"]))
        return
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "tools.strangers.serve", release, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            if not address:
                raise RuntimeError(f"Apache Kafka {release} did not start; `{' '.join(command)}` says why")
            (java,) = psutil.Process(process.pid).children()
            yield RunningBroker(address, java.pid)
        finally:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)
