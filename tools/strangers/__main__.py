"""EDGE: Run third-party programs against fresh brokers, and judge their reported results."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from rich.console import Console
from rich.markup import escape

from tools.strangers.judge import RunJudgement
from tools.strangers.record import table
from tools.strangers.runner import SuiteRun, records, suites
from tools.strangers.suite import KAFKA_RELEASE, Suite, SuiteError, chosen


def show(console: Console, run: SuiteRun, verdict: RunJudgement, seconds: float) -> None:
    """Print the outcome of one suite: a summary line, and a line for each unexpected result."""
    name = run.suite.name
    if verdict.not_run and not verdict.broken:
        console.print(f"[yellow]-[/] {name}: not run: {escape(verdict.not_run)}")
        return
    mark = "[green]✓[/]" if verdict.is_clean else "[red]✗[/]"
    counts = f"{len(verdict.passed)} passed, {len(verdict.expected)} failed as expected, {len(verdict.skipped)} skipped"
    console.print(f"{mark} {name}: {counts}, {seconds:.0f} s")
    for result in verdict.new_failures:
        console.print(f"    [red]failed[/] {escape(result.test)}: {escape(result.message)}")
    for test in verdict.new_passes:
        console.print(
            f"    [red]passed[/] {escape(test)}, which is listed as an expected failure: remove it from suite.toml"
        )
    for test in verdict.unknown:
        console.print(f"    [red]no test[/] is named {escape(test)}, which is listed as an expected failure")
    for words in verdict.broken:
        console.print(f"    [red]broken[/] {escape(words)}")
    if not verdict.is_clean:
        console.print(f"    its output: {run.log}")


def show_list(console: Console, found: list[Suite]) -> None:
    for suite in found:
        console.print(f"{suite.name}: {escape(suite.title)} ({escape(suite.versions)})")
        where = f"brokers {', '.join(map(str, suite.brokers))}; against {', '.join(suite.against)}"
        source = f"; from $STRANGERS_SRC/{suite.checkout}" if suite.checkout else ""
        console.print(f"    needs {', '.join(suite.needs) or 'nothing'}; {where}{source}")


async def run_all(console: Console, found: list[Suite], arguments: argparse.Namespace) -> bool:
    """Run suites one after the other. Returns False if a result is unexpected."""
    is_clean = True
    ran = 0
    for suite in found:
        run = SuiteRun(suite, arguments.against, arguments.brokers, keep=arguments.keep, release=arguments.kafka)
        started = time.monotonic()
        verdict = await run.run()
        show(console, run, verdict, time.monotonic() - started)
        is_clean = is_clean and verdict.is_clean
        ran += not verdict.not_run
    if not ran:
        console.print("No suite was run.")
    return is_clean


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.strangers", description=__doc__.removeprefix("EDGE: "))
    parser.add_argument("names", nargs="*", metavar="NAME", help="names of suites (default: all)")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--against", choices=("semel", "kafka"), default="semel")
    parser.add_argument(
        "--kafka", default=KAFKA_RELEASE, metavar="VERSION", help="Apache Kafka's version (default: %(default)s)"
    )
    parser.add_argument("--list", action="store_true", help="list the suites without running them")
    parser.add_argument("--results", action="store_true", help="print the stored results as Markdown")
    parser.add_argument("--keep", action="store_true", help="keep the brokers' data in the work folder")
    arguments = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    try:
        found = chosen(suites(), arguments.names)
    except SuiteError as error:
        sys.exit(str(error))
    if arguments.list:
        show_list(console, found)
    elif arguments.results:
        print(table(records()))
    elif not asyncio.run(run_all(console, found, arguments)):
        sys.exit(1)


if __name__ == "__main__":
    main()
