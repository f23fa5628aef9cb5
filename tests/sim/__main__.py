"""EDGE: `make sim`: runs many seeds on all processors, or one seed with its transcript.

    python -m sim                              300 seeds
    python -m sim --seeds 100000 --first 300   others
    python -m sim --seed 17                    one seed with its transcript (--short leaves out frequent requests)
    python -m sim --seed 17 --shrink           the smallest plan that fails in the same way, saved as a file
    python -m sim --brokers 3                  the same seeds on three brokers
    python -m sim --plan sim-17.json           a saved plan

The exit status is 0 if no run failed.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import msgspec

from sim.cluster import NAMES_OF
from sim.many import ANOMALIES_SHOWN, run_many, show_findings
from sim.plan import RunPlan, draw
from sim.run import run
from sim.shrink import Shrinker, size
from sim.trace import describe, replay
from sim.workloads import WORKLOADS

SEEDS = 300


def show_one(plan: RunPlan, *, short: bool) -> int:
    """Print the transcript of one run; 1 if it failed."""
    for line in describe(plan):
        print(line)
    verdict, _, transcript = replay(plan)
    for line in transcript.text(short=short):
        print(line)
    print(
        f"seed {verdict.seed}: {verdict.simulated_s:.3f} s simulated, {verdict.steps} steps, {verdict.events} events, "
        f"digest {verdict.digest}: {', '.join(verdict.names) or 'clean'}"
    )
    show_findings(verdict, 100)
    return 0 if verdict.is_clean else 1


def shrink_one(plan: RunPlan, runs_max: int) -> int:
    """Find the smallest plan that still fails, and save it; 1 if the plan failed."""
    verdict = run(plan)
    if verdict.is_clean:
        print(f"seed {plan.seed} is clean: there is nothing to shrink")
        return 0
    print(f"seed {plan.seed}: {', '.join(verdict.names)}; {size(msgspec.to_builtins(plan))}")
    small = Shrinker(plan, verdict.ways, lambda text: print(f"  {text}", flush=True), runs_max).shrink()
    path = Path(f"sim-{plan.seed}.json")
    path.write_bytes(msgspec.json.format(msgspec.json.encode(small), indent=1))
    for line in describe(small):
        print(line)
    show_findings(run(small), ANOMALIES_SHOWN)
    print(f"kept in {path}: make sim PLAN={path}")
    return 1


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="sim", description="The simulator.")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run only this seed, and print its transcript")
    parser.add_argument("--plan", type=Path, help="run a saved plan, and print its transcript")
    parser.add_argument(
        "--workload", default="", help=f"only these workloads, separated by commas: {', '.join(sorted(WORKLOADS))}"
    )
    parser.add_argument("--short", action="store_true", help="a transcript without heartbeats and fetches")
    parser.add_argument("--shrink", action="store_true", help="make the failing seed or plan smaller")
    parser.add_argument("--runs", type=int, default=500, help="maximum number of runs for shrinking")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="number of processes")
    parser.add_argument("--brokers", type=int, default=1, choices=sorted(NAMES_OF), help="number of brokers")
    given = parser.parse_args()
    kinds = tuple(name for name in given.workload.split(",") if name)
    for name in kinds:
        if name not in WORKLOADS:
            parser.error(f"there is no workload {name!r}: choose from {', '.join(sorted(WORKLOADS))}")
    plan = None
    if given.plan is not None:
        plan = msgspec.json.decode(given.plan.read_bytes(), type=RunPlan)
    elif given.seed is not None:
        plan = draw(given.seed, kinds, given.brokers)
    if plan is None:
        return 1 if run_many(given.first, given.seeds, kinds, given.brokers, given.jobs) else 0
    return shrink_one(plan, given.runs) if given.shrink else show_one(plan, short=given.short)


if __name__ == "__main__":
    sys.exit(main())
