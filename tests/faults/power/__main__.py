"""Power losses of a real broker process: `python -m faults.power`.

    python -m faults.power                            40 losses of a random seed
    python -m faults.power --points 300 --seed 7

The disk calls of a broker at work are recorded, with a kill and a stop in between. Then a broker starts from a state
that the disk may have after a power loss behind any of these calls: all synced data, and an arbitrary part of the rest.
All answers that clients got before must hold. If they do not, the exit status is 1 and the data is kept.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random, SystemRandom

from rich.console import Console

from faults.held_disk import why_not
from faults.power.losses import LossPoint, draw_points, record, try_points

POINTS = 40


def main() -> int:
    parser = argparse.ArgumentParser(prog="faults.power", description=__doc__.partition("\n")[0])
    parser.add_argument("--points", type=int, default=POINTS, help=f"number of losses (default: {POINTS})")
    parser.add_argument("--seed", type=int, help="draws the points (default: a random one)")
    parser.add_argument("--verbose", action="store_true", help="print each loss")
    given = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    if (reason := why_not()) is not None:
        console.print(f"[yellow]without power losses[/]: {reason}")
        return 0
    seed = SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    directory = Path(tempfile.mkdtemp(prefix="semel-power-"))

    def say(point: LossPoint, problems: list[str]) -> None:
        if problems:
            console.print(f"  [red]{point}[/]")
            for problem in problems:
                console.print(f"    {problem}", markup=False)
        elif given.verbose:
            console.print(f"  {point}: clean", style="dim")

    recording = asyncio.run(record(directory / "recorded"))
    points = draw_points(recording.records, given.points, Random(seed))
    kinds = Counter(each.kind.name.lower() for each in recording.records)
    calls = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    console.print(f"seed {seed}: {len(points)} losses of power amid {len(recording.records)} disk calls ({calls})")
    wrong = asyncio.run(try_points(recording, points, directory, say))
    answers = recording.answers
    color = "red" if wrong else "green"
    console.print(
        f"  [{color}]{wrong} of {len(points)} wrong[/]; acknowledged: {len(answers.stored)} records, "
        f"{len(answers.transactions)} transactions, {len(answers.deleted)} DeleteRecords, "
        f"{len(answers.topics)} topic changes, "
        f"{len(answers.committed)} offsets"
    )
    if wrong:
        console.print(f"  kept in {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
