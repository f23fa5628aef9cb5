"""EDGE: `make ablations`: each safeguard switched off in turn, seed after seed, until some checker notices.

    python -m sim.ablations                      all of them
    python -m sim.ablations 'duplicate window'   this one
    python -m sim.ablations --write-docs         and keep what was caught, for the tests and in docs/ablations.md

The exit status is 0 if at least 95 % of those that were tried are caught.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from functools import partial

from sim.ablations import ABLATIONS, record
from sim.ablations.search import SEEDS_MAX, Finding, find

CAUGHT_SHARE_MIN = 0.95


def tell(finding: Finding) -> None:
    """One line."""
    if finding.is_caught:
        print(f"{finding.name}: seed {finding.seed}, {finding.runs} runs: {', '.join(finding.caught_by)}", flush=True)
        print(f"  {finding.words}", flush=True)
    else:
        print(f"{finding.name}: NOT CAUGHT in {finding.runs} runs", flush=True)
    if finding.unclean:
        print(f"  found something with the safeguard on, too: seeds {finding.unclean}", flush=True)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="sim.ablations", description="Safeguards switched off in turn.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help="how many to draw for each")
    parser.add_argument("--runs", type=int, default=SEEDS_MAX, help="the most runs for each without the safeguard")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--shrinking-runs", type=int, default=80, help="the most runs to make a caught plan smaller")
    parser.add_argument("--missing", action="store_true", help="only those that no seed is known for")
    parser.add_argument("--write-docs", action="store_true", help="keep what was caught, and write docs/ablations.md")
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
            if given.write_docs:
                known[finding.name] = finding
                record.save(known)
    if given.write_docs:
        record.DOCS.write_text(record.docs(known))
    print(f"{caught} of {len(names)} caught")
    return 0 if caught >= CAUGHT_SHARE_MIN * len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
