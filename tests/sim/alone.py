"""EDGE: runs simulations of one part: elections, topics, a crowd, groups, or disks. Many seeds, or one transcript.

    python -m sim.alone elections --seeds 1000
    python -m sim.alone topics --seeds 1000 --first 300
    python -m sim.alone topics --seed 17
    python -m sim.alone crowd --seeds 300

The exit status is 0 if no run failed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from sim.control import ControlRun, Listener
from sim.crowd import CrowdRun
from sim.group_control import GroupRun
from sim.many import ANOMALIES_SHOWN, SEEDS_PER_TASK, show_findings
from sim.run import RunVerdict
from sim.slow_disk import SlowDiskRun
from sim.topic_control import TopicRun
from sim.world import NS

SEEDS = 100


class AloneRun(Protocol):
    """A run of one seed. `faults`: its faults, or the members of its crowd."""

    about: str

    def __init__(self, seed: int, listener: Listener | None = None) -> None: ...

    @property
    def faults(self) -> Sequence[object]: ...

    def judged(self) -> RunVerdict: ...


RUNS: dict[str, type[AloneRun]] = {
    "elections": ControlRun,
    "topics": TopicRun,
    "crowd": CrowdRun,
    "groups": GroupRun,
    "disks": SlowDiskRun,
}


def judged(about: str, seed: int) -> RunVerdict:
    """The verdict on one seed."""
    return RUNS[about](seed).judged()


def show_one(about: str, seed: int) -> int:
    """Print the transcript of one run; 1 if it failed."""
    run = RUNS[about](seed, lambda now_ns, host, text: print(f"{now_ns / NS:11.6f}  {host:<8}  {text}"))
    for fault in run.faults:
        print(f"fault {fault}")
    verdict = run.judged()
    print(f"seed {seed}: digest {verdict.digest}: {', '.join(verdict.names) or 'clean'}")
    show_findings(verdict, 100)
    return 0 if verdict.is_clean else 1


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="sim.alone", description="Simulations of one part of a cluster.")
    parser.add_argument("about", choices=sorted(RUNS), help="the part to simulate")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run only this seed, and print its transcript")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="number of processes")
    given = parser.parse_args()
    if given.seed is not None:
        return show_one(given.about, given.seed)
    failed, seeds = 0, range(given.first, given.first + given.seeds)
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        for verdict in pool.imap_unordered(partial(judged, given.about), seeds, SEEDS_PER_TASK):
            if not verdict.is_clean:
                failed += 1
                again = f"make sim ALONE={given.about} SEED={verdict.seed}"
                print(f"seed {verdict.seed}: {', '.join(verdict.names)} ({again})", flush=True)
                show_findings(verdict, ANOMALIES_SHOWN)
    print(f"{given.seeds} seeds from {given.first}: {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
