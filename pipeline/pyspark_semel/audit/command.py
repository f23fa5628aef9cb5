"""EDGE: the command `semel pipeline audit`."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


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
    "--master", default="local[*]", show_default=True, help="The Spark master; every worker needs access to DATA_DIR."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
def audit(data_dir: Path, topics: tuple[str, ...], compacted: tuple[str, ...], master: str, as_json: bool) -> None:
    """Check every batch in the segment files of DATA_DIR against the invariants of a log.

    The broker may run: batches that it appends during the audit are not checked, and a batch that is half written is no
    breach. Exit status 3: there is a breach. `semel log check` does the same without Spark.
    """
    from semel_storage.check import report
    from semel_storage.check.command import FOUND_TROUBLE
    from semel_storage.check.data_dir import NoDataError

    from pyspark_semel.audit import job
    from pyspark_semel.pipeline.session import NoSparkError, session

    console = Console(stderr=as_json)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task("starting Spark", total=None)
            with session("semel audit", master) as spark:

                def progress(done: int, total: int) -> None:
                    bar.update(task, description="segment ranges", completed=done, total=total)

                found = job.audit(spark, data_dir, topics, compacted, progress)
    except (NoDataError, NoSparkError) as e:
        raise click.ClickException(str(e)) from e
    if as_json:
        click.echo(report.as_json(found))
    else:
        report.show(Console(), found)
    if not found.is_sound:
        raise SystemExit(FOUND_TROUBLE)
