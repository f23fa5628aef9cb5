"""Measures costs that must not grow: with the log's length, the number of partitions, the number of connections."""

from __future__ import annotations

import resource
import socket
import statistics
from pathlib import Path

from semel_protocol.batch import iterate

from tools.bench.figure import Figure, ratio
from tools.bench.measure import broker, cpu_s, peak_rss_mib, work


def _cost(name: str, cpu_s_per_million: float, records_per_s: float) -> Figure:
    shown = f"{cpu_s_per_million:.2f} s CPU/M, {records_per_s:,.0f}/s"
    return Figure(name, cpu_s_per_million, shown)


def _grown(what: str, costs: list[float]) -> Figure:
    return ratio(f"  CPU, last of first ({what})", costs[-1] / costs[0])


def log_length(directory: Path, records: int, runs: int) -> list[Figure]:
    """Repeat the same produce on a log that grows each time."""
    figures, costs = [], []
    with broker(directory, **{"log.segment.bytes": str(64 << 20)}) as process:
        for step in range(1, 7):
            before = cpu_s(process)
            done = work("librdkafka_produce", address=process.address, records=records)
            cost = (cpu_s(process) - before) * 1e6 / records
            costs.append(cost)
            figures.append(_cost(f"produce, log of {step * records / 1e6:g} M records", cost, done["records_per_s"]))
    return [*figures, _grown("per record, log length", costs)]


def partitions(directory: Path, records: int, runs: int) -> list[Figure]:
    """Spread one million records over 1, 10, 100 and 1,000 partitions.

    With more partitions the client fills smaller batches, and the broker's work is per batch. Both costs are shown.
    Growth is judged by the cost per batch from the second row on, because a batch of the first row is 50 times larger.
    """
    figures, costs = [], []
    for count in (1, 10, 100, 1000):
        place = directory / str(count)
        with broker(place, **{"num.partitions": str(count)}) as process:
            work("librdkafka_produce", address=process.address, records=count * 10, partitions=count)
            batches, before = count_batches(place), cpu_s(process)
            done = work("librdkafka_produce", address=process.address, records=records, partitions=count)
            spent = cpu_s(process) - before
            batches = count_batches(place) - batches
        costs.append(spent * 1e6 / batches)
        shown = (
            f"{spent * 1e6 / records:.2f} s CPU/M records, {costs[-1]:.0f} us CPU/batch of {records // batches:,}, "
            f"{done['records_per_s']:,.0f}/s"
        )
        figures.append(Figure(f"produce, {count} partitions", costs[-1], shown))
    return [*figures, _grown("per batch, 1,000 partitions of 10", costs[1:])]


def count_batches(data_dir: Path) -> int:
    """Count the stored batches of the benchmark's topic."""
    return sum(1 for log in data_dir.glob("bench-*/*.log") for _ in iterate(log.read_bytes()))


def connections(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure one producer beside 0, 500 and 5,000 idle connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 12_000), hard))
    figures, costs = [], []
    for count in (0, 500, 5000):
        with broker(directory / str(count), "os") as process:  # a busy disk costs more than the connections
            idle = [socket.create_connection(("127.0.0.1", process.port), 5) for _ in range(count)]
            work(
                "librdkafka_produce", address=process.address, records=1000
            )  # warms up codecs and topic, and finishes the accepts
            taken, rates = [], []
            for _ in range(runs):
                before = cpu_s(process)
                rates.append(work("librdkafka_produce", address=process.address, records=records)["records_per_s"])
                taken.append((cpu_s(process) - before) * 1e6 / records)
            cost = statistics.median(taken)
            costs.append(cost)
            figures.append(_cost(f"produce beside {count} idle connections", cost, statistics.median(rates)))
            if count == 5000:
                rss = peak_rss_mib(process)
                figures.append(Figure("  broker peak RSS with 5,000 connections", rss, f"{rss:.0f} MiB"))
            for connection in idle:
                connection.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return [*figures, _grown("per record, connections", costs)]
