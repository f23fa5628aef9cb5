"""How long a bystander waits while brokers work on slow disks: `python -m faults.slow_disk`, a table.

    python -m faults.slow_disk                      one broker: all rows, with syncs of 300 and of 30 ms
    python -m faults.slow_disk --brokers 3          three brokers and an etcd, all disks slow
    python -m faults.slow_disk --ms 300 --only rolls
    python -m faults.slow_disk --markdown           the table of docs/reliability.md

The brokers are processes whose disk calls are held (`faults.held_disk`). Each has a bystander, which asks ApiVersions
every 10 ms on a connection of its own, while clients do what the row says. The time for which broker and bystander wait
for a CPU is left out: other processes of the machine cause it. Exit status 1 if a bystander waited longer than
`BOUND_MS`, or a row failed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table
from support.etcd import WHY_NOT, binary

from faults.held_disk import ALL, SYNCS, why_not
from faults.slow_disk import alone, three
from faults.slow_disk.measure import BystanderLatency, measure

BOUND_MS = 50.0
ROWS = {1: alone.ROWS, 3: three.ROWS}
SETTINGS = {1: alone.SETTINGS, 3: three.SETTINGS}
TITLE = (
    "the bystander's longest wait and its median, in ms; calls that waited for the disk: on the loop's thread, and all"
)


async def measured(
    brokers: int, directory: Path, ms: int, calls: int, only: list[str], say: Callable[[BystanderLatency], None]
) -> list[BystanderLatency]:
    """The rows of this number of brokers."""
    if brokers == 1:
        return await measure(alone.Alone(directory), alone.ROWS, ms, calls, only, say)
    return await measure(three.ThreeMeasuredBrokers(directory), three.ROWS, ms, calls, only, say)


def cells(by_ms: Mapping[int, list[BystanderLatency]]) -> list[list[str]]:
    """The table: its head, then a line for each row."""
    head = ["work"]
    for ms in by_ms:
        head += [f"longest at {ms} ms", "median", "on the loop"]
    found = [head]
    for rows in zip(*by_ms.values(), strict=True):
        line = [rows[0].row]
        for row in rows:
            line += [f"{row.longest_ms:.0f}", f"{row.median_ms:.1f}", f"{row.syncs_on_loop} of {row.syncs}"]
        found.append(line)
    return found


def table(lines: list[list[str]]) -> Table:
    found = Table(title=TITLE)
    for number, name in enumerate(lines[0]):
        found.add_column(name, justify="right" if number else "left")
    for line in lines[1:]:
        found.add_row(*line)
    return found


def markdown(lines: list[list[str]]) -> str:
    ruled = [lines[0], ["---", *["---:"] * (len(lines[0]) - 1)], *lines[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in ruled)


def machine() -> str:
    """The properties of the machine on which the figures depend."""
    return f"Python {platform.python_version()}, Linux {platform.release()}, {os.cpu_count()} CPUs"


def main() -> int:
    given = _arguments()
    console = Console(highlight=False, soft_wrap=True)
    reason = why_not() or (WHY_NOT if given.brokers == 3 and binary() is None else None)
    if reason is not None:
        console.print(f"[yellow]without slow disks[/]: {reason}")
        return 0
    if unknown := set(given.only) - set(ROWS[given.brokers]):
        console.print(f"no such row: {', '.join(sorted(unknown))}; choose from {', '.join(ROWS[given.brokers])}")
        return 2

    def say(result: BystanderLatency) -> None:
        color = "red" if result.error or result.longest_ms > BOUND_MS else "green"
        waited = f"{result.longest_ms:.0f} ms"
        if result.raw_ms > result.longest_ms + 1:
            waited += f" ({result.raw_ms:.0f} with the time for which a CPU was not free)"
        calls = f"{result.syncs_on_loop} of {result.syncs} calls on the loop's thread"
        remarks = "; ".join([f"in {result.took_s:.1f} s", calls, *result.remarks, *filter(None, [result.error])])
        console.print(f"  {result.row}: [{color}]{waited}[/], ", end="")
        console.print(remarks, markup=False)

    by_ms = {}
    for ms in given.ms:
        console.print(f"{given.brokers} broker{'s' if given.brokers > 1 else ''}, each sync takes {ms} ms longer")
        with tempfile.TemporaryDirectory(prefix="semel-slow-disk-") as directory:
            calls = ALL if given.all_calls else SYNCS
            by_ms[ms] = asyncio.run(measured(given.brokers, Path(directory), ms, calls, given.only, say))
    if given.markdown:
        settings = ", ".join(f"{name}={value}" for name, value in SETTINGS[given.brokers].items())
        console.print(f"{machine()}; {settings}", markdown(cells(by_ms)), sep="\n\n", markup=False)
    else:
        console.print(table(cells(by_ms)))
    results = [result for results in by_ms.values() for result in results]
    return int(any(result.error or result.longest_ms > BOUND_MS for result in results))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="faults.slow_disk", description=__doc__.partition("\n")[0])
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="1 (default), or 3 with an etcd")
    parser.add_argument("--ms", type=int, nargs="+", default=[300, 30], help="how much longer a sync takes")
    parser.add_argument("--only", nargs="+", metavar="ROW", default=[], help="these rows only")
    parser.add_argument("--all-calls", action="store_true", help="hold also truncations, removals and renames")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    return parser.parse_args()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
