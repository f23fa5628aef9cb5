"""`make faults`: rounds of faults on real processes until the time is up. Exit status 1 if any round was not clean."""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from faults.plan import RoundPlan, draw
from faults.round import Round, RoundVerdict
from faults.small_disk import why_not

console = Console(highlight=False, soft_wrap=True)


async def main() -> int:
    myself = asyncio.current_task()
    assert myself is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, myself.cancel)  # ends the started processes, too
    logging.getLogger("semel").addHandler(logging.NullHandler())  # this process has clients, whose warnings are normal
    arguments = parse_arguments()
    seed = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    directory = Path(tempfile.mkdtemp(prefix="semel-faults-"))
    plan_of = single(why_not()) if arguments.brokers == 1 else cluster(secure=arguments.secure)
    verdicts: list[RoundVerdict] = []
    deadline = time.monotonic() + arguments.minutes * 60
    while not verdicts or time.monotonic() < deadline:
        plan = plan_of(seed + len(verdicts))
        console.print(
            f"seed {plan.seed}: {len(plan.faults)} faults in {plan.duration_s:.0f} s, "
            f"durability={plan.settings['durability']}, transaction.version={plan.settings['transaction.version']}, "
            + " ".join(worker.name for worker in plan.workers)
        )
        say = (lambda line: console.print(f"  {line}", style="dim")) if arguments.verbose else (lambda line: None)
        verdict = await Round(plan, directory / f"seed-{plan.seed}", say).run()
        verdicts.append(verdict)
        report(verdict, directory, plan)
    console.print(table(verdicts))
    if all(verdict.is_clean for verdict in verdicts):
        directory.rmdir()
        return 0
    console.print(f"[red]not clean[/]: data, logs, journals and histories are in {directory}")
    return 1


def single(why_no_disk: str | None) -> Callable[[int], RoundPlan]:
    """Draws rounds on one broker. Prints which faults this machine does not allow."""
    if why_no_disk is not None:
        console.print(f"[yellow]without full disks[/]: {why_no_disk}")
    return partial(draw, small_disk=why_no_disk is None)


def cluster(*, secure: bool) -> Callable[[int], RoundPlan]:
    """Draws rounds on three brokers; `secure`: with users over TLS. Prints which faults this machine does not allow."""
    from faults.cluster_plan import draw_cluster
    from tools.cluster import namespaces

    has_namespaces = namespaces.works()
    if not has_namespaces:
        console.print(
            "[yellow]without network partitions[/]: they need network namespaces. Run this as root, with iproute2"
        )
    return lambda seed: msgspec.structs.replace(draw_cluster(seed, namespaces=has_namespaces), secure=secure)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="1 broker (default), or 3 with an etcd")
    parser.add_argument(
        "--minutes", type=float, default=2.0, help="begin no further round after this time, in minutes (default: 2)"
    )
    parser.add_argument(
        "--seed", type=int, help="seed of the first round; each later round has the next one (default: a random seed)"
    )
    parser.add_argument(
        "--secure",
        action="store_true",
        help="three brokers with users over TLS, as deploy/docker-compose.secure.yml has them",
    )
    parser.add_argument("--verbose", action="store_true", help="print each fault when it happens")
    found = parser.parse_args()
    if found.secure:
        found.brokers = 3
    return found


def report(verdict: RoundVerdict, directory: Path, plan: RoundPlan) -> None:
    cluster = " SECURE=1" if plan.secure else "" if plan.brokers == 1 else f" BROKERS={plan.brokers}"
    color = "green" if verdict.is_clean else "red"
    done = ", ".join(f"{count} {what}" for what, count in sorted(verdict.operations.items()))
    console.print(f"  [{color}]{'clean' if verdict.is_clean else 'NOT CLEAN'}[/] in {verdict.took_s:.0f} s: {done}")
    for note in verdict.notes:
        console.print(f"  {note}")
    for anomaly in verdict.anomalies:
        console.print(f"  [red]{anomaly.checker}[/]: ", end="")
        console.print(anomaly.text, markup=False)
    for problem in verdict.problems:
        console.print(f"  {problem}", style="red", markup=False)
    if not verdict.is_clean:
        console.print(f"  kept in {directory}; again: make faults{cluster} SEED={verdict.seed} MINUTES=0")


def table(verdicts: list[RoundVerdict]) -> Table:
    operations: Counter[str] = sum((verdict.operations for verdict in verdicts), Counter())
    faults: Counter[str] = sum((verdict.faults for verdict in verdicts), Counter())
    bad = Counter(anomaly.checker for verdict in verdicts for anomaly in verdict.anomalies)
    bad["other problems"] = sum(len(verdict.problems) for verdict in verdicts)
    rounds = Counter(rounds=len(verdicts))
    found = Table(title=f"faults: seeds {verdicts[0].seed} to {verdicts[-1].seed}")
    for name in ("operations", "", "faults", "", "anomalies", ""):
        found.add_column(name, justify="right" if not name else "left")
    columns = [sorted((rounds + operations).items()), sorted(faults.items()), sorted(bad.items())]
    for row in range(max(map(len, columns))):
        cells = [map(str, column[row]) if row < len(column) else ("", "") for column in columns]
        found.add_row(*[cell for pair in cells for cell in pair])
    return found


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except asyncio.CancelledError:
        sys.exit(128 + signal.SIGTERM)
