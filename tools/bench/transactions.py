"""Measures transactions per second, and those of librdkafka's mock broker (C, in memory) in the same run."""

from __future__ import annotations

import statistics
from pathlib import Path

from tools.bench.figure import Figure, at_most, ratio
from tools.bench.measure import broker, cpu_s, work

AIMS = {(1, "os"): 0.85, (1, "fsync"): 0.6, (100, "os"): 0.8, (100, "fsync"): 0.6}
TRANSACTIONS = {1: 1000, 100: 300}
CPU_MS = 0.6
OWN_RATIO = 1.5
CROWD = 200
CLIFF = 10


def transactions(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure one producer: one-record transactions, and 100 records over four partitions."""
    figures = []
    for size, count in TRANSACTIONS.items():
        rates: dict[str, list[float]] = {"mock": [], "os": [], "fsync": []}
        spent = []
        for run in range(runs):
            done = work("librdkafka_transactions", address=None, transactions=count, records=size)
            rates["mock"].append(done["transactions_per_s"])
            for durability in ("os", "fsync"):
                with broker(directory / f"{size}-{durability}-{run}", durability, **{"num.partitions": "4"}) as process:
                    before = cpu_s(process)
                    done = work("librdkafka_transactions", address=process.address, transactions=count, records=size)
                    rates[durability].append(done["transactions_per_s"])
                    if durability == "os":
                        spent.append((cpu_s(process) - before) * 1000 / count)
        mock = statistics.median(rates["mock"])
        name = "one record" if size == 1 else f"{size} records over 4 partitions"
        figures.append(Figure(f"{name}, librdkafka's mock broker", mock, f"{mock:,.0f} transactions/s"))
        for durability in ("os", "fsync"):
            value = statistics.median(rates[durability])
            figures.append(Figure(f"{name}, durability={durability}", value, f"{value:,.0f} transactions/s"))
            figures.append(ratio("  of the mock's", value / mock, AIMS[size, durability]))
        most = CPU_MS if size == 1 else None
        figures.append(at_most(f"{name}, broker CPU per transaction (os)", statistics.median(spent), "ms", most))
    return figures


def transaction_clients(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure semel's client against aiokafka on one broker each, and many producers at once."""
    rates: dict[str, list[float]] = {"aiokafka": [], "semel.aiokafka": []}
    for run in range(runs):
        for module, found in rates.items():
            with broker(directory / f"{module}-{run}", "os", **{"num.partitions": "4"}) as process:
                done = work("asyncio_transactions", module=module, address=process.address, transactions=1000)
                found.append(done["transactions_per_s"])
    theirs, ours = (statistics.median(found) for found in rates.values())
    with broker(directory / "crowd", **{"num.partitions": "4"}) as process:
        crowd = work("crowd", address=process.address, producers=CROWD, transactions=10)
    cliff = crowd["p99_ms"] / crowd["p50_ms"]
    shown = f"p50 {crowd['p50_ms']:.0f} ms, p99 {crowd['p99_ms']:.0f} ms"
    return [
        Figure("one-record transactions, aiokafka", theirs, f"{theirs:,.0f}/s"),
        Figure("one-record transactions, semel", ours, f"{ours:,.0f}/s"),
        ratio("  of aiokafka's", ours / theirs, OWN_RATIO),
        Figure(
            f"{CROWD} transactional producers at once (fsync)", cliff, shown, f"p99 <= {CLIFF} x p50", cliff <= CLIFF
        ),
    ]
