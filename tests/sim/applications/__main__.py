"""EDGE: `make sim-exhaustive`: each kind of blow before each step of the application or its broker, on all processors.

    python -m sim.applications                       one seed of latencies
    python -m sim.applications --seeds 20            twenty
    python -m sim.applications --version 2 --blow kill --at 17      one run, with its transcript

The exit status is 0 if no run failed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from time import monotonic

from sim.applications.application_run import BLOWS, VERSIONS, ApplicationRun, Blow, points, run_case
from sim.logs import captured
from sim.trace import Transcript

CHUNK = 8
RUNS_PER_PROCESS = 400


def run_all(seeds: int, jobs: int) -> int:
    """Run everything. Returns the number of failed runs."""
    began, failed = monotonic(), 0
    cases = [
        (version, blow, at, seed)
        for seed in range(seeds)
        for version in VERSIONS
        for blow in BLOWS
        for at in points(version, blow, seed=seed)
    ]
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=RUNS_PER_PROCESS // CHUNK) as pool:
        for (version, blow, at, seed), findings in pool.imap_unordered(run_case, cases, CHUNK):
            if findings:
                failed += 1
                print(f"version {version}, {blow} at {at}, seed {seed}: {'; '.join(findings)[:500]}", flush=True)
    print(f"{len(cases)} runs: {failed} failed; {monotonic() - began:.1f} s")
    return failed


def show(version: int, blow: Blow, at: int, seed: int) -> int:
    """Print the transcript of one run; 1 if it failed."""
    transcript = Transcript()
    with captured():
        run = ApplicationRun(version, blow, at, seed, transcript.hear)
        outcome = run.run()
    transcript.add_history(run.history)
    for line in transcript.text(short=True):
        print(line)
    print(outcome)
    return 1 if outcome.findings else 0


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="sim.applications", description="Applications killed at each of their steps.")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds for latencies")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="number of processes")
    parser.add_argument("--version", type=int, choices=VERSIONS, default=2, help="transaction version of one run")
    parser.add_argument("--blow", choices=BLOWS, help="run only one case, with this blow")
    parser.add_argument("--at", type=int, default=1, help="the step of one run that the blow precedes")
    parser.add_argument("--seed", type=int, default=0, help="seed of one run")
    given = parser.parse_args()
    if given.blow:
        return show(given.version, given.blow, given.at, given.seed)
    return 1 if run_all(given.seeds, given.jobs) else 0


if __name__ == "__main__":
    sys.exit(main())
