"""EDGE: `make sim-exhaustive`: every blow before every step of the application and of its broker, on all processors.

    python -m sim.applications                       one seed of latencies
    python -m sim.applications --seeds 20            twenty
    python -m sim.applications --version 2 --blow kill --at 17      one run, with its transcript

The exit status is 0 if nothing was found.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from time import monotonic

from sim.applications.play import BLOWS, VERSIONS, Blow, Play, points, run_case
from sim.logs import captured
from sim.trace import Transcript

CHUNK = 8
RUNS_PER_PROCESS = 400


def run_all(seeds: int, jobs: int) -> int:
    """Everything; how many runs something was found in."""
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
    """The transcript of one run."""
    transcript = Transcript()
    with captured():
        run = Play(version, blow, at, seed, transcript.hear)
        outcome = run.run()
    transcript.add_history(run.history)
    for line in transcript.text(short=True):
        print(line)
    print(outcome)
    return 1 if outcome.findings else 0


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="sim.applications", description="Applications killed at each of their steps.")
    parser.add_argument("--seeds", type=int, default=1, help="how many, of latencies")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--version", type=int, choices=VERSIONS, default=2, help="transaction version of one run")
    parser.add_argument("--blow", choices=BLOWS, help="only one run: this")
    parser.add_argument("--at", type=int, default=1, help="before this step")
    parser.add_argument("--seed", type=int, default=0, help="of one run")
    given = parser.parse_args()
    if given.blow:
        return show(given.version, given.blow, given.at, given.seed)
    return 1 if run_all(given.seeds, given.jobs) else 0


if __name__ == "__main__":
    sys.exit(main())
