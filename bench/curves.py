"""Cost that must not grow: with the length of the log, the number of partitions, the number of connections."""

from __future__ import annotations

import resource
import socket
from pathlib import Path

from bench.figure import Figure, ratio
from bench.measure import broker, cpu_s, peak_rss_mib, work


def _cost(name: str, cpu_s_per_million: float, records_per_s: float) -> Figure:
    shown = f"{cpu_s_per_million:.2f} s CPU/M, {records_per_s:,.0f}/s"
    return Figure(name, cpu_s_per_million, shown)


def _grown(what: str, costs: list[float]) -> Figure:
    return ratio(f"  CPU per record, last of first ({what})", costs[-1] / costs[0])


def log_length(directory: Path, records: int, runs: int) -> list[Figure]:
    """The same produce and read again and again, on a log that is longer each time."""
    figures, costs = [], []
    with broker(directory, **{"log.segment.bytes": str(64 << 20)}) as process:
        for step in range(1, 7):
            before = cpu_s(process)
            done = work("librdkafka_produce", address=process.address, records=records)
            cost = (cpu_s(process) - before) * 1e6 / records
            costs.append(cost)
            figures.append(_cost(f"produce, log of {step * records / 1e6:g} M records", cost, done["records_per_s"]))
    return [*figures, _grown("log length", costs)]


def partitions(directory: Path, records: int, runs: int) -> list[Figure]:
    """One million records spread over 1, 10, 100 and 1,000 partitions."""
    figures, costs = [], []
    for count in (1, 10, 100, 1000):
        with broker(directory / str(count), **{"num.partitions": str(count)}) as process:
            work("librdkafka_produce", address=process.address, records=count * 10, partitions=count)
            before = cpu_s(process)
            done = work("librdkafka_produce", address=process.address, records=records, partitions=count)
            cost = (cpu_s(process) - before) * 1e6 / records
            costs.append(cost)
            figures.append(_cost(f"produce, {count} partitions", cost, done["records_per_s"]))
    return [*figures, _grown("partitions", costs)]


def connections(directory: Path, records: int, runs: int) -> list[Figure]:
    """One producer beside 0, 500 and 5,000 connections that only stay open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 12_000), hard))
    figures, costs = [], []
    for count in (0, 500, 5000):
        with broker(directory / str(count)) as process:
            idle = [socket.create_connection(("127.0.0.1", process.port), 5) for _ in range(count)]
            before = cpu_s(process)
            done = work("librdkafka_produce", address=process.address, records=records)
            cost = (cpu_s(process) - before) * 1e6 / records
            costs.append(cost)
            figures.append(_cost(f"produce beside {count} idle connections", cost, done["records_per_s"]))
            if count == 5000:
                rss = peak_rss_mib(process)
                figures.append(Figure("  broker peak RSS with 5,000 connections", rss, f"{rss:.0f} MiB"))
            for connection in idle:
                connection.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return [*figures, _grown("connections", costs)]
