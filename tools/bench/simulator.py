"""Measures the simulator: simulated seconds per real second of a calm workload, and seeds with faults per second."""

from __future__ import annotations

from itertools import count, islice
from pathlib import Path
from time import process_time

from sim.plan import RunPlan, draw
from sim.run import RunVerdict, run

from tools.bench.figure import Figure, per_second

CLIENTS = 4
CALM_RUNS = 10
SEEDS = 60
FASTER_THAN_REAL = 100


def simulator(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure in CPU time of one process, because the simulator needs no more."""
    plans = (plan for plan in (draw(seed, ["transactional"]) for seed in count()) if len(plan.clients) == CLIENTS)
    calm = list(islice(plans, CALM_RUNS))
    for plan in calm:
        plan.faults.clear()
    verdicts, took_s = _timed(calm)
    simulated_s = sum(verdict.simulated_s for verdict in verdicts) / took_s
    events = sum(verdict.steps for verdict in verdicts) / took_s
    seeds, seeds_s = _timed([draw(seed) for seed in range(SEEDS)])
    with_faults = sum(verdict.simulated_s for verdict in seeds) / seeds_s
    aim = f">= {FASTER_THAN_REAL}"
    return [
        Figure(
            f"simulated seconds a second, one broker and {CLIENTS} transactional clients",
            simulated_s,
            f"{simulated_s:,.0f}",
            aim,
            simulated_s >= FASTER_THAN_REAL,
        ),
        per_second("  steps of event loops", events),
        Figure("seeds with their faults, on one core", len(seeds) / seeds_s, f"{len(seeds) / seeds_s:.1f}/s"),
        Figure("  simulated seconds a second", with_faults, f"{with_faults:,.0f}"),
    ]


def _timed(plans: list[RunPlan]) -> tuple[list[RunVerdict], float]:
    began = process_time()
    verdicts = [run(plan) for plan in plans]
    return verdicts, process_time() - began
