"""The command line of `make fuzz`: runs seeds until the time is over or a fault is found.

A fault ends the run. It is written to `fuzz-findings/` as a test for `tests/fuzz/regressions`. For requests the test
has the shortest conversations that show the fault, for other campaigns the seed.
"""

from __future__ import annotations

import logging
import sys
import traceback
from pathlib import Path
from time import monotonic

import click
from fuzz.campaigns import CAMPAIGNS, CampaignResult, FaultFoundError, judged

FINDINGS = Path("fuzz-findings")

CONVERSATIONS_TEST = '''"""{headline}"""

from fuzz.campaigns import replay

CONVERSATIONS = [
{frames}
]


def test_{campaign}_{seed}() -> None:
    replay([[bytes.fromhex(frame) for frame in conversation] for conversation in CONVERSATIONS])
'''
SEED_TEST = '''"""{headline}"""

from fuzz.campaigns import judged


def test_{campaign}_{seed}() -> None:
    judged("{campaign}", {seed})
'''


@click.command()
@click.option("--seconds", default=60.0, help="Seconds for all campaigns together.")
@click.option("--examples", default=0, help="Number of seeds of each campaign; 0: as many as the time allows.")
@click.option("--seed", default=None, type=int, help="The first seed; by default a different one each time.")
@click.option(
    "--only", type=click.Choice(list(CAMPAIGNS)), multiple=True, help="Run only this campaign; may be repeated."
)
def main(seconds: float, examples: int, seed: int | None, only: tuple[str, ...]) -> None:
    """Fuzz broker, client and start-up."""
    logging.getLogger("semel").propagate = False  # the client logs a warning for each altered answer
    first = int(monotonic() * 1000) % 1_000_000_000 if seed is None else seed
    names = list(only or CAMPAIGNS)
    click.echo(f"seeds from {first} on: {', '.join(names)}")
    for name in names:
        _run(name, first, seconds / len(names), examples)
    click.echo("nothing found")


def _run(name: str, first: int, seconds: float, examples: int) -> None:
    began, seeds, total = monotonic(), 0, CampaignResult(0)
    while seeds < examples if examples else monotonic() - began < seconds:
        seed = first + seeds
        try:
            tried = judged(name, seed)
        except (Exception, AssertionError) as error:
            _report(name, seed, error)
            sys.exit(1)
        seeds += 1
        total.count += tried.count
        total.longest_turn_s = max(total.longest_turn_s, tried.longest_turn_s)
    turn = f", longest turn {total.longest_turn_s * 1000:.0f} ms of CPU" if total.longest_turn_s else ""
    click.echo(f"{name}: {seeds} seeds, {total.count} tried in {monotonic() - began:.0f} s{turn}")


def _report(name: str, seed: int, error: BaseException) -> None:
    traceback.print_exception(error)
    headline = (str(error).strip().splitlines() or [type(error).__name__])[0].replace("\\", "/").replace('"', "'")[:90]
    if isinstance(error, FaultFoundError):
        rows = [f"    {[frame.hex() for frame in frames]}," for frames in error.conversations]
        test = CONVERSATIONS_TEST.format(headline=headline, campaign=name, seed=seed, frames="\n".join(rows))
    else:
        test = SEED_TEST.format(headline=headline, campaign=name, seed=seed)
    FINDINGS.mkdir(exist_ok=True)
    path = FINDINGS / f"test_{name}_{seed}.py"
    path.write_text(test)
    click.echo(f"\n{test}\nfound by {name} with seed {seed}; the test above is in {path}")
    click.echo(f"again: make fuzz ARGS='--only {name} --seed {seed} --examples 1'")


if __name__ == "__main__":
    main()
