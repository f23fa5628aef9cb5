"""EDGE: `make ablations` switches each safeguard off in turn and runs seeds until a checker fires.

    python -m sim.ablations                      all of them
    python -m sim.ablations 'duplicate window'   this one
    python -m sim.ablations --keep               and keep the findings, for the tests and the site of the documents

The exit status is 0 if at least 95 % of the tried safeguards are caught.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from functools import partial
from multiprocessing.pool import Pool

from sim.ablations import ABLATIONS, record
from sim.ablations.search import SEEDS_MAX, AblationFinding, find, fires

CAUGHT_SHARE_MIN = 0.95


def tell(finding: AblationFinding) -> None:
    """Print a finding."""
    if finding.is_caught:
        print(f"{finding.name}: seed {finding.seed}, {finding.runs} runs: {', '.join(finding.caught_by)}", flush=True)
        print(f"  {finding.words}", flush=True)
    else:
        print(f"{finding.name}: NOT CAUGHT in {finding.runs} runs", flush=True)
    if finding.unclean:
        print(f"  a checker fires with the safeguard on, too: seeds {finding.unclean}", flush=True)


def stale(pool: Pool, findings: list[AblationFinding]) -> list[str]:
    """The names of those whose plan no longer shows them."""
    names = [each.name for each, shown in zip(findings, pool.imap(fires, findings), strict=True) if not shown]
    print(f"{len(names)} of {len(findings)} plans are stale: {', '.join(names)}", flush=True)
    return names


def main() -> int:
    """Run the command line: see the module."""
    parser = argparse.ArgumentParser(prog="sim.ablations", description="Switch off safeguards in turn.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these safeguards")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help="number of seeds for each safeguard")
    parser.add_argument("--runs", type=int, default=SEEDS_MAX, help="maximum of runs without each safeguard")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="number of processes")
    parser.add_argument("--shrinking-runs", type=int, default=80, help="maximum of runs to make a caught plan smaller")
    parser.add_argument("--missing", action="store_true", help="only safeguards without a known seed")
    parser.add_argument("--stale", action="store_true", help="only caught safeguards whose plan no longer shows them")
    parser.add_argument("--keep", action="store_true", help="keep the findings")
    given = parser.parse_args()
    known = record.load()
    names = given.names or [name for name, ablation in ABLATIONS.items() if not ablation.needless]
    for name in names:
        if name not in ABLATIONS:
            parser.error(f"there is no safeguard {name!r}: choose from {', '.join(ABLATIONS)}")
    if given.missing:
        names = [name for name in names if name not in known or not known[name].is_caught]
    caught = 0
    with multiprocessing.get_context("spawn").Pool(given.jobs, maxtasksperchild=4) as pool:
        if given.stale:
            names = stale(pool, [known[name] for name in names if name in known and known[name].is_caught])
        search = partial(
            find,
            first=given.first,
            seeds_max=given.seeds,
            runs_max=given.runs,
            shrinking_runs_max=given.shrinking_runs,
        )
        for finding in pool.imap_unordered(search, names):
            tell(finding)
            caught += finding.is_caught
            if given.keep:
                known[finding.name] = finding
                record.save(known)
    print(f"{caught} of {len(names)} caught")
    return 0 if caught >= CAUGHT_SHARE_MIN * len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
