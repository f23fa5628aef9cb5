"""EDGE: the command `semel log check`."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from semel_protocol import extras

FOUND_TROUBLE = 3


@click.command()
@click.argument("data_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="Check only this topic (repeatable).")
@click.option(
    "--compacted",
    multiple=True,
    metavar="NAME",
    help="A compacted topic: gaps in its offsets are no breaches. Topics with a cleaner's checkpoint are known.",
)
@click.option(
    "--processes", type=click.IntRange(min=1), metavar="N", help="Processes that read.  [default: one for each core]"
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
def check(
    data_dir: Path, topics: tuple[str, ...], compacted: tuple[str, ...], processes: int | None, as_json: bool
) -> None:
    """Check every batch in the segment files of DATA_DIR against the invariants of a log.

    It looks at CRCs, offsets, producers' epochs and sequences, transactions and their markers, and the index of aborted
    transactions. The broker may run: batches that it appends meanwhile are not checked, and a batch that is half
    written is no breach. Nothing is written. Exit status 3: there is a breach.
    """
    try:
        from semel_storage.check import report
        from semel_storage.check.audit import audit
        from semel_storage.check.data_dir import NoDataError
    except ModuleNotFoundError as e:
        raise click.ClickException(extras.missing("`semel log check`", str(e.name), "check")) from e
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    try:
        with Progress(
            *columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal
        ) as bar:
            task = bar.add_task("reading", total=None)
            found = audit(
                data_dir,
                topics,
                compacted,
                lambda done, total: bar.update(task, completed=done, total=total),
                processes or 0,
            )
    except NoDataError as e:
        raise click.ClickException(str(e)) from e
    if as_json:
        click.echo(report.as_json(found))
    else:
        report.show(Console(), found)
    if not found.is_sound:
        raise SystemExit(FOUND_TROUBLE)
