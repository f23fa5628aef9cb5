"""Measures read_committed against read_uncommitted, by the share of aborted transactions and their length."""

from __future__ import annotations

from pathlib import Path

from tools.bench.figure import Figure
from tools.bench.measure import broker, cpu_s, work
from tools.bench.prepared import Mix, mixed, prepare

RATIO = 1.2
LEVELS = ("read_uncommitted", "read_committed")


def mixes(records: int) -> dict[str, Mix]:
    """Return the mixes by their names in the table."""
    return {
        "nothing aborted": Mix("plain", records // 100, 100, 0),
        "a tenth aborted, 100 records each": Mix("tenth", records // 100, 100, 10),
        "all aborted, one record each": Mix("dense", records // 4, 1, 1),
    }


def read_committed(directory: Path, records: int, runs: int) -> list[Figure]:
    """Read the same partitions completely at both levels: CPU of the broker, wall clock of two clients."""
    found: list[Figure] = []
    chosen = mixes(records)
    prepare(directory, mixed(*chosen.values()))
    with broker(directory) as process:
        for name, mix in chosen.items():
            for client in ("librdkafka", "semel"):
                costs, took, spent = (dict.fromkeys(LEVELS, 0.0) for _ in range(3))
                for _ in range(runs):
                    for level in LEVELS:  # alternating, so that other load affects both alike
                        before = cpu_s(process)
                        done = read(client, process.address, mix, level)
                        took[level] += done["seconds"]
                        spent[level] += done.get("cpu_s", 0.0)
                        costs[level] += cpu_s(process) - before
                most = None if mix.topic == "dense" else RATIO
                found.append(_ratio(f"{name}: broker CPU, {client} reading", costs, most))
                found.append(_ratio(f"{name}: {client}, wall clock", took, most if client == "semel" else None))
                if client == "semel":
                    found.append(_ratio(f"{name}: {client}, CPU of the client", spent, most))
    return found


def read(client: str, address: str, mix: Mix, level: str) -> dict[str, float]:
    """Read a partition completely with one client; return its times."""
    asked = {"address": address, "records": mix.visible(level), "topic": mix.topic, "isolation": level}
    if client == "librdkafka":
        return work("librdkafka_consume", **asked)
    return work("asyncio_consume", module="semel.aiokafka", **asked)


def _ratio(name: str, of: dict[str, float], most: float | None) -> Figure:
    uncommitted, committed = (of[level] for level in LEVELS)
    value = committed / uncommitted
    shown = f"{value:.2f}x ({committed:.2f} s of {uncommitted:.2f} s)"
    return Figure(name, value, shown, f"<= {most}x" if most else "", value <= most if most else None)
