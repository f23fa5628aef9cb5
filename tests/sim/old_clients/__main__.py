"""EDGE: runs every case of every kind of client on all processors; a part of `make sim-exhaustive`.

    python -m sim.old_clients                       all
    python -m sim.old_clients --client "version 2"  one kind

The exit status is 0 if the anomalies are exactly those in docs/old-clients.md.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from time import monotonic

from sim.old_clients.cases import OURS, RAW, cases
from sim.old_clients.known import KNOWN
from sim.old_clients.table import run_case, tabulate

CHUNK = 8
RUNS_PER_PROCESS = 400


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="sim.old_clients", description="Late requests of old clients and new ones.")
    parser.add_argument("--client", choices=(*RAW, *OURS), help="run only this kind of client")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="number of processes")
    given = parser.parse_args()
    status = 0
    for client in (given.client,) if given.client else (*RAW, *OURS):
        began, every = monotonic(), list(cases(client))
        failures: list[str] = []
        found = []
        with multiprocessing.get_context("spawn").Pool(given.jobs, maxtasksperchild=RUNS_PER_PROCESS // CHUNK) as pool:
            for case, anomalies, broken in pool.imap_unordered(run_case, every, CHUNK):
                found.append((case, anomalies))
                failures += [f"{case}: {text}" for text in broken]
        table = tabulate(found)
        print(f"{client}: {len(every)} cases, {table.total()} with anomalies; {monotonic() - began:.1f} s")
        for row, count in sorted(table.items()):
            print(f"  {count} x {'; '.join(row)}")
        print("".join(f"  FAILURE {text}\n" for text in failures), end="")
        if failures or {*table} != {*(KNOWN if client == RAW[0] else ())}:
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
