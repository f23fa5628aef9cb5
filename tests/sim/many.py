"""EDGE: runs many seeds on several processes. Prints progress, and the findings of each failed seed."""

from __future__ import annotations

import multiprocessing
import sys
import traceback
from time import monotonic

from sim.coverage import Coverage
from sim.plan import draw
from sim.run import RunVerdict, run

ANOMALIES_SHOWN = 2
SEEDS_PER_TASK = 4
TASKS_PER_PROCESS = 25
PROGRESS_S = 0.5
PROGRESS_LOGGED_S = 60


Task = tuple[int, tuple[str, ...], int]
"""Seed, kinds of workloads, number of brokers."""


def run_seed(task: Task) -> RunVerdict:
    """The verdict on one seed. An exception of the simulator itself is a failure."""
    seed, kinds, brokers = task
    try:
        return run(draw(seed, kinds, brokers))
    except Exception:
        return RunVerdict(seed=seed, digest="", failures=[f"the simulator failed\n{traceback.format_exc()}"])


def run_many(first: int, count: int, kinds: tuple[str, ...], brokers: int, jobs: int) -> int:
    """Run `count` seeds. Returns the number of failed seeds."""
    tasks = [(seed, kinds, brokers) for seed in range(first, first + count)]
    began, simulated_s, steps, failed = monotonic(), 0.0, 0, 0
    coverage = Coverage()
    shown = began
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=TASKS_PER_PROCESS) as pool:
        for done, verdict in enumerate(pool.imap_unordered(run_seed, tasks, SEEDS_PER_TASK), 1):
            simulated_s += verdict.simulated_s
            steps += verdict.steps
            coverage.add(verdict.tally)
            if not verdict.is_clean:
                failed += 1
                _show_failed(verdict, kinds, brokers)
            now = monotonic()
            is_tty = sys.stderr.isatty()
            if now - shown > (PROGRESS_S if is_tty else PROGRESS_LOGGED_S):
                shown = now
                words = f"{done}/{count} seeds, {failed} failed, {done / (now - began):.1f}/s"
                print(*(["\r", words, " "] if is_tty else [words, "\n"]), sep="", end="", file=sys.stderr, flush=True)
    took_s = monotonic() - began
    for line in coverage.lines():
        print(line)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print(
        f"{count} seeds from {first}: {failed} failed; {took_s:.1f} s, {count / took_s:.1f} seeds/s, "
        f"{simulated_s / took_s:.0f} simulated seconds and {steps / took_s:.0f} steps per second on {jobs} processes"
    )
    return failed


def _show_failed(verdict: RunVerdict, kinds: tuple[str, ...], brokers: int) -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    chosen = f" WORKLOAD={','.join(kinds)}" if kinds else ""
    chosen += f" BROKERS={brokers}" if brokers > 1 else ""
    print(f"seed {verdict.seed}: {', '.join(verdict.names)} (make sim SEED={verdict.seed}{chosen})", flush=True)
    show_findings(verdict, ANOMALIES_SHOWN)


def show_findings(verdict: RunVerdict, most: int) -> None:
    """Print the findings, at most `most` of each kind."""
    for kind in (verdict.anomalies, verdict.failures):
        for found in kind[:most]:
            print("  " + str(found).rstrip().replace("\n", "\n  "))
        if len(kind) > most:
            print(f"  ... and {len(kind) - most} more")
